"""Every public task: other projects' checkers with warnings as errors, every info of an episode, equal seeds, and the
same numbers in every view. One program a task serves all of it.
"""

from __future__ import annotations

import json
import types
import warnings

import jax
import numpy as np
import powerzoo
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, render_test, seed_test
from pettingzoo.test.seed_test import parallel_seed_test
from pettingzoo.test.state_test import state_test
from powerzoo.tasks import (
    PUBLIC_TASKS,
    audit_env,
    get_public_task_info,
    get_task_class,
    make_task,
    make_task_env,
)
from powerzoo_compat._host import Host, to_unit
from powerzoo_compat.pettingzoo_aec import TaskAECEnv
from powerzoo_compat.pettingzoo_view import (
    OrderEnforcingWrapper,
    TaskPettingZooWrapper,
    aec_to_parallel,
    parallel_to_aec,
)
from powerzoo_compat.powerzoo_api.envs.multi_agent import ALL, MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.tasks.central import CentralisedEnv
from powerzoo_compat.vector_view import TaskVectorEnv

from tests.compat.dialects import check_dialects
from tests.tolerances import tolerance

SNIPPET = """
from powerzoo.tasks import make_task_env
env = make_task_env("<task>", split="train")
obs, info = env.reset(seed=0)
obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
info["is_safe"], info["pf_converged"], info["cost_sum"]
"""
LOOP = """
env = make_task_env("<task>", split="test", framework="pettingzoo")
obs, infos = env.reset(seed=0)
while env.agents:
    obs, rewards, terminations, truncations, infos = env.step({a: env.action_space(a).sample() for a in env.agents})
"""
CYCLES = 3
SAME = 1e-6
ROUNDED = 1e-4  # of another batch size: an overload in MW lies between flows of hundreds, a lack of 1e-6 MW costs VOLL
MARGINAL = 1e-2  # of a profit: what the freedom of a marginal unit, a thousandth of the base power, is worth to it
LONG = ("opf_118_7d", "marl_ev_v2g")
LARGE = ("opf_118", "opf_118_7d")  # 54 agents: what the dialects do with five they do with these
IN_CI = ("battery_arbitrage",)  # whose kernel test_trajectory compares
DAY = 48  # steps of an episode of the long tasks here: a week repeats the day
SINGLE = [task for task in PUBLIC_TASKS if get_task_class(task).agent_mode == "single"]
MULTI = [task for task in PUBLIC_TASKS if get_task_class(task).agent_mode == "multi"]


def views_of(sim):
    """PettingZoo's two factories over one simulation, as a module of its own would offer them."""

    def parallel_env(max_cycles=None, render_mode=None):
        return TaskPettingZooWrapper(MultiAgentTaskEnv(sim, render_mode=render_mode), max_cycles)

    def env(**kwargs):
        return OrderEnforcingWrapper(TaskAECEnv(parallel_env(**kwargs)))

    return types.SimpleNamespace(env=env, parallel_env=parallel_env)


def day_of(task, split="test"):
    """A task whose episodes last no longer than DAY steps."""
    return make_task(task, split, **({"max_steps": DAY} if task in LONG else {}))


def check_parallel_and_aec(sim):
    views = views_of(sim)
    parallel_api_test(views.parallel_env(), num_cycles=CYCLES)
    parallel_api_test(aec_to_parallel(views.env()), num_cycles=CYCLES)
    api_test(views.env(max_cycles=CYCLES), num_cycles=CYCLES + 1)
    seed_test(views.env, CYCLES)
    parallel_seed_test(views.parallel_env, CYCLES)
    max_cycles_test(views)
    render_test(views.env)
    state_test(views.env(), views.parallel_env(), num_cycles=CYCLES)
    # a converted environment warns of its own dict properties, which the checker reads
    warnings.filterwarnings("ignore", message="The base environment")
    warnings.filterwarnings("ignore", message=".*(observation|action)_spaces.*")
    api_test(parallel_to_aec(views.parallel_env(max_cycles=CYCLES)), num_cycles=CYCLES + 1)


def episode(env, multi, seed):
    """Observations, rewards, costs and ends of every step, stacked over agents."""
    policy = np.random.default_rng(1)
    obs, info = env.reset(seed=seed)
    rows = [_row(obs, 0.0, info, False, multi)]
    while not rows[-1][-1]:
        if multi:
            boxes = {a: env.action_space(a) for a in env.possible_agents}
            action = {a: policy.uniform(box.low, box.high).astype(np.float32) for a, box in boxes.items()}
        else:
            action = policy.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
        obs, reward, terminated, truncated, info = env.step(action)
        over = any(terminated.values()) or any(truncated.values()) if multi else terminated or truncated
        rows.append(_row(obs, reward, info, over, multi))
    return rows


def check_lanes(sim, rows):
    """The first of two lanes of the VectorEnv repeats the environment of its seed."""
    envs, policy = TaskVectorEnv(sim, 2, autoreset_mode="Disabled", unit_actions=False), np.random.default_rng(1)
    (obs, _), box = envs.reset(seed=5), envs.single_action_space
    same = tolerance("view", np.float32)
    np.testing.assert_allclose(obs[0], rows[0][0], rtol=same, atol=same)
    for seen, paid, costs, over in rows[1:]:
        action = policy.uniform(box.low, box.high).astype(np.float32)
        obs, rewards, terminated, truncated, infos = envs.step(np.stack([action, action]))
        np.testing.assert_allclose(obs[0], seen, rtol=same, atol=same)
        for lane, one in ((rewards[0], paid[0]), (infos["constraint_costs"][0], costs)):
            np.testing.assert_allclose(lane, one, rtol=same, atol=ROUNDED)
        assert bool(terminated[0] or truncated[0]) == over


