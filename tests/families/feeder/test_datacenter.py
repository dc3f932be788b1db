"""The data centre on a feeder: balances and money over 100,000 random and adversarial steps, and tricks that fail."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.devices.datacenter import OUTDOOR
from powerzoo_jax.envs import Sim
from powerzoo_jax.oracle.datacenter.policies import NO_CONTROL, RULE
from tests.families.feeder.fleet_episodes import Played, host, lane_actions, play
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

TASK = "dc_scheduling"
LANES = 256  # of one call
CALLS = 9  # 110,592 steps
TOL = tolerance("device_balance", "float32")
MONEY = tolerance("money_relative", "float32")
TRAIN, FINE, COOLING = range(3)


@cache
def sim() -> Sim:
    return powerzoo_jax.make(TASK, split="test")


def call(keys: jax.Array, actions: np.ndarray) -> tuple:
    state, steps = host(play(sim(), keys, jnp.asarray(actions, jnp.float32)))
    return state, jax.tree.map(lambda x: np.swapaxes(x, 0, 1), steps)


@cache
def run() -> Played:
    keys, actions = jax.random.split(jax.random.key(2), CALLS * LANES), lane_actions(sim(), CALLS * LANES)
    parts = [call(keys[k : k + LANES], actions[k : k + LANES]) for k in range(0, CALLS * LANES, LANES)]
    state, steps = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return Played(sim(), actions, state, *steps)


@pytest.mark.long
def test_every_episode_ends_at_the_horizon_with_finite_numbers_and_no_negative_cost():
    played = run()
    assert played.reward.shape[0] * played.reward.shape[1] >= 100_000
    assert not played.info.terminated.any() and played.info.truncated[:, -1].all()
    assert not played.info.truncated[:, :-1].any()
    assert np.isfinite(played.reward).all() and np.isfinite(played.cost).all() and (played.cost >= 0).all()


@pytest.mark.long
def test_the_feeder_head_delivers_load_and_data_centre_plus_losses():
    played = run()
    grid, scale = played.sim.params.grid, float(played.sim.params.load_ratio)
    load = played.column("load_factor") * scale * float(np.sum(np.asarray(grid.p_load, float)) * grid.base_mva)
    used = -played.info.p_mw[..., 0]
    gap = played.info.p_slack_mw - (load + used + played.info.p_loss_mw)
    left = played.info.pf_residual * float(grid.base_mva)
    assert (used > 0.5).all() and np.all(np.abs(gap) <= TOL * (load + used) + left)


@pytest.mark.long
def test_the_data_centre_draws_what_servers_auxiliaries_and_cooling_draw():
    """Spec 03: P = P_it 1.05 + P_cool; servers between all idle and all serving or training, fans of 50 kW at least."""
    played = run()
    state, used = played.states.datacenter, -played.info.p_mw[..., 0]
    np.testing.assert_allclose(used, 1.05 * state.it_mw[..., 0] + state.cool_mw[..., 0], rtol=TOL)
    busy = state.infer_gpus + state.job_gpus
    assert (busy <= 1000).all() and (state.cool_mw >= 0.05 * (1 - TOL)).all()
    full = 0.5 + (55 * 1000 + (1100 - 55) * 0.9 * busy[..., 0]) / 1e6
    assert (state.it_mw[..., 0] >= 0.555 * (1 - TOL)).all() and (state.it_mw[..., 0] <= full * (1 + TOL)).all()


def test_the_reward_is_the_bill_the_misses_the_backlog_and_the_heat_left():
    """Spec 05: -0.01 (price P dt + 500 misses); at the horizon 1 $ for every GPU hour left, and the heat of the room.

    Heat costs what the chiller would draw for it: 0.5 MWh/degC over a COP of 5 (1 - 0.04 per degC above 20), at the
    mean price of the episode.
    """
    played = run()
    bill = played.price * -played.info.p_mw[..., 0] * 0.5
    expected = -0.01 * (bill + 500 * played.channel("sla"))
    assert np.abs(played.reward[..., 0] - expected)[:, :-1].max() <= MONEY * np.abs(expected).max()
    outdoor = played.column(OUTDOOR)[:, -1]
    cop = 5 * np.clip(1 - 0.04 * np.maximum(outdoor - 20, 0), 0.4, 1.2)
    heat = played.price.mean(1) * 0.5 * (played.states.datacenter.t_zone_c[:, -1, 0] - 22) / cop
    backlog = 100 * (expected - played.reward[..., 0])[:, -1] - heat
    site = played.states.datacenter
    queued = sum((pool.gpus * pool.duration_min)[:, -1].sum(axis=(-2, -1)) for pool in (site.train, site.finetune))
    running = sum(
        (pool.held_gpus * 30 * np.arange(pool.held_gpus.shape[-1]) + pool.tail_gpu_min)[:, -1].sum(axis=(-2, -1))
        for pool in (site.train, site.finetune)
    )
    np.testing.assert_allclose(backlog, (queued + running) / 60, rtol=1e-3, atol=0.1)


def test_overtemperature_is_what_the_room_has_beyond_thirty_degrees():
    played = run()
    excess = np.maximum(played.states.datacenter.t_zone_c[..., 0] - 30, 0)
    np.testing.assert_allclose(played.channel("overtemp"), excess, atol=1e-4)
    assert excess.max() > 1


def constant(*action: float) -> np.ndarray:
    return np.broadcast_to(np.asarray(action, np.float32), (48, 1, 3)).copy()


def ruled(first: int = 0, **columns: float) -> np.ndarray:
    """The rule with some columns replaced from a step on."""
    actions = constant(*RULE)
    for name, value in columns.items():
        actions[first:, 0, {"train": TRAIN, "fine": FINE, "cooling": COOLING}[name]] = value
    return actions


def deferred(last: int) -> np.ndarray:
    """Start nothing until `last` steps before the horizon, then everything."""
    actions = ruled()
    actions[: 48 - last, 0, :2] = -1
    return actions


TRICKS = {
    "start nothing": constant(*NO_CONTROL),
    "start nothing in a warm room": constant(-1, -1, 1),
    "defer every job into the last two hours": deferred(4),
    "train nothing": ruled(train=-1),
    "stop starting six hours before the end": ruled(first=36, train=-1, fine=-1),
    "cool as much as possible": ruled(cooling=-1),
    "stop cooling": ruled(cooling=1),
}


@cache
def tricked() -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Mean return and costs of the rule and of every trick on the same days and jobs."""
    plans = {"rule": ruled(), **TRICKS}
    days = LANES // len(plans)
    keys = jnp.concatenate([jax.random.split(jax.random.key(5), days)] * len(plans))
    _, (_, reward, cost, _) = call(keys, np.repeat(np.stack(list(plans.values())), days, axis=0))
    total, costs = reward[..., 0].sum(axis=1), cost.sum(axis=1)
    rows = {name: slice(k * days, (k + 1) * days) for k, name in enumerate(plans)}
    return {n: float(total[r].mean()) for n, r in rows.items()}, {n: costs[r].mean(axis=0) for n, r in rows.items()}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_returns_less_than_the_rule_or_breaks_a_budget(trick):
    total, costs = tricked()
    budget = np.asarray(sim().spec.cost_budget)
    assert (costs["rule"] <= budget).all()
    assert total[trick] < total["rule"] or (costs[trick] > budget).any()


def test_only_a_room_that_is_too_warm_returns_more_than_the_rule_and_only_a_little():
    total, costs = tricked()
    better = {name for name in TRICKS if total[name] >= total["rule"]}
    assert better <= {"stop cooling"} and costs["stop cooling"][5] > 0.5
    assert total["stop cooling"] - total["rule"] < 0.1 * abs(total["rule"])
