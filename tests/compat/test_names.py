"""The package-level names of the contract, on one task: registry, cards, wrappers, training front end, benchmarks."""

from __future__ import annotations

import dataclasses
import json

import gymnasium
import numpy as np
import powerzoo
import pytest
from powerzoo import benchmarks, case, data, rl, tasks, wrappers
from powerzoo.tasks.rewards import get_reward_function, list_reward_types

import powerzoo_jax

TASK = "battery_arbitrage"
SEEDS = 2
SETTINGS = """
[task]
name = "battery_arbitrage"
split = "test"
[wrappers]
normalize = true
safe_rl = true
[reward]
type = "safety_only"
penalty = 2.0
"""
CARD_KEYS = {
    *("task_id", "name", "description", "public", "version", "difficulty", "agent_mode", "agents", "route"),
    *("frameworks", "grid_type", "grid_case", "delta_t_minutes", "default_episode_horizon_steps"),
    *("default_observation_mode", "supported_observation_modes", "observation_shape", "action_shape", "has_splits"),
    *("splits", "split_dates", "eval_protocol", "constraint_names", "constraint_units", "cost_thresholds"),
    *("cost_threshold", "fallback_weights", "reward_scale", "reward_unit", "reward_contract", "cost_contract"),
    *("action_contract", "training_contract", "benchmark_family", "data_sources", "currency_note", "baselines"),
}


@pytest.fixture(scope="module")
def env():
    return powerzoo.make_task_env(TASK, split="test")


def idle(env):
    return np.zeros(env.action_space.shape, np.float32)


def test_a_card_has_every_key_and_says_what_the_environment_is(env):
    card = tasks.get_public_task_info(TASK)
    assert card.keys() >= CARD_KEYS and json.loads(json.dumps(card)) == card
    assert (card["observation_shape"], card["action_shape"]) == ([203], [1])
    assert card["cost_thresholds"] == {"resource": 0.5} and card["delta_t_minutes"] == 30
    # the calendar of the specification: days 26 to the end of every month are for testing
    assert card["split_dates"]["test"] == {"first": "2016-01-26", "last": "2016-12-31", "days": 66}
    card["agents"].append("nobody")
    assert tasks.get_task_info(TASK)["agents"] == ["battery_0"]
    assert tasks.get_task_info("tso")["task_id"] == "comparison_tso_centralized"
    with pytest.raises(ValueError, match="not public"):
        tasks.get_public_task_info("marl_ev_v2g_1d")


def test_a_task_object_knows_its_budgets_and_builds_its_env():
    task = tasks.make_task("dc_microgrid", split="val", constraint_tightness="strict")
    assert task.constraint_spec() == tasks.ConstraintSpec(
        ("sla", "overtemp", "power_deficit"), (1.0, 0.2, 0.05), (1.0,) * 3
    )
    assert task.effective_cost_threshold == pytest.approx(1.25) == task.constraint_spec().scalar_threshold
    assert task.create_env().spec.id == "PowerZoo/DCMicrogrid-v1" and "workload_shock" in task.SPLITS
    assert task.eval_protocol == {"split": "test", "seed_start": 42, "n_episodes": 100}
    with pytest.raises(ValueError, match="2, 1, 0"):
        tasks.ConstraintSpec(("a", "b"), (1.0,), ())
    assert tasks.ConstraintSpec().scalar_threshold is None


class MyTask(tasks.SingleAgentTask):
    name = "my_battery"
    description = "A larger battery."

    def build(self, split, **kwargs):
        return powerzoo_jax.make(TASK, split=split, battery_capacity_mwh=1.0, **kwargs)


