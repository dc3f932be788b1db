"""The info dict: every key of the contract, with its exact Python type, at reset and at every step."""

from __future__ import annotations

import functools
import json
import math

import jax
import numpy as np
import powerzoo
import pytest
from powerzoo.tasks import PUBLIC_TASKS, get_task_class
from powerzoo_compat import _host
from powerzoo_compat._host import Host, Reading
from powerzoo_compat._packed import packed_apart, unpack
from powerzoo_compat.powerzoo_api.envs.info import InfoBuilder

import powerzoo_jax

CHANNELS = ("voltage_violation", "thermal_overload", "unserved_energy", "resource")
TYPES = {
    bool: "is_safe pf_converged cost_exception is_diverged voltage_collapse is_peak",
    int: "pf_iterations episode_step step_within_day start_day_id delta_t_minutes hour",
    float: "cost_sum p_slack_MW q_slack_MVAr pf_residual reward_usd reward_scale selected_cost_sum cost soc power "
    "requested_p_mw price profit_usd local_voltage p_loss_MW v_min_actual v_max_actual battery_0/cost_resource "
    + " ".join(f"cost_{c}" for c in CHANNELS),
    str: "episode_day split",
    tuple: "constraint_names selected_constraint_names",
    dict: "reward_components resources costs episode_summary",
    np.ndarray: "constraint_costs selected_constraint_costs",
}
TYPE_OF = {key: kind for kind, keys in TYPES.items() for key in keys.split()}


def rollout(env, policy, seed=0, options=None):
    obs, info = env.reset(seed=seed, options=options)
    steps = [(obs, 0.0, False, False, info)]
    while not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(policy(len(steps))))
    return steps


@pytest.fixture(scope="module")
def steps():
    env = powerzoo.make_task_env("battery_arbitrage", split="test")
    rng = np.random.default_rng(0)
    return rollout(env, lambda _: rng.uniform(-0.2, 0.2, 1))


@pytest.fixture(scope="module")
def blackout():
    """A feeder loaded beyond its nose: the day fails before its end."""
    return rollout(powerzoo.make_task_env("battery_arbitrage", max_load_ratio=7.0), lambda _: np.zeros(1), seed=3)


