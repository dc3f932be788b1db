"""Mixed fleets: who owns which entry of an action, where power enters the network, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.devices import fleet, flexload, renewable, storage
from powerzoo_jax.devices.fleet import action_table, inject, sense, stacked, terminals
from powerzoo_jax.devices.protocol import Delivery
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs.observe import bounds
from powerzoo_jax.families.feeder.fields import fleet_table, grid_blocks

ROSTER = ("storage", "flexload", "renewable", "storage", "flexload")


def test_a_flat_action_is_read_unit_after_unit():
    """Without Q: battery 0, load 1-2, plant 3, battery 4, load 5-6."""
    table = action_table(ROSTER)
    parts = table.flat(jnp.asarray([0.1, -1.0, 1.0, 0.3, 0.4, 0.0, -0.5]))
    assert table.width == 7
    np.testing.assert_allclose(parts["storage"], [[0.1], [0.4]], rtol=1e-6)
    np.testing.assert_allclose(parts["flexload"], [[0.0, 1.0], [0.5, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(parts["renewable"], [[0.3]], rtol=1e-6)


def test_an_action_per_agent_is_read_row_by_row():
    table = action_table(ROSTER, q_control=("storage", "renewable"))
    action = jnp.arange(10, dtype="float32").reshape(5, 2) / 10
    parts = table.rows(action)
    assert table.width == 10
    np.testing.assert_array_equal(parts["storage"], action[np.array([0, 3])])
    np.testing.assert_array_equal(parts["renewable"], action[np.array([2])])


def test_what_is_not_finite_leaves_the_device_alone_and_what_is_too_large_is_clipped():
    table = action_table(("storage", "renewable", "flexload", "datacenter", "thermal", "vehicle"))
    parts = table.flat(jnp.full(table.width, jnp.nan))
    quiet = {
        "storage": [0],
        "renewable": [1],
        "flexload": [0, 0],
        "datacenter": [0] * 3,
        "thermal": [0],
        "vehicle": [0],
    }
    for kind, row in quiet.items():
        np.testing.assert_array_equal(parts[kind], [row])
    high = table.flat(jnp.full(table.width, 9.0))
    assert all((np.asarray(x) == 1.0).all() for x in high.values())


def test_an_action_of_minus_one_to_one_passes_unchanged():
    values = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, 64), "float32")
    np.testing.assert_array_equal(action_table(["storage"] * 64).flat(values)["storage"][:, 0], values)


def test_stacked_deliveries_stand_in_roster_order():
    table = action_table(ROSTER)

    def made(*p):
        return Delivery(*(jnp.asarray(p) * k for k in (1.0, 2.0, 3.0, 4.0)))

    out = stacked(table, {"storage": made(0.0, 3.0), "flexload": made(1.0, 4.0), "renewable": made(2.0)})
    for factor, column in zip((1, 2, 3, 4), out, strict=True):
        np.testing.assert_array_equal(column, factor * np.arange(5.0))


def test_units_at_one_bus_add_up_and_three_phase_units_split_evenly():
    at = terminals([[2], [2], [0, 1, 2]], 4, "float32")
    np.testing.assert_allclose(inject(at, jnp.asarray([1.0, 2.0, 3.0]), 4), [1.0, 1.0, 4.0, 0.0])


def test_a_unit_senses_the_mean_of_its_nodes():
    at = terminals([[3], [0, 1, 2]], 4, "float32")
    np.testing.assert_allclose(sense(at, jnp.asarray([0.9, 1.0, 1.1, 1.05]), 2), [1.05, 1.0], rtol=1e-6)


def test_injection_equals_the_dense_incidence_under_vmap():
    rng = np.random.default_rng(4)
    node = rng.integers(0, 30, 12)
    at, dense = terminals(node[:, None], 30, "float32"), np.zeros((12, 30), np.float32)
    dense[np.arange(12), node] = 1
    p = rng.normal(size=(64, 12)).astype("float32")
    got = jax.vmap(lambda x: inject(at, x, 30))(jnp.asarray(p))
    np.testing.assert_allclose(got, p @ dense, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(lambda x: fleet.bus_injection(jnp.asarray(dense), x))(p), got, atol=1e-6)


def test_no_power_is_lost_between_devices_and_buses():
    """A mixed fleet steps, and the injections of all buses sum to what its units delivered."""
    table = action_table(ROSTER, q_control=("storage", "renewable"))
    act = table.rows(jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (5, 2)), "float32"))
    bat = storage.storage_params(2, "float32", capacity_mwh=0.3, power_mw=0.1, s_mva=0.15)
    pv = renewable.renewable_params(1, "float32", capacity_mw=0.2, s_mva=0.22)
    flex = flexload.flexload_params(2, "float32", curtail_cap_mw=0.1, shift_cap_mw=0.1)
    p, q = storage.command(bat, act["storage"])
    _, a = storage.step(bat, storage.init(bat, jnp.full(2, 0.5)), p, 0.5, q)
    _, b = renewable.step(pv, renewable.init(pv), renewable.command(pv, act["renewable"]), 0.5, jnp.full(1, 0.6))
    at_bus = jnp.full(2, 0.5), jnp.full(2, 0.2)
    _, c = flexload.step(flex, flexload.init(flex, 4), flexload.command(flex, act["flexload"]), 0.5, *at_bus)
    out = stacked(table, {"storage": a, "renewable": b, "flexload": c})
    at = terminals([[8], [40], [5], [54], [40]], 141, "float32")
    assert float(jnp.sum(inject(at, out.p_mw, 141))) == pytest.approx(float(jnp.sum(out.p_mw)), abs=1e-6)
    assert float(inject(at, out.q_mvar, 141)[40]) == pytest.approx(float(out.q_mvar[1] + out.q_mvar[4]), abs=1e-7)
    assert float(out.p_mw[2]) == float(b.p_mw[0])


def test_a_table_is_static_and_equal_by_value():
    assert action_table(ROSTER) == action_table(list(ROSTER))
    assert hash(action_table(ROSTER)) == hash(action_table(ROSTER))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: action_table(["batery"]), "storage"),
        (lambda: action_table(["flexload"], q_control=["flexload"]), "flexload takes no reactive command"),
        (lambda: terminals([[1], []], 3, "float32"), "unit 1 has no node"),
        (lambda: terminals([[1], [3]], 3, "float32"), "positions 3 lie outside a network of 3 nodes"),
    ],
)
def test_impossible_fleets_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_table_of_a_fleet_of_all_kinds_is_complete_and_equal_by_value():
    """A table is static: two builds that differ would compile every program of a task twice."""
    fleet = [(name, (f"{kind.label}_0", f"{kind.label}_1")) for name, kind in KINDS.items()]
    made = [fleet_table(grid_blocks((1, 2, 3), 2), fleet, 24) for _ in range(2)]
    assert made[0] == made[1] and hash(made[0]) == hash(made[1])
    assert len(set(made[0].names)) == made[0].size
    low, high = bounds(made[0], 1, np.float64)
    assert (low < high).all()
    for block in made[0].blocks:
        units = block.unit if isinstance(block.unit, tuple) else (block.unit,) * len(block.names)
        assert block.value is not None and len(units) == len(block.names) and all(units)