def test_a_task_of_ones_own_is_made_by_name():
    tasks.register_task("my_battery", MyTask, force=True)
    assert tasks.get_task_class("my_battery") is MyTask and "my_battery" in tasks.list_tasks("simple", "single")
    *_, info = powerzoo.make_task_env("my_battery", "test").reset(seed=0)
    assert info["resources"]["battery_0"]["energy_stored_mwh"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match="registered already"):
        tasks.register_task("my_battery", MyTask)
    with pytest.raises(ValueError, match="not 'other'"):
        tasks.register_task("other", MyTask)
    with pytest.raises(TypeError, match="subclass"):
        tasks.register_task("other", dict)
    assert "my_battery" not in powerzoo.list_public_tasks()
    record = benchmarks.evaluate_task(lambda obs: np.zeros(1), "my_battery", override_n_episodes=1)
    assert record["normalized_score"] is None and record["task_id"] == "my_battery"
    with pytest.raises(KeyError, match="register_baseline"):
        benchmarks.get_baseline("my_battery")


@pytest.mark.long
def test_the_presets_of_one_device_are_environments_too():
    assert {"atomic_battery", "atomic_distribution_grid"} <= set(tasks.list_atomic_tasks())
    assert not set(tasks.list_atomic_tasks()) & set(powerzoo.list_tasks())
    sizes = {}
    for name in ("distribution_grid", "battery"):
        preset = tasks.make_atomic_task_env(name, max_steps=4)
        assert tasks.audit_env(preset) == []
        sizes[name] = preset.observation_space.shape, preset.action_space.shape
    # of the specification
    assert sizes == {"distribution_grid": ((167,), (0,)), "battery": ((177,), (1,))}


def test_an_audit_names_what_is_wrong(env):
    class Wrong(gymnasium.Wrapper):
        def step(self, action):
            obs, reward, terminated, truncated, info = self.env.step(action)
            told = {"cost_sum": -1.0, "is_safe": 1, "episode_summary": {"r": 0.0}}
            return obs + 99, np.float32(reward), terminated, truncated, info | told

        def __getattr__(self, name):
            return getattr(self.env, name)

    assert tasks.audit_env(env, steps=3) == []
    found = " ".join(tasks.audit_env(Wrong(env), steps=1))
    for words in ("outside its space", "not float", "cost_sum", "'is_safe'] is int", "holds ['r']", "keys of info"):
        assert words in found


def test_wrappers_keep_the_episode_and_change_one_thing_each(env):
    plain = [env.reset(seed=3)[0], *env.step(idle(env))]
    scaled = wrappers.NormalizationWrapper(env)
    obs, _ = scaled.reset(seed=3)
    box = env.observation_space
    np.testing.assert_allclose((obs + 1) / 2 * (box.high - box.low) + box.low, plain[0], atol=1e-5)
    assert scaled.observation_space.contains(obs) and scaled.cost_threshold == 0.5
    for wrapper, six in (
        (wrappers.SafeRLWrapper, True),
        (wrappers.GymnasiumSafeWrapper, False),
        (wrappers.CMDPWrapper, True),
    ):
        safe = wrapper(env)
        safe.reset(seed=3)
        out = safe.step(np.array([0.2], np.float32))
        assert len(out) == (6 if six else 5) and np.sum(out[2] if six else out[-1]["cost"]) == pytest.approx(
            out[-1]["cost"]
        )
    assert wrappers.SafeRLWrapper(env, 0.0).cost_threshold == 0.0 and wrappers.SafeRLWrapper(env).cost_threshold == 1.0
    chosen = wrappers.TaskCMDPWrapper(env, tasks.ConstraintSpec(("voltage_violation",), (0.1,), (2.0,)))
    _, info = chosen.reset(seed=3)
    assert info["costs"] == {"voltage_violation": info["cost_voltage_violation"]} and chosen.cost_thresholds == (0.1,)
    assert chosen.full_constraint_names() == env.constraint_names() != chosen.constraint_names()
    with pytest.raises(KeyError, match="voltage_violation"):
        wrappers.TaskCMDPWrapper(env, tasks.ConstraintSpec(("voltage",), (0.1,), (1.0,)))


