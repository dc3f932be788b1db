"""Observation fields: the declared unit is that of the value, and what several fields declare becomes one block."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.envs.observe import FieldTable, block, bounds, field_block, observe, table, unit_block


def _declared(fields: FieldTable) -> dict[str, str]:
    """Unit of every field by its name."""
    found = {}
    for run in fields.blocks:
        units = (run.unit,) * len(run.names) if isinstance(run.unit, str) else run.unit
        found |= dict(zip(run.names, units, strict=True))
    return found


def _size(unit: str) -> float:
    """The number in front of a unit: "30 degC" is 30."""
    head = unit.split()[0]
    return float(head) if head.replace(".", "").isdigit() else 1.0


def _with(tree, path: str, value: float):
    """The tree with all numbers of one leaf set to a value."""
    first, _, rest = path.partition(".")
    old = getattr(tree, first)
    return dataclasses.replace(tree, **{first: _with(old, rest, value) if rest else jnp.full_like(old, value)})


# name, its unit, and the quantity that it shows: where it stands, and two values inside the bounds
QUANTITIES = (
    ("dc_microgrid", "zone_norm", "degC", "state.site.t_zone_c", 18.0, 27.0),
    ("marl_opf", "mc_b_norm", "$/MW^2h", "params.offers.slope", 0.5, 3.0),
    ("marl_opf", "mc_c_norm", "$/MWh", "params.offers.price", 150.0, 400.0),
    ("joint_trans_dist", "mc_slope", "$/MW^2h", "params.transmission.offers.slope", 0.5, 3.0),
    ("joint_trans_dist", "power_limit_norm", "MW", "params.feeder.storage.power_mw", 0.25, 2.0),
    ("joint_trans_dist", "capacity_norm", "MWh", "params.feeder.storage.capacity_mwh", 0.5, 4.0),
    ("joint_trans_dist", "local_bus_voltage", "pu", "state.seen.local_v_pu", 0.95, 1.05),
)


@pytest.mark.parametrize(("task", "name", "unit", "path", "low", "high"), QUANTITIES)
def test_a_field_rises_by_as_many_of_its_units_as_the_quantity_does(task, name, unit, path, low, high):
    sim = pz.make(task)
    state, _ = jax.eval_shape(sim.init, jax.random.key(0))
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), dataclasses.replace(state, key=jnp.zeros(())))
    flow = (jnp.zeros(sim.env.dims.branch),) if task == "marl_opf" else ()
    declared = _declared(sim.env.fields)[name]
    at = sim.env.fields.names.index(name)
    where, _, leaf = path.partition(".")
    seen = []
    for value in (low, high):
        given = {"params": sim.params, "state": state}
        given[where] = _with(given[where], leaf, value)
        seen.append(np.asarray(sim.env._fields(given["state"], *flow, given["params"]))[:, at])
    assert declared.split()[-1] == unit
    rise = seen[1] - seen[0]
    # agents of the other kind read 0 in the fields of units and of batteries
    np.testing.assert_allclose(rise[rise != 0] * _size(declared), high - low, rtol=1e-5)
    assert (rise != 0).any()


def test_fields_of_one_block_keep_their_own_bounds_and_units():
    fields = table(
        [
            field_block(
                "both",
                (
                    Field("share", "1", 0, 1, lambda scene: scene["share"]),
                    Field("power", "MW", -2, 2, lambda scene: scene["power"]),
                ),
            ),
            block("hour", "h", 0, 24, lambda scene: scene["hour"]),
        ]
    )
    scene = {"share": jnp.array([0.5, 3.0]), "power": jnp.array([-5.0, 1.5]), "hour": jnp.array([7.0])}
    assert _declared(fields) == {"share": "1", "power": "MW", "hour": "h"}
    np.testing.assert_array_equal(observe(fields, scene, 2), [[0.5, -2.0, 7.0], [1.0, 1.5, 7.0]])
    box = bounds(fields, 2, np.float32)
    np.testing.assert_array_equal(box.low, [[0, -2, 0]] * 2)
    np.testing.assert_array_equal(box.high, [[1, 2, 24]] * 2)


def test_a_kind_without_units_shows_nothing():
    fields = (Field("soc", "1", 0, 1, lambda units: units), Field("p", "MW", -1, 1, lambda units: units))
    assert table([unit_block("storage", (), "_", fields, lambda scene: scene)]).blocks == ()