def form(value):
    """Keys, lengths, types and shapes of an info dict, without its numbers."""
    if isinstance(value, dict):
        return {key: form(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return type(value), [form(inner) for inner in value]
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)


@pytest.mark.parametrize("days", ["steps", "blackout"])
def test_the_form_of_the_info_never_changes_from_reset_to_the_last_step(days, request):
    """Recorders of data sets stack the infos of an episode leaf by leaf."""
    first, *others = [form(step[4]) for step in request.getfixturevalue(days)]
    assert all(other == first for other in others)


def readings_of(host, count):
    """An opening and steps of the shapes and dtypes of a task, filled with any numbers: nothing is compiled."""
    env, (day, *soc) = host.sim.env, host.choice(None)
    program = functools.partial(_host.open_episode, env)
    state, opening = jax.eval_shape(program, host.sim.params, _host.seed_key(0), np.int32(day), *soc)
    params = jax.eval_shape(packed_apart, host.sim.params)
    step = jax.eval_shape(functools.partial(_host.advance, env), params, state, host.kernel_action({}))[1]
    rng = np.random.default_rng(0)

    def filled(packed):
        made = jax.tree.map(lambda x: rng.integers(0, 2, x.shape).astype(x.dtype), packed)
        return unpack(made.words, made.layout)

    (obs, cost, info), _ = filled(opening)
    return [Reading(obs, np.zeros(len(obs), obs.dtype), cost, info), *(Reading(*filled(step)) for _ in range(count))]


@pytest.mark.tiers("full", quick=["marl_opf"], long=["marl_ders_benchmark", "dc_scheduling", "gencos_bidding"])
@pytest.mark.parametrize("task", PUBLIC_TASKS)
def test_the_form_of_the_info_of_a_task_is_one_in_every_view(task, monkeypatch):
    """What a value is follows from the shapes and dtypes of a step, so that a step of any numbers tells it."""
    multi = get_task_class(task).agent_mode != "single"
    for framework in ("auto", "pettingzoo") if multi else ("gymnasium",):
        env = powerzoo.make_task_env(task, framework=framework)
        host = env.unwrapped._env._host if framework == "pettingzoo" else env.unwrapped._host
        first, *others = readings_of(host, 3)
        queue = iter(others)
        opening = first, int(host._start_rows[0])
        monkeypatch.setattr(host, "reset", lambda seed, choice, opening=opening: opening)
        monkeypatch.setattr(host, "step", lambda action, queue=queue: next(queue))
        told = [env.reset(seed=0)[1]]
        while len(told) < 4 and not (multi and not env.agents):
            action = {a: env.action_space(a).sample() for a in env.agents} if multi else env.action_space.sample()
            told.append(env.step(action)[-1])
        assert len(told) > 1 and all(form(info) == form(told[0]) for info in told)
        assert len({jax.tree.structure(info) for info in told}) == 1


def leaves(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def test_every_key_has_its_exact_type_at_reset_and_at_every_step(steps):
    for _, _, _, _, info in steps:
        assert {key: type(info[key]) for key in TYPE_OF} == TYPE_OF


def test_no_other_key_appears_and_none_comes_or_goes(steps):
    for *_, info in steps:
        assert info.keys() == TYPE_OF.keys()
        assert jax.tree.structure(info) == jax.tree.structure(steps[0][-1])


def test_step_results_are_python_values(steps):
    for obs, reward, terminated, truncated, _ in steps:
        assert (obs.dtype, type(reward), type(terminated), type(truncated)) == (np.float32, float, bool, bool)


def test_info_holds_plain_values_only(steps):
    for *_, info in steps:
        kinds = {type(leaf) for leaf in leaves(info)}
        assert kinds <= {bool, int, float, str, np.ndarray}
        json.dumps({k: v for k, v in info.items() if not isinstance(v, np.ndarray)}, allow_nan=False)


def test_costs_agree_with_each_other(steps):
    for *_, info in steps:
        assert info["constraint_names"] == CHANNELS
        assert info["constraint_costs"].dtype == np.float32
        assert info["constraint_costs"].tolist() == [info[f"cost_{c}"] for c in CHANNELS]
        assert info["cost_sum"] == sum(info["constraint_costs"].tolist())
        assert info["selected_constraint_names"] == ("resource",)
        assert info["costs"] == {"resource": info["cost"]} == {"resource": info["selected_cost_sum"]}


def test_the_money_adds_up(steps):
    for _, reward, _, _, info in steps:
        assert info["reward_usd"] == pytest.approx(sum(info["reward_components"].values()), abs=1e-9)
        assert reward == pytest.approx(info["reward_usd"] * info["reward_scale"], rel=1e-6, abs=1e-6)


def test_the_clock_tells_the_executed_step(steps):
    infos = [info for *_, info in steps]
    assert [i["episode_step"] for i in infos] == list(range(49))
    assert [i["step_within_day"] for i in infos] == [0, *range(48)]
    assert [i["hour"] for i in infos[1:]] == [k // 2 for k in range(48)]
    assert all(i["is_peak"] == (9 <= i["hour"] <= 20) for i in infos)
    assert {i["episode_day"] for i in infos} == {infos[0]["episode_day"]}


def test_the_summary_sums_what_the_steps_said(steps):
    for k in range(len(steps)):
        so_far, summary = steps[: k + 1], steps[k][-1]["episode_summary"]
        assert summary["l"] == k
        assert summary["r"] == pytest.approx(sum(s[1] for s in so_far))
        for name, total in summary["costs"].items():
            assert total == pytest.approx(sum(s[-1][f"cost_{name}"] for s in so_far[1:]))
        assert summary["metrics"]["min_voltage_pu"] == min(s[-1]["v_min_actual"] for s in so_far)
    assert steps[-1][-1]["episode_summary"]["metrics"]["cycles"] > 0


def test_an_undeliverable_command_costs_but_stays_safe():
    env = powerzoo.make_task_env("battery_arbitrage")
    env.reset(seed=0, options={"soc": 0.9})
    *_, info = env.step(np.array([-0.2], np.float32))
    assert info["cost_resource"] == info["battery_0/cost_resource"] == pytest.approx(0.2)
    assert (info["power"], info["requested_p_mw"], info["is_safe"]) == (0.0, pytest.approx(-0.2), True)


def test_a_narrow_band_is_unsafe():
    env = powerzoo.make_task_env("battery_arbitrage", v_min=0.99)
    _, info = env.reset(seed=0)
    assert info["cost_voltage_violation"] > 0
    assert not info["is_safe"]


def test_a_failed_solve_terminates_with_finite_values(blackout):
    obs, reward, terminated, truncated, info = blackout[-1]
    assert (terminated, truncated, info["is_safe"]) == (True, False, False)
    assert info["voltage_collapse"] or not info["pf_converged"]
    assert reward < 0 < info["cost_unserved_energy"]
    assert np.isfinite(obs).all()
    assert all(math.isfinite(x) for x in leaves(info) if isinstance(x, float))
    assert info["episode_summary"]["l"] == len(blackout) - 1


def test_info_objects_are_fresh_copies(steps):
    first, second = steps[0][-1], steps[1][-1]
    for key in ("constraint_costs", "resources", "reward_components", "costs", "episode_summary"):
        assert first[key] is not second[key]
    steps[0][0][:] = 0
    assert np.any(steps[1][0] != 0)


@pytest.mark.tiers("full", quick=["comparison_tso_centralized"], long=["gencos_bidding"])
@pytest.mark.parametrize("task", ["gencos_bidding", "comparison_tso_centralized", "dc_microgrid", "dc_microgrid_safe"])
def test_limits_that_a_task_does_not_have_are_kept_at_zero(task):
    """A DC network holds no voltage, an islanded site no line: the contract's keys are there, and say 0."""
    _, info = powerzoo.make_task_env(task).reset(seed=0)
    info = info.get("genco_0", info)
    absent = {"voltage_violation", "thermal_overload", "resource"} - set(info["constraint_names"])
    assert absent and all(type(info[f"cost_{name}"]) is float and info[f"cost_{name}"] == 0.0 for name in absent)
    assert info["cost_sum"] == pytest.approx(float(info["constraint_costs"].sum()))


@pytest.mark.parametrize("task", powerzoo_jax.list_tasks())
def test_every_task_reports_the_channels_of_the_contract(task):
    """A channel that a task lacks stands at 0 beside those that it has, which pass their values on."""
    builder = InfoBuilder(Host(powerzoo_jax.make(task)))
    cost = np.arange(1.0, 1 + len(builder.names))
    told = builder.costs(cost.tolist())
    for name in ("thermal_overload", "voltage_violation", "resource"):
        expected = cost[builder.names.index(name)] if name in builder.names else 0.0
        assert type(told[f"cost_{name}"]) is float and told[f"cost_{name}"] == expected
    assert told["cost_sum"] == cost.sum()