def test_flattening_turns_dicts_into_vectors():
    class Dicts(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(
            {"a": gymnasium.spaces.Box(0, 1, (2,)), "b": gymnasium.spaces.Box(0, 9, (1,))}
        )
        action_space = gymnasium.spaces.Dict(
            {"p": gymnasium.spaces.Box(-1, 1, (1,)), "q": gymnasium.spaces.Box(0, 1, (1, 2))}
        )

        def reset(self, *, seed=None, options=None):
            return {"a": np.zeros(2, np.float32), "b": np.full(1, 4, np.float32)}, {}

        def step(self, action):
            return {"a": action["q"][0], "b": action["p"]}, 0.0, False, False, {}

    env = wrappers.FlattenAction(Dicts(), ["p", "q"], [(1,), (1, 2)], [(-1, 1), (0, 1)])
    env = wrappers.FlattenObservation(env)
    assert env.reset()[0].tolist() == [0, 0, 4] and env.action_space.low.tolist() == [-1, 0, 0]
    assert env.step(np.array([-1, 0.5, 0.25]))[0].tolist() == [0.5, 0.25, -1]


def test_a_perfect_forecast_is_what_the_feeder_then_draws(env):
    ahead = wrappers.ForecastWrapper(env, horizon=4)
    obs, _ = ahead.reset(seed=2)
    load = env.get_observation_fields().index("node_5_p_load_norm")  # no battery sits there
    told, seen = obs[-4:], []
    for _ in range(4):
        obs, *_ = ahead.step(idle(env))
        seen.append(obs[load])
    np.testing.assert_allclose(told / told[0], np.array(seen) / seen[0], rtol=1e-5)
    assert (
        ahead.observation_space.shape == (207,)
        and not wrappers.ForecastWrapper(env, 2, "none").reset(seed=2)[0][-2:].any()
    )
    noisy = wrappers.ForecastWrapper(env, 2, "noisy")
    np.testing.assert_array_equal(noisy.reset(seed=2)[0], noisy.reset(seed=2)[0])
    with pytest.raises(ValueError, match="perfect"):
        wrappers.ForecastWrapper(env, mode="exact")
    with pytest.raises(ValueError, match="load series"):
        wrappers.ForecastWrapper(powerzoo.make_task_env("dc_microgrid"))


@pytest.mark.full
def test_make_env_stacks_what_it_is_told(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(SETTINGS)
    env = rl.make_env(str(file), seed=4)
    obs, info = env.reset()
    assert np.abs(obs).max() <= 1 and info["split"] == "test"
    np.testing.assert_array_equal(obs, rl.make_env(str(file)).reset(seed=4)[0])
    *_, info = out = env.step(np.array([0.2], np.float32))
    assert len(out) == 6 and out[1] == pytest.approx(-2 * info["cost_sum"]) and "env_reward" in info
    priced = rl.MDPFallbackRewardWrapper(powerzoo.make_task_env(TASK), fallback_weights=3.0)
    priced.reset(seed=0, options={"soc": 0.9})
    _, reward, *_, info = priced.step(np.array([-0.2], np.float32))
    assert reward == pytest.approx(info["env_reward"] - 3 * 0.2)
    with pytest.raises(ValueError, match="2 fallback weights"):
        rl.MDPFallbackRewardWrapper(powerzoo.make_task_env(TASK), [1.0, 2.0])
    agents = rl.make_env("marl_der_arbitrage", normalize=True, reward=lambda obs, info: 1.0)
    obs, _ = agents.reset(seed=0)
    assert all(agents.observation_space(a).contains(obs[a]) for a in obs) and not hasattr(agents, "nothing")


def test_a_config_is_read_from_yaml(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("task: {name: battery_arbitrage, split: val}\ntrainer: {algorithm: PPO, eval_episodes: 3}\n")
    config = rl.RLConfig.from_yaml(file)
    assert (config.task, config.split, config.algorithm, config.eval_episodes) == (TASK, "val", "PPO", 3)
    file.write_text("just words\n")
    with pytest.raises(ValueError, match="keys and values"):
        rl.RLConfig.from_yaml(file)


def test_a_config_says_what_is_wrong_with_it():
    for change, words in (
        ({"task_name": None}, "exactly one"),
        ({"task_config": {"name": TASK}}, "exactly one"),
        ({"task_name": "battery"}, TASK),
        ({"algorithm": "DQN"}, "TD3"),
        ({"split": "iid"}, "price_stress"),
        ({"framework": "gym"}, "gymnasium"),
        ({"forecast_horizon": -1}, "at least 0"),
        ({"total_timesteps": 0}, "at least 1"),
        ({"reward": {"type": "safety"}}, "safety_only"),
    ):
        with pytest.raises(ValueError, match=words):
            dataclasses.replace(rl.RLConfig(task_name=TASK), **change).validate()
    nested = rl.RLConfig.from_dict({"task": {"name": TASK}, "trainer": {"algorithm": "PPO"}})
    assert nested == rl.RLConfig.from_dict(nested.to_dict()) and nested.task == TASK
    with pytest.raises(ValueError, match="algorithm"):
        rl.RLConfig.from_dict({"algoritm": "PPO"})
    with pytest.raises(ValueError, match="a path, a dict"):
        rl.make_env(3)
    with pytest.raises(ValueError, match="toml"):
        rl.RLConfig.from_yaml("run.json")
    assert "zero" in list_reward_types() and list_reward_types("safety") == ["safety_only"]
    with pytest.raises(ValueError, match="penalty"):
        get_reward_function({"type": "safety_only", "penality": 1.0})


def test_info_and_describe_know_the_real_spaces():
    told = json.loads(powerzoo.info(TASK, format="json"))
    assert told["observation_space"]["shape"] == [203] and told["config_template"]["task_name"] == TASK
    assert "resource 0.5 MW" in powerzoo.describe(TASK)
    assert rl.info("marl_der_arbitrage")["action_space"]["bat_0"]["shape"] == [1]


@pytest.mark.long
def test_host_and_kernel_evaluations_of_a_rule_agree(env):
    """The same policy on the same seeds: stepped by the view here, by one compiled program in the core."""
    from powerzoo_jax.oracle import evaluate_baseline

    sim = powerzoo_jax.make(TASK, split="test")
    for name, policy in (("rule", benchmarks.RuleBasedPolicy(env)), ("oracle", benchmarks.OraclePolicy(env))):
        record = benchmarks.evaluate(policy, env, SEEDS, seed_start=42)
        core = evaluate_baseline(sim, name, n_episodes=SEEDS, seed=42)
        np.testing.assert_allclose(record["episode_rewards"], core.episode_rewards, rtol=1e-4, atol=1e-4)
        assert record["feasible"] == core.feasible and record["mean_ep_length"] == 48
        assert json.loads(json.dumps(record))["task_id"] == TASK
    assert record["normalized_score"] == pytest.approx(benchmarks.normalized_score(TASK, record["mean_reward"]))
    assert len(powerzoo.plot_eval_comparison({"oracle": record}).axes) == 2


def test_random_play_repeats_itself_and_breaks_its_budget(env):
    records = [benchmarks.evaluate(benchmarks.RandomPolicy(env.action_space, 0), env, SEEDS) for _ in range(2)]
    for record in records:
        assert record.pop("steps_per_second") > 0
    assert records[0] == records[1] and records[0]["cost_violation_rate"] > 0
    tight = benchmarks.evaluate(lambda obs: idle(env), env, 1, cost_threshold=0.0)
    assert tight["feasible"] and tight["episode_costs"] == [0.0]
    short = benchmarks.evaluate_task(benchmarks.RandomPolicy(env.action_space, 0), TASK, override_n_episodes=1)
    assert (short["seeds"], short["split"], short["task_version"]) == ([42], "test", 1)


def test_anchors_may_be_registered(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert TASK in benchmarks.list_baselines() and benchmarks.get_baseline(TASK)["best"] == pytest.approx(7.614506)
    assert benchmarks.normalized_score(TASK, benchmarks.get_baseline(TASK)["rule"]) == 0.0
    benchmarks.register_baseline("marl_ev_v2g_10ev", random=-2.0, oracle=2.0, rule=-1.0)
    assert benchmarks.normalized_score("marl_ev_v2g_10ev", 1.25) == 0.75
    assert "marl_ev_v2g_10ev" in benchmarks.list_baselines()
    with pytest.raises(ValueError, match="scale"):
        benchmarks.register_baseline("marl_ev_v2g_10ev", random=1.0, oracle=1.0)


def test_an_offline_data_set_keeps_the_last_observations(tmp_path):
    env = powerzoo.make_task_env(TASK, split="test", max_steps=5)
    path = benchmarks.DatasetGenerator(env).collect(3, tmp_path / "played", seed=7)
    stored = benchmarks.DatasetLoader(path).get_dataset(load_infos=True)
    assert stored["observations"].shape == (15, 203) and stored["infos/cost_sum"].shape == (15,)
    assert stored["timeouts"].nonzero()[0].tolist() == [4, 9, 14] and not stored["terminals"].any()
    np.testing.assert_array_equal(stored["next_observations"][:4], stored["observations"][1:5])
    assert (stored["next_observations"][4] != stored["observations"][5]).any()
    returns = stored["rewards"].reshape(3, 5).sum(1)
    best = benchmarks.DatasetLoader(path).filter(min_return=float(np.sort(returns)[1]) + 1e-6)
    assert len(best["rewards"]) == 5 and best["rewards"].sum() == pytest.approx(returns.max())
    assert benchmarks.DatasetLoader(path).metadata()["task_id"] == TASK


@pytest.mark.full
def test_a_trainer_trains_saves_and_plays_what_it_saved(tmp_path):
    small = {"lanes": 2, "steps": 4, "epochs": 1, "minibatches": 1, "widths": [8]}
    settings = rl.RLConfig(task_name=TASK, algorithm="PPO", total_timesteps=16, hyperparams=small, seed=1)
    trainer = rl.Trainer(settings)
    with pytest.raises(RuntimeError, match="train"):
        trainer.evaluate(1)
    trainer.train()
    trainer.save(tmp_path / "model")
    again = rl.Trainer(settings)
    again.load(tmp_path / "model")
    records = [each.evaluate(1, split="val")["episode_rewards"] for each in (trainer, again)]
    assert records[0] == records[1] and np.isfinite(records[0]).all()
    for change, words in (
        ({"algorithm": "TD3"}, "MAPPO"),
        ({"normalize": True}, "backend='sb3'"),
    ):
        with pytest.raises(ValueError, match=words):
            rl.Trainer(settings, **change)
    with pytest.raises(ValueError, match="several agents"):
        rl.Trainer("marl_opf", backend="sb3", algorithm="PPO")


def test_cases_and_series_answer_to_the_names_of_the_contract():
    assert {case.load_case(x).name for x in (5, "5", "Case5", "CASE5")} == {"pz_case5"} == {case.Case5().name}
    assert case.load_case("case30").name == "case30" and "case118" in case.list_cases()
    with pytest.raises(AttributeError, match="Case300"):
        _ = case.Case301
    loader = data.DataLoader()
    assert loader.get_date_range("simbench_2016") == ("2016-01-01", "2016-12-31")
    series = loader.load_signals(
        "load.actual_mw", source="fr_2017_2019", start_date="2019-01-01", end_date="2019-01-01", resample=60
    )
    assert len(series.time_utc) == 24 and "load.actual_mw" in loader.get_available_columns("fr_2017_2019")
    assert "fr_2017_2019" in data.signals()["load.actual_mw"] and "tmy" in loader.list_available_datasets()
