"""Gymnasium for worlds of Grid2Op: its rules, ids, masks and chronics, on a world of five buses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from powerzoo_compat.grid2op_view import GridOperationEnv, make_env

from powerzoo_jax.families.operation.actions import to_grid2op
from powerzoo_jax.families.operation.grid2op.example import (
    E_MAX_MWH,
    EPISODES,
    HYDRO,
    LINES,
    STORAGE_MW,
    UNITS,
    WIND,
    write_world,
)
from powerzoo_jax.families.operation.types import ENDS, ISLAND

pytestmark = pytest.mark.full
NOTHING = 0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("five"))


@pytest.fixture(scope="module")
def env(world):
    return make_env(world, actions="discrete")


@pytest.mark.long
def test_it_is_a_gymnasium_environment(env):
    check_env(env, skip_render_check=True)


def test_a_chronics_is_played_by_name_and_the_seed_repeats_it(env):
    first, info = env.reset(seed=3, options={"time serie id": EPISODES[1]})
    assert info["chronics"] == EPISODES[1] and info["seed"] == 3
    again, _ = env.reset(seed=3, options={"time serie id": 1})
    np.testing.assert_array_equal(first, again)
    named = {env.reset()[1]["chronics"] for _ in range(12)}
    assert named == set(EPISODES)
    for wanted in ("clam", 2, 1.5, True):
        with pytest.raises(ValueError, match=r"calm|0 to 1"):
            env.reset(seed=0, options={"time serie id": wanted})
    with pytest.raises(ValueError, match="reset option"):
        env.reset(seed=0, options={"day": 1})


def test_an_illegal_action_is_masked_told_and_does_nothing(env):
    env.reset(seed=0, options={"time serie id": EPISODES[0]})
    opening = next(k for k in range(env.action_space.n) if to_grid2op(env.sim, k) == {"set_line_status": [(2, -1)]})
    closing = next(k for k in range(env.action_space.n) if to_grid2op(env.sim, k).get("set_line_status") == [(2, 1)])
    assert env.action_masks()[opening]
    *_, info = env.step(opening)
    assert not info["line_status"][2] and not info["illegal"]
    assert not env.action_masks()[closing]  # three steps of cooldown
    *_, info = env.step(closing)
    assert info["illegal"] and not info["line_status"][2] and info["rewards"]["redispatch"] == 0
    for action in (-1, env.action_space.n, 0.5):
        with pytest.raises(ValueError, match="not in"):
            env.step(action)


def test_simulate_foresees_the_step_and_leaves_the_episode_alone(env):
    calm = dataclasses.replace(env.sim, params=dataclasses.replace(env.sim.params, opponent=None))
    env = GridOperationEnv(calm, env.episodes)
    env.reset(seed=0, options={"time serie id": EPISODES[0]})
    before = env.state
    found = env.simulate(NOTHING)
    assert env.state is before
    *_, info = env.step(NOTHING)
    # the forecast of the world is near its next row; nobody foresees an attack
    np.testing.assert_allclose(found.rho, info["rho"], atol=0.1)
    assert ENDS[int(found.state.end)] == info["end"] == "running"


def test_real_numbers_are_those_of_the_box(world):
    env = make_env(world, actions="box")
    # curtailment of the plant, redispatch of what can be, storage: sorted by key
    assert env.action_space.shape == (4,) and env.action_space.high[-1] == STORAGE_MW
    orders = env.orders([0.5, 2.0, -1.0, 4.0])
    assert orders.curtail[WIND] == 0.5 and orders.redispatch.tolist() == [2.0, -1.0, 0.0] and orders.storage == [4.0]
    assert len(UNITS) == 3 and HYDRO == 1
    env.reset(seed=0, options={"time serie id": EPISODES[0]})
    charge = float(env.state.dispatch.charge[0])
    *_, info = env.step([1.0, 0.0, 0.0, 6.0])
    assert not info["ambiguous"] and info["end"] == "running"
    # 5 minutes at 6 MW, .9 of it stored, less .12 MW at rest; it starts half full
    gained = float(env.state.dispatch.charge[0]) - charge
    assert gained == pytest.approx((6 * 0.9 - 0.12) / 12, abs=1e-6) and charge == pytest.approx(
        E_MAX_MWH / 2 + 0.01, abs=0.011
    )
    *_, info = env.step([1.0, 1000.0, 0.0, 0.0])
    assert info["ambiguous"]  # beyond the ramp, so that the whole action is dropped
    for action in ([0.0] * 3, [np.nan, 0, 0, 0]):
        with pytest.raises(ValueError, match="not in"):
            env.step(action)


@pytest.mark.long
def test_a_cut_off_substation_ends_the_episode(world):
    cut = [{"set_line_status": [(k, -1)]} for k, name in enumerate(LINES) if name.startswith("2_") or "_2_" in name]
    env = make_env(world, actions=cut, episodes=EPISODES[0])
    env.reset(seed=0)
    ended = False
    for action in range(1, env.action_space.n):
        obs, _, ended, _, info = env.step(action)
        if ended:
            break
    assert ended and info["end"] == ENDS[ISLAND] and not obs.any()
    assert info["costs"]["unserved_energy"] > 0
