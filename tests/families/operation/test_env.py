"""Operation of five substations: recordings of Grid2Op met by the package, and the contract of environments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.solver_mode import auto_is
from powerzoo_jax.families.operation.build import from_grid2op
from powerzoo_jax.families.operation.grid2op.example import LINES, write_world
from powerzoo_jax.families.operation.types import ENDS
from powerzoo_jax.tasks.contract import check_sim
from tests.tolerances import tolerance
from tools.record_grid2op import compare, read_recording
from tools.replay_grid2op import PackageReplay

pytestmark = [pytest.mark.reference, pytest.mark.full]

RECORDED = Path(__file__).parents[2] / "recorded" / "grid2op"
ALONE = {"change_bus": {"loads_id": [3]}}
# lines switched, an end moved to the other busbar, a load left alone, orders that the units cannot follow
ACTIONS = [
    *({"change_line_status": [k]} for k in range(len(LINES))),
    *({"change_bus": {f"lines_{end}_id": [k]}} for end in ("or", "ex") for k in range(len(LINES))),
    *(ALONE, {"set_bus": {"generators_id": [(2, 2)]}, "redispatch": [(1, 5.0)]}),
    {"set_storage": [(0, 8.0)], "redispatch": [(0, 5.0)], "curtail": [(2, 0.0)]},
]


@pytest.fixture
def five(tmp_path: Path) -> Any:
    return from_grid2op(write_world(tmp_path / "five"), actions=ACTIONS)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.npz")), ids=lambda path: path.stem)
def test_recordings_of_grid2op_are_met_step_by_step(path, dtype, tmp_path):
    recorded, folder = read_recording(path), write_world(tmp_path / "five", drawn=path.stem == "drawn")
    with jax.enable_x64(dtype == "float64"):
        found = compare(recorded, PackageReplay(folder, recorded, dtype))
    assert found.exceptions == []
    assert found.equal_ends == found.episodes and found.steps == (recorded["rows"] - 1).sum() > 30
    assert found.equal_simulations == found.simulations == len(recorded.get("sim.row", ()))
    for key, off in found.largest.items():
        assert off <= tolerance(f"grid2op_{key}", dtype), key


@pytest.mark.long
def test_a_fixed_number_of_rounds_meets_the_same_cascades(tmp_path):
    recorded, folder = read_recording(RECORDED / "sampled.npz"), write_world(tmp_path / "five")
    assert recorded["tripped"].max() == 1  # two rounds
    with auto_is("fixed"):
        found = compare(recorded, PackageReplay(folder, recorded, "float32"))
    assert found.exceptions == [] and found.equal_ends == found.episodes


def test_the_contract_of_environments_holds(five):
    check_sim(five)


@partial(jax.jit, static_argnums=3)
def play(sim: Any, states: Any, key: Any, steps: int) -> Any:
    def advance_all(carry: Any, key: Any) -> Any:
        states, fine, most = carry
        action = jax.random.randint(key, (states.t.shape[0], 1, 1), 0, sim.env.dims.choice)
        out, states, obs = powerzoo_jax.vstep(sim, states, action)
        low, high = sim.env.spaces(sim.params)[0]
        inside = jnp.all((out.obs >= low[None]) & (out.obs <= high[None]))
        finite = [jnp.all(jnp.isfinite(x)) for x in (obs, out.reward, out.cost, out.info.rho, out.info.terms)]
        ended = jnp.sum(out.info.end[:, None] == jnp.arange(5)[None], axis=0)
        return (states, fine & inside & jnp.all(jnp.stack(finite)), most + ended), None

    start = (states, jnp.asarray(True), jnp.zeros(5, jnp.int32))
    return jax.lax.scan(advance_all, start, jax.random.split(key, steps))[0]


def test_random_play_stays_finite_and_meets_every_end(five):
    states, _ = jax.jit(jax.vmap(five.init))(jax.random.split(jax.random.key(1), 256))
    _, fine, ends = play(five, states, jax.random.key(2), 200)
    assert fine and all(ends[k] > 0 for k in map(ENDS.index, ("running", "island", "redispatch"))), ends


def test_a_blackout_leaves_the_load_of_all_later_steps_unserved(five):
    alone = jnp.full((1, 1), 1 + ACTIONS.index(ALONE))
    step, load = jax.jit(five.step), five.params.bank.p_load
    state, _ = jax.jit(five.init)(jax.random.key(0))
    first = five.params.first_row[state.episode]
    out = step(step(state, jnp.zeros((1, 1), int)).state, alone)
    assert out.info.terminated and ENDS[int(out.info.end)] == "island" and not out.obs.any()
    left = load[first + 2 : first + five.params.n_step[state.episode] + 1].sum() / 12
    np.testing.assert_allclose(out.cost, [0, left], rtol=1e-6)
    later = step(out.state, jnp.zeros((1, 1), int))
    assert later.info.terminated and not later.cost.any() and not later.reward.any() and not later.obs.any()


@pytest.mark.long
def test_a_batch_restarts_as_each_lane_would_alone(five):
    """Also where more lanes end in a step than are begun together."""
    states, _ = jax.jit(jax.vmap(five.init))(jax.random.split(jax.random.key(3), 300))
    action = jnp.where(jnp.arange(300)[:, None, None] % 3 > 0, 1 + ACTIONS.index(ALONE), 0)
    out, after, obs = jax.jit(powerzoo_jax.vstep)(five, states, action)
    assert 128 < out.info.terminated.sum() < 300
    expected = jax.jit(jax.vmap(partial(powerzoo_jax.autoreset, five)))(out)
    for a, b in zip(jax.tree.leaves((after, obs)), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, atol=tolerance("lane", np.float32), rtol=1e-5)