def check_kernel(sim, rows):
    """The kernel repeats the rows of a view, in a program of its own: to the rounding of the order of its sums.

    A market's optimum is found to a gap, which leaves its marginal units as much freedom in any two programs.
    """
    policy, box = np.random.default_rng(1), Host(sim).boxes
    given = [[policy.uniform(one.low, one.high).astype(np.float32) for one in box] for _ in rows[1:]]
    actions = np.zeros((len(given), sim.env.dims.agent, sim.env.dims.act), np.float32)
    for step, row in enumerate(given):
        for agent, (value, one) in enumerate(zip(row, box, strict=True)):
            actions[step, agent, : value.size] = to_unit(value, one)

    def run(key, actions):
        def step(state, action):
            out = sim.step(state, action)
            return out.state, (out.obs, out.reward, out.cost)

        first, obs = sim.init(key)
        return obs, jax.lax.scan(step, first, actions)[1]

    first, (obs, reward, cost) = jax.jit(run)(jax.random.key(5), actions)
    cleared = sim.spec.family == "market"
    same = tolerance("opf_dispatch_pu" if cleared else "view", np.float32)
    np.testing.assert_allclose(np.ravel(first), rows[0][0], rtol=same, atol=same)
    for k, (seen, paid, costs, _) in enumerate(rows[1:]):
        np.testing.assert_allclose(np.ravel(obs[k]), seen, rtol=same, atol=same)
        np.testing.assert_allclose(reward[k], paid, rtol=MARGINAL if cleared else same, atol=ROUNDED)
        np.testing.assert_allclose(cost[k], costs, rtol=same, atol=ROUNDED)


def _row(obs, reward, info, over, multi):
    told = next(iter(info.values())) if multi else info
    seen = np.concatenate(list(obs.values())) if multi else obs
    paid = np.array([reward.get(a, 0.0) for a in obs]) if isinstance(reward, dict) else np.full(1, reward)
    return seen, paid, told["constraint_costs"], bool(over)


def assert_equal(one, two, exactly):
    assert len(one) == len(two)
    tolerance = 0.0 if exactly else SAME
    for a, b in zip(one, two, strict=True):
        for x, y in zip(a[:3], b[:3], strict=True):
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
        assert a[3] == b[3]


@pytest.mark.tiers("long", full=["battery_arbitrage"])
@pytest.mark.parametrize("task", SINGLE)
def test_a_single_agent_task_passes_the_checker_and_repeats_itself(task, capsys):
    made = day_of(task)
    env = made.create_env()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)
    assert audit_env(env) == []
    alone = episode(SingleAgentEnv(made.sim), False, 5)
    assert_equal(episode(env, False, 5), alone, exactly=True)
    check_lanes(made.sim, alone)
    if task not in IN_CI:
        check_kernel(made.sim, alone)
    exec(SNIPPET.replace("<task>", task), {})
    for split in ("train", "val"):
        assert audit_env(day_of(task, split).create_env("gymnasium")) == []


@pytest.mark.tiers("long", quick=["marl_opf", "marl_uc"])
@pytest.mark.parametrize("task", MULTI)
def test_a_multi_agent_task_passes_the_checkers_and_agrees_with_itself_in_all_views(task, capsys):
    made = day_of(task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_parallel_and_aec(made.sim)
    auto, views = made.create_env(), views_of(made.sim)
    assert audit_env(auto) == []
    parallel, again = views.parallel_env(), views.parallel_env()
    first = episode(parallel, True, 5)
    assert_equal(first, episode(again, True, 5), exactly=True)
    check_kernel(made.sim, first)
    assert_equal(first, _without_all(auto), exactly=False)
    assert_equal(first, episode(aec_to_parallel(views.env()), True, 5), exactly=False)
    _check_central(CentralisedEnv(made.create_env()), first)
    if task not in LARGE:
        check_dialects(task, **made.keywords)
    if task not in LONG:
        exec(LOOP.replace("<task>", task), {"make_task_env": make_task_env})
    for split in ("train", "val"):
        other = day_of(task, split)
        assert audit_env(other.create_env(), steps=2 if task in LARGE else None) == []
        assert audit_env(other.create_env("pettingzoo"), steps=2) == []
    assert audit_env(parallel, steps=2) == []


def _without_all(auto):
    rows = episode(auto, True, 5)
    assert ALL in auto.step({})[2]
    return rows


def _check_central(env, rows):
    policy = np.random.default_rng(1)
    obs, _ = env.reset(seed=5)
    np.testing.assert_array_equal(obs, rows[0][0])
    for seen, paid, costs, over in rows[1:]:
        obs, reward, terminated, truncated, info = env.step(policy.uniform(env.action_space.low, env.action_space.high))
        np.testing.assert_allclose(obs, seen, atol=1e-6)
        assert reward == pytest.approx(paid.mean(), rel=1e-6, abs=1e-6) and (terminated or truncated) == over
        np.testing.assert_allclose(info["constraint_costs"], costs, rtol=1e-6, atol=1e-6)


def test_every_public_task_has_a_card_that_json_takes():
    for task in PUBLIC_TASKS:
        card = json.loads(json.dumps(get_public_task_info(task)))
        assert card["task_id"] == task and card["public"] and {"train", "val", "test"} <= set(card["splits"])
        agents = len(card["agents"])
        assert card["agent_mode"] == ("single" if agents == 1 else "multi")
        shapes = card["observation_shape"]
        assert (shapes if agents == 1 else shapes[card["agents"][0]]) and card["description"]
    assert powerzoo.list_public_tasks() == list(PUBLIC_TASKS)
