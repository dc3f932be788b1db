"""Multi-agent tasks: what agents see and are told, and the numbers of the kernel in every framework."""

from __future__ import annotations

import jax
import numpy as np
import powerzoo
import pytest
from powerzoo.benchmarks import RuleBasedPolicy, evaluate
from powerzoo_compat import _host
from powerzoo_compat.pettingzoo_view import TaskPettingZooWrapper, parallel_env
from powerzoo_compat.powerzoo_api.envs.multi_agent import ALL
from powerzoo_compat.powerzoo_api.tasks.central import make_central_env

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline

TASKS = ("marl_der_arbitrage", "marl_uc")  # the others: test_public_tasks.py


@pytest.fixture(scope="module", params=TASKS)
def task(request):
    return request.param


@pytest.fixture(scope="module")
def parallel(task):
    return parallel_env(task, split="test")


def actions_of(env, agents, rng):
    spaces = {a: env.action_space(a) for a in agents}
    return {a: rng.uniform(s.low, s.high).astype(np.float32) for a, s in spaces.items()}


def test_spaces_are_the_same_objects_and_hold_what_is_seen(parallel):
    obs, _ = parallel.reset(seed=0)
    for agent in parallel.possible_agents:
        assert parallel.observation_space(agent) is parallel.observation_space(agent)
        assert parallel.observation_space(agent).contains(obs[agent])
        assert len(parallel.get_observation_fields(agent)) == obs[agent].size
    assert parallel.state_space.contains(parallel.state())


@pytest.mark.tiers("full", long=["marl_uc"])
def test_frameworks_and_the_kernel_agree_on_a_whole_episode(task, parallel):
    auto = powerzoo.make_task_env(task, split="test")
    sim, rng = powerzoo_jax.make(task, split="test"), np.random.default_rng(0)
    seen = [e.reset(seed=7)[0] for e in (auto, parallel)]
    state, obs = jax.jit(type(sim).init)(sim, jax.random.key(7))
    step, names = jax.jit(type(sim).step), parallel.possible_agents
    np.testing.assert_allclose(seen[0][names[0]], obs[0], atol=1e-6)
    boxes = auto._host.boxes
    while parallel.agents:
        actions = actions_of(parallel, names, rng)
        kernel = auto._host.kernel_action({names.index(a): x for a, x in actions.items()})
        out = step(sim, state, kernel)
        state = out.state
        one, two = auto.step(actions), parallel.step(actions)
        for got in (one, two):
            for a, name in enumerate(names):
                np.testing.assert_allclose(got[0][name], out.obs[a], atol=1e-6)
                assert got[1][name] == pytest.approx(float(out.reward[a]), rel=1e-6, abs=1e-6)
        assert one[3].pop(ALL) == bool(out.info.truncated) and one[3] == two[3]
    assert len(boxes) == len(names) and auto.time_step == sim.spec.horizon


