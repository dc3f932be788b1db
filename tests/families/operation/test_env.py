"""Operation of five substations: recordings of Grid2Op replayed through `advance`, and the contract of environments."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.families.operation.env import advance, first_state, row_at
from powerzoo_jax.families.operation.types import ENDS, Attack
from powerzoo_jax.tasks.contract import check_sim
from tests.families.operation.oracle_world import ENDS as KINDS
from tests.families.operation.oracle_world import orders_of, params_of, sim_of
from tests.references.grid2op import nothing
from tests.references.grid2op_five import LINES, write_world
from tests.references.grid2op_world import Grid, World
from tests.tolerances import tolerance
from tools.record_grid2op import FLAGS, action_at, read_recording

pytestmark = [pytest.mark.reference, pytest.mark.full]

RECORDED = Path(__file__).parents[2] / "recorded" / "grid2op"


@jax.jit
def begin(params: Any, episode: Any) -> Any:
    state = first_state(jax.random.key(0), episode, params)
    still = jax.tree.map(lambda x: x[0], params.table)
    return advance(state, still, row_at(params, episode, state.t), params, counting=False)[0]


@jax.jit
def step(params: Any, state: Any, action: Any, attack: Attack) -> Any:
    new, report = advance(state, action, row_at(params, state.episode, state.t + 1), params, attack)
    return dataclasses.replace(new, t=state.t + 1), report


def shown(state: Any, params: Any, grid: Grid) -> dict[str, Any]:
    """Observation of a state by Grid2Op's names."""
    topology = np.zeros(len(grid.sub_of_place), int)
    topology[np.concatenate([grid.place[kind] for kind in KINDS])] = np.where(state.busbar == 0, -1, state.busbar)
    return {
        "line_status": state.flow.on,
        "topo_vect": topology,
        "time_before_cooldown_line": state.cooldown_line,
        "time_before_cooldown_sub": state.cooldown_sub,
        "timestep_overflow": state.overflow,
        "rho": state.flow.a_or / params.limit_a,
        "p_or": state.flow.p_or,
        "q_or": state.flow.q_or,
        "gen_p": state.flow.gen_p,
        "load_p": state.p_load,
        "v_or": state.flow.v_or,
        "actual_dispatch": state.dispatch.actual,
        "target_dispatch": state.dispatch.target,
        "storage_charge": state.dispatch.charge,
        "storage_power": state.dispatch.storage,
    }


TOLERANCES = {"rho": "rho", "v_or": "v"} | dict.fromkeys(("p_or", "q_or", "gen_p", "load_p"), "pq")
TOLERANCES |= dict.fromkeys(("actual_dispatch", "target_dispatch", "storage_charge", "storage_power"), "dispatch")


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.npz")), ids=lambda path: path.stem)
def test_recordings_of_grid2op_are_met_step_by_step(path, tmp_path):
    recorded = read_recording(path)
    world = World(write_world(tmp_path / "five", drawn=path.stem == "drawn"))
    grid, row = world.grid, 0
    episodes = [world.read_episode(str(n), int(s)) for n, s in zip(recorded["episode"], recorded["seed"], strict=True)]
    with jax.enable_x64(True):
        params = params_of(world, episodes, [nothing(grid)], np.float64)
        for number, (rows, end) in enumerate(zip(recorded["rows"], recorded["end"], strict=True)):
            state = begin(params, jnp.int32(number))
            for k in range(row, row + int(rows)):
                if k > row:
                    attack = Attack(recorded["attacked"][k], recorded["attack_steps"][k].astype(np.int32))
                    state, report = step(params, state, orders_of(action_at(recorded, k), grid), attack)
                    assert all(bool(getattr(report, flag)) == recorded[flag][k] for flag in FLAGS)
                over = not recorded["line_status"][k].any()
                assert over == (int(state.end) > 1)
                if over:
                    break
                assert k == row or np.array_equal(report.tripped, recorded["tripped"][k])
                for name, value in shown(state, params, grid).items():
                    if name in TOLERANCES:
                        atol = tolerance(f"grid2op_{TOLERANCES[name]}", float)
                        np.testing.assert_allclose(value, recorded[name][k], rtol=0, atol=atol, err_msg=name)
                    else:
                        np.testing.assert_array_equal(value, recorded[name][k], err_msg=name)
            assert not over or ENDS[int(state.end)] == end
            row += int(rows)


def actions_of(grid: Grid) -> list[Any]:
    """Nothing, lines switched, busbars of an end or of a load changed, both a load and all of a substation moved."""
    table = [nothing(grid)]
    for field, place in (
        [("switch_line", k) for k in range(len(LINES))]
        + [("change_bus", int(k)) for kind in KINDS[:2] for k in grid.place[kind]]
        + [("change_bus", np.flatnonzero(grid.sub_of_place == 4)), ("change_bus", grid.place["load"][:1])]
    ):
        action = nothing(grid)
        getattr(action, field)[place] = True
        table.append(action)
    strong = nothing(grid)
    strong.storage[:] = 8
    strong.redispatch[0] = 5
    strong.curtail[2] = 0.0
    return [*table, strong]


def test_the_contract_of_environments_holds(tmp_path):
    world = World(write_world(tmp_path / "five"))
    check_sim(sim_of(world, [world.read_episode(name) for name in world.episodes], actions_of(world.grid)))


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


def test_random_play_stays_finite_and_meets_every_end(tmp_path):
    world = World(write_world(tmp_path / "five"))
    sim = sim_of(world, [world.read_episode(name) for name in world.episodes], actions_of(world.grid))
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(1), 256))
    _, fine, ends = play(sim, states, jax.random.key(2), 200)
    assert fine and ends[0] > 0 and ends[2] > 0 and ends[4] > 0


def test_a_blackout_leaves_the_load_of_all_later_steps_unserved(tmp_path):
    world = World(write_world(tmp_path / "five"))
    episode = world.read_episode("calm")
    lonely = nothing(world.grid)
    lonely.change_bus[world.grid.place["load"][3]] = True
    sim = sim_of(world, [episode], [nothing(world.grid), lonely])
    state, _ = sim.init(jax.random.key(0))
    state = jax.jit(sim.step)(state, jnp.zeros((1, 1), int)).state
    out = jax.jit(sim.step)(state, jnp.ones((1, 1), int))
    assert out.info.terminated and ENDS[int(out.info.end)] == "island" and not out.obs.any()
    np.testing.assert_allclose(out.cost, [0, episode.rows["load_p"][2:].sum() / 12], rtol=1e-6)
    later = jax.jit(sim.step)(out.state, jnp.zeros((1, 1), int))
    assert later.info.terminated and not later.cost.any() and not later.obs.any()
