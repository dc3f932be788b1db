"""Six values a step: costs as shares of budgets or by channel, and what keeps the limit of their sum."""

from __future__ import annotations

import numpy as np
import pytest
from powerzoo import benchmarks, wrappers
from powerzoo_compat.gymnasium_view import make_env
from powerzoo_compat.powerzoo_api.envs.constraint import ConstraintSpec
from powerzoo_compat.safety_view import make_safe_env, make_safe_vec_env

from powerzoo_jax.tasks.score import summary

BUDGETS = {"sla": 2.0, "overtemp": 0.5, "power_deficit": 0.15, "dropped_gpu_h": 60.0}  # of the task's card


@pytest.mark.full
@pytest.mark.parametrize("vector_cost", [False, True])
def test_the_cost_is_what_the_info_says(vector_cost):
    env = make_safe_env("dc_microgrid_safe", split="test", vector_cost=vector_cost, max_steps=24)
    obs, info = env.reset(seed=0)
    env.action_space.seed(0)
    assert dict(zip(env.cost_names, env.cost_thresholds, strict=True)) == BUDGETS and env.cost_threshold == 1.0
    truncated, total, steps = False, 0.0, 0
    while not truncated:
        obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
        assert isinstance(reward, float) and not terminated and env.observation_space.contains(obs)
        assert np.shape(cost) == ((len(env.cost_names),) if vector_cost else ())
        total, steps = total + np.asarray(cost, float), steps + 1
    used = {name: info["episode_summary"]["costs"][name] for name in env.cost_names}
    assert steps == 24 and sum(used.values()) > 0 and np.all(np.asarray(total) >= 0)
    by_hand = list(used.values()) if vector_cost else sum(used[name] / BUDGETS[name] for name in used)
    np.testing.assert_allclose(total, by_hand, rtol=1e-5, atol=1e-6)


def test_no_constant_policy_within_the_limit_breaks_a_budget():
    """The sum in mixed units let 7 of 24 pass that broke a budget."""
    lanes = 24
    envs = make_safe_vec_env("dc_microgrid_safe", lanes, split="test")
    envs.reset(seed=[0] * lanes)
    actions = np.random.default_rng(0).uniform(-1, 1, envs.action_space.shape).astype(np.float32)
    total = np.zeros(lanes)
    for _ in range(envs.unwrapped._host.sim.spec.horizon):
        _, _, cost, _, truncated, infos = envs.step(actions)
        total += cost
    assert truncated.all()
    used = np.stack([infos["episode_costs"][name] for name in BUDGETS], axis=-1)
    keeps_all = np.all(used <= np.array(list(BUDGETS.values())), axis=1)
    assert keeps_all[total <= envs.cost_threshold].all() and not keeps_all.all()
    np.testing.assert_allclose(total, (used / np.array(list(BUDGETS.values()))).sum(1), rtol=1e-4)


@pytest.mark.full
def test_a_batch_tells_what_its_single_environment_tells():
    one, batch = make_safe_env("dc_microgrid_safe", max_steps=4), make_safe_vec_env("dc_microgrid_safe", 2, max_steps=4)
    one.reset(seed=5), batch.reset(seed=[3, 5])
    for _ in range(4):
        action = one.action_space.sample()
        _, reward, cost, _, _, info = one.step(action)
        _, rewards, costs, _, _, infos = batch.step(np.stack([action * 0, action]))
        assert (cost, reward) == pytest.approx((costs[1], rewards[1]), rel=1e-5, abs=1e-6)
        for name in BUDGETS:
            assert infos["costs"][name][1] == pytest.approx(info["costs"][name], rel=1e-5, abs=1e-6)
            assert infos["episode_costs"][name][1] == pytest.approx(
                info["episode_summary"]["costs"][name], rel=1e-5, abs=1e-6
            )


def test_safe_wrappers_count_shares_and_leave_the_sums_alone():
    """Lagrangian learners are handed one cost and one limit; the keys of the contract keep their units."""
    env = make_env("dc_microgrid_safe", max_steps=8)
    safe = wrappers.SafeRLWrapper(env)
    safe.reset(seed=0)
    for _ in range(8):
        *_, info = out = safe.step(safe.action_space.sample())
        shares = [info["costs"][name] / budget for name, budget in BUDGETS.items()]
        assert out[2] == info["cost"] == pytest.approx(sum(shares), rel=1e-5)
        assert info["selected_cost_sum"] == pytest.approx(sum(info["costs"].values()), rel=1e-5)
    assert safe.cost_threshold == 1.0 and wrappers.SafeRLWrapper(env, 0.0).cost_threshold == 0.0


def test_a_budget_of_zero_is_divided_by_its_least():
    env = make_env("dc_microgrid_safe", max_steps=8)
    strict = wrappers.TaskCMDPWrapper(env, ConstraintSpec(("sla", "power_deficit"), (2.0, 0.0), (1.0, 1.0)))
    info = {"selected_constraint_costs": np.array([1.0, 0.002], np.float32)}
    assert wrappers.GymnasiumSafeWrapper(strict)._told(info)["cost"] == pytest.approx(1 / 2 + 0.002 / 1e-3)


def test_no_sum_makes_up_for_a_broken_budget_of_zero():
    reward, cost = np.zeros(2), np.array([[0.4, 0.0], [0.2, 0.1]])
    told = summary(reward, cost, ("resource", "unserved_energy"), (0.5, 0.0), total=1.0)
    assert not told["feasible"] and told["cost_violation_rate"] == 0.5
    assert summary(reward, cost * [1, 0], ("resource", "unserved_energy"), (0.1, 0.0), total=1.0)["feasible"]


def test_evaluation_by_a_sum_takes_the_sum_of_the_contract():
    env = make_env("battery_arbitrage", max_steps=4)
    record = benchmarks.evaluate(lambda obs: np.ones(1, np.float32), env, 1, cost_threshold=0.0)
    assert record["mean_episode_cost"] > 0 and not record["feasible"]