@pytest.mark.long
def test_a_rule_scores_the_same_in_every_framework_as_in_the_core():
    auto = powerzoo.make_task_env("marl_der_arbitrage", split="test")
    envs = (auto, parallel_env("marl_der_arbitrage", split="test"), make_central_env("marl_der_arbitrage", "test"))
    rewards, costs = ([], [])
    for each in envs:
        record = evaluate(RuleBasedPolicy(each), each, 2, seed_start=42)
        rewards.append(record["episode_rewards"])
        costs.append(record["episode_costs"])
    core = evaluate_baseline(powerzoo_jax.make("marl_der_arbitrage", split="test"), "rule", n_episodes=2, seed=42)
    np.testing.assert_allclose(rewards, [core.episode_rewards] * 3, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(costs, [core.episode_costs] * 3, rtol=1e-4, atol=1e-4)


def test_every_agent_is_told_the_costs_and_its_own_fields(parallel):
    parallel.reset(seed=1)
    rng = np.random.default_rng(1)
    *_, infos = parallel.step(actions_of(parallel, parallel.possible_agents, rng))
    assert set(infos) == set(parallel.possible_agents)
    for info in infos.values():
        assert info["cost"] == pytest.approx(sum(info["costs"].values()))
        assert set(info["costs"]) == set(info["selected_constraint_names"]) and info["pf_converged"] is True
    first, second = (infos[a] for a in parallel.possible_agents[:2])
    assert first["constraint_costs"] is not second["constraint_costs"]


def test_an_absent_agent_is_idle_and_an_unknown_one_is_refused():
    one, two = (powerzoo.make_task_env("marl_der_arbitrage", split="test") for _ in range(2))
    for each in (one, two):
        each.reset(seed=3)
    _, rewards, *_, infos = one.step({"bat_1": np.array([0.5], np.float32)})
    idle = np.zeros(1, np.float32)
    same = two.step({"bat_0": idle, "bat_1": np.array([0.5], np.float32), "bat_2": idle})
    assert rewards == same[1] and infos["bat_0"]["power"] == 0.0 != infos["bat_1"]["power"]
    # no number stands for an absent agent: 0 is idle for a battery, but half the power of a plant
    assert np.isnan(one._host.kernel_action({0: idle})).tolist() == [[False], [True], [True]]
    with pytest.raises(KeyError, match="bat_2"):
        one.step({"bat_3": idle})
    with pytest.raises(ValueError, match="NaN"):
        one.step({"bat_0": np.array([np.nan])})
    with pytest.raises(TypeError, match="dict"):
        one.step(idle)


def test_the_modes_of_a_task_change_the_observation_alone():
    sizes = {mode: powerzoo.make_task_env("marl_der_arbitrage", obs_mode=mode) for mode in ("local", "global")}
    shapes = {mode: each.observation_space["bat_0"].shape for mode, each in sizes.items()}
    assert shapes == {"local": (12,), "global": (15,)}
    with pytest.raises(ValueError, match="local_plus_voltage"):
        powerzoo.make_task_env("marl_der_arbitrage", obs_mode="local_plus_voltages")


def test_commitment_comes_with_a_mask_of_legal_actions():
    _, infos = powerzoo.make_task_env("marl_uc", split="test").reset(seed=0)
    assert all(infos[a]["action_mask"].dtype == np.int8 and infos[a]["action_mask"].any() for a in infos)
    # PettingZoo would pass that key to the sampler of a Box
    _, infos = parallel_env("marl_uc", split="test").reset(seed=0)
    assert all("action_mask" not in infos[a] and infos[a]["legal_commitment"].any() for a in infos)


def test_a_grid_task_reports_load_and_money_by_the_names_of_the_contract():
    env = powerzoo.make_task_env("marl_uc", split="test")
    _, infos = env.reset(seed=0)
    assert infos["unit_0"]["total_load_mw"] == infos["unit_0"]["gen_cost"] == 0
    *_, infos = env.step({agent: np.array([0.5, 1.0], np.float32) for agent in env.possible_agents})
    info = infos["unit_0"]
    p = np.array([infos[agent]["unit_power_mw"] for agent in env.possible_agents]).ravel()
    money = 0.5 * np.array([14.0, 15, 30, 40, 10]) @ p
    assert info["total_load_mw"] == pytest.approx(p.sum(), rel=1e-5) and info["allocation_mode"] == "score"
    assert info["gen_cost"] == pytest.approx(money, rel=1e-5) and info["no_load_cost"] > 0
    assert info["operating_cost"] == pytest.approx(money + info["no_load_cost"], rel=1e-5)
    assert info["cost_per_mwh"] == pytest.approx(2 * money / p.sum(), rel=1e-5)
    assert info["startup_cost"] == info["shutdown_cost"] == info["reserve_shortfall"] == 0


def test_max_cycles_ends_an_episode_and_later_assignment_does_not():
    each = parallel_env("marl_der_arbitrage", max_cycles=3)
    each.reset(seed=0)
    each.max_cycles = 1
    rng, steps = np.random.default_rng(0), 0
    while each.agents:
        *_, truncations, _ = each.step(actions_of(each, each.agents, rng))
        steps += 1
    assert steps == 3 and all(truncations.values())


def test_a_single_agent_task_has_no_parallel_env_and_the_other_way_round():
    with pytest.raises(ValueError, match="one agent"):
        parallel_env("battery_arbitrage")
    with pytest.raises(ValueError, match="agents"):
        powerzoo.make_task_env("marl_opf", framework="gymnasium")


def test_the_wrapper_is_one_class_under_all_its_names():
    from powerzoo.tasks.interfaces.pettingzoo import TaskPettingZooWrapper as direct
    from powerzoo.wrappers import TaskPettingZooWrapper as lazily

    assert direct is lazily is TaskPettingZooWrapper


def test_splits_of_a_task_share_one_program():
    envs = [powerzoo.make_task_env("marl_der_arbitrage", split=s) for s in ("train", "val", "test")]
    _host.open_episode.clear_cache()
    _host.step_program.cache_clear()
    for each in envs:
        each.reset(seed=0)
        each.step({})
    (program,) = {one._host._advance for one in envs}
    assert (_host.open_episode._cache_size(), program._run._cache_size()) == (1, 1)
