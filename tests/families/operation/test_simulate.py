"""Simulation of actions: as Grid2Op's own `obs.simulate` was recorded, and of a whole table at once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.families.operation.simulate import simulate
from powerzoo_jax.families.operation.types import Attack
from tests.families.operation.oracle_world import orders_of, params_of, sim_of
from tests.families.operation.test_env import actions_of, begin, shown, step
from tests.references.grid2op import nothing
from tests.references.grid2op_five import write_world
from tests.references.grid2op_world import World
from tests.tolerances import tolerance
from tools.record_grid2op import action_at, read_recording

pytestmark = [pytest.mark.reference, pytest.mark.full]

RECORDED = Path(__file__).parents[2] / "recorded" / "grid2op"


@partial(jax.jit, static_argnums=3)
def tried(params: Any, state: Any, action: Any, horizon: int) -> Any:
    return simulate(SimpleNamespace(params=params), state, action, horizon)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["script", "random", "drawn"])
def test_simulations_of_grid2op_are_met(name, tmp_path):
    recorded, count = read_recording(RECORDED / f"{name}.npz"), 0
    world = World(write_world(tmp_path / "five", drawn=name == "drawn"))
    grid, row = world.grid, 0
    episodes = [world.read_episode(str(n), int(s)) for n, s in zip(recorded["episode"], recorded["seed"], strict=True)]
    with jax.enable_x64(True):
        params = params_of(world, episodes, [nothing(grid)], np.float64)
        for number, rows in enumerate(recorded["rows"]):
            state = begin(params, jnp.int32(number))
            for k in range(row, row + int(rows)):
                if k > row:
                    attack = Attack(recorded["attacked"][k], recorded["attack_steps"][k].astype(np.int32))
                    state, _ = step(params, state, orders_of(action_at(recorded, k), grid), attack)
                for j in np.flatnonzero(recorded["sim.row"] == k):
                    horizon = int(recorded["sim.horizon"][j])
                    found = tried(params, state, orders_of(action_at(recorded, j, "sim."), grid), horizon)
                    failed, count = bool(found.state.end > 1), count + 1
                    flags = (found.report.illegal, found.report.ambiguous, failed)
                    assert [*flags] == [recorded[f"sim.{key}"][j] for key in ("illegal", "ambiguous", "failed")]
                    if failed:
                        assert not found.rho.any()
                        continue
                    seen = shown(found.state, params, grid)
                    for key in ("topo_vect", "line_status"):
                        np.testing.assert_array_equal(seen[key], recorded[f"sim.{key}"][j], err_msg=key)
                    for key, kind in (("rho", "simulated_rho"), ("gen_p", "pq"), ("actual_dispatch", "dispatch")):
                        atol = tolerance(f"grid2op_{kind}", float)
                        np.testing.assert_allclose(seen[key], recorded[f"sim.{key}"][j], rtol=0, atol=atol, err_msg=key)
            row += int(rows)
    assert count == len(recorded["sim.row"])


def test_a_table_is_simulated_at_once_and_beyond_the_forecasts_is_refused(tmp_path):
    world = World(write_world(tmp_path / "five"))
    sim = sim_of(world, [world.read_episode("calm")], actions_of(world.grid))
    state, _ = sim.init(jax.random.key(0))
    every = jnp.arange(sim.env.dims.choice)
    found = jax.jit(jax.vmap(lambda k: simulate(sim, state, k)))(every)
    one = jax.jit(lambda k: simulate(sim, state, k))
    for k in (0, 3, len(every) - 1):
        alone = one(jnp.int32(k))
        np.testing.assert_allclose(found.rho[k], alone.rho, atol=tolerance("lane", np.float32))
        np.testing.assert_allclose(found.terms[k], alone.terms, rtol=1e-5)
    with pytest.raises(ValueError, match="horizon 3 is beyond the forecasts of this world"):
        simulate(sim, state, 0, horizon=3)
