"""Evaluation: which episodes are played, what the record says, and that it says it twice."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy.stats import trim_mean

import powerzoo_jax
from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.base.tree import take
from powerzoo_jax.data import read_csv
from powerzoo_jax.envs import episode
from powerzoo_jax.envs.episode import run_episodes
from powerzoo_jax.oracle import get_reference, idle_act, random_act
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.score import (
    all_starts,
    dataset_hashes,
    episode_hash,
    evaluate,
    gain,
    seeded_starts,
    summary,
)

SUM = 1e-5  # relative: 48 additions in float32, in another program than the scan
FEW = 3


@cache
def sim_of(split="test", **overrides):
    return powerzoo_jax.make("battery_arbitrage", split=split, **overrides)


def full_power(direction, carry, obs, key):
    return carry, direction


def few(sim):
    return take(all_starts(sim), slice(0, FEW))


def test_every_eligible_start_is_played_once():
    sim = sim_of()
    draws = all_starts(sim)
    rows = np.asarray(draws.load_row)
    assert len(rows) == int(sim.params.starts.n_start) == len(set(rows.tolist()))
    np.testing.assert_array_equal(rows, np.asarray(sim.params.starts.load_row)[: len(rows)])
    np.testing.assert_array_equal(np.asarray(draws.soc), np.full((len(rows), 1), np.float32(0.5)))


def test_a_start_with_several_price_days_cycles_through_them():
    sim = sim_of("price_stress")
    count = np.asarray(sim.params.starts.pair_count)[: int(sim.params.starts.n_start)]
    used = np.asarray(all_starts(sim).price_row)
    assert count.min() > 1 and len(set(used.tolist())) == count.min()


@pytest.mark.long
def test_seeded_starts_are_what_init_draws_for_these_seeds():
    sim = sim_of()
    draws = seeded_starts(sim, FEW, seed=7)
    init = jax.jit(lambda s, key: s.init(key))
    for i in range(FEW):
        state, _ = init(sim, jax.random.key(7 + i))
        assert (state.load_row, state.price_row) == (draws.load_row[i], draws.price_row[i])
        np.testing.assert_array_equal(state.soc_start, draws.soc[i])


@pytest.mark.full
def test_totals_are_those_of_a_plain_loop():
    sim, draws = sim_of(), few(sim_of())
    act, key = random_act(sim), jax.random.key(3)
    totals = run_episodes(sim, act, jax.random.split(key, FEW), draws)
    lane = jax.random.split(key, FEW)[0]
    state, obs = jax.jit(sim.env.begin)(lane, take(draws, 0), sim.params)
    step, policy = jax.jit(lambda s, x, a: s.step(x, a)), jax.jit(lambda o, k: act((), o, k)[1])
    total, cost, lowest = 0.0, np.zeros(4), np.inf
    for sub in jax.random.split(purpose_key(lane, Purpose.POLICY), sim.spec.horizon):
        out = step(sim, state, policy(obs, sub))
        state, obs = out.state, out.obs
        total += float(out.reward[0])
        cost += np.asarray(out.cost)
        lowest = min(lowest, float(out.info.v_min_pu))
    assert bool(out.info.truncated) and int(totals.length[0]) == sim.spec.horizon
    assert float(totals.total[0]) == pytest.approx(total, rel=SUM)
    np.testing.assert_allclose(totals.cost[0], cost, rtol=SUM, atol=SUM)
    assert float(totals.v_min_pu[0]) == pytest.approx(lowest, abs=SUM)
    assert float(totals.terms[0].sum()) == pytest.approx(total, rel=SUM)


@pytest.mark.long
def test_steps_after_a_failed_power_flow_do_not_count():
    sim = sim_of(max_load_ratio=5.5)
    totals = run_episodes(sim, idle_act(sim), jax.random.split(jax.random.key(0), FEW), few(sim))
    assert bool(totals.failed.all()) and bool((totals.length < sim.spec.horizon).all())
    assert bool((totals.pf_failures <= 1).all())
    # the blackout is paid once, in the step that fails
    np.testing.assert_allclose(totals.total, totals.terms[:, 0, -1], rtol=SUM)
    assert bool((totals.cost[:, 2] > 0).all())


@pytest.mark.full
def test_two_evaluations_give_one_record():
    sim = sim_of()
    first, second = (evaluate(sim, random_act(sim), n_episodes=FEW) for _ in range(2))
    assert first == second
    assert first.n_episodes == FEW and first.seeds == [42, 43, 44]


@pytest.mark.full
def test_the_record_survives_strict_json():
    record = evaluate(sim_of(), idle_act(sim_of()), draws=few(sim_of())).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


@pytest.mark.full
def test_the_record_names_task_data_and_version():
    record = evaluate(sim_of(), idle_act(sim_of()), draws=few(sim_of()))
    assert (record.task_id, record.task_version, record.split) == ("battery_arbitrage", 1, "test")
    assert record.library_version == powerzoo_jax.__version__
    assert set(record.dataset_hashes) == {"simbench_2016", "de_smard_2018"}
    stress = evaluate(sim_of("price_stress"), idle_act(sim_of()), draws=few(sim_of("price_stress")))
    assert set(stress.dataset_hashes) == {"simbench_2016", "ercot_dam_2021_2022"}


@pytest.mark.parametrize(
    ("task", "sets"),
    [
        ("dc_scheduling", {"simbench_2016", "de_smard_2018", "tmy"}),
        ("dc_microgrid", {"tmy"}),
        ("marl_ev_v2g", {"fr_2017_2019", "ercot_dam_2021_2022", "acn_sessions"}),
    ],
)
def test_a_record_names_the_data_that_keywords_imply(task, sets):
    assert set(dataset_hashes(get_spec(task))) == sets


def test_a_record_names_ones_own_data_by_its_content(tmp_path):
    """As a registered task gives them, by path or as a series; both signals may stand in one file."""
    spec, path = get_spec("battery_arbitrage"), tmp_path / "mine.csv"
    path.write_text("time,load_mw,price_usd_per_mwh\n2023-01-01T00:00Z,1.2,40\n2023-01-01T00:30Z,1.1,45\n")
    for source in (str(path), path, read_csv(path)):
        own = tuple((dict(spec.overrides) | {"load_set": source, "price_set": source}).items())
        assert dataset_hashes(dataclasses.replace(spec, overrides=own)) == {"mine.csv": read_csv(path).meta.sha256}


@pytest.mark.full
def test_an_idle_battery_earns_nothing_and_is_feasible():
    record = evaluate(sim_of(), idle_act(sim_of()), draws=few(sim_of()))
    assert record.mean_reward == 0.0 and record.metrics["cycles"] == 0.0
    assert record.feasible and record.cost_violation_rate == 0.0 and record.pf_failure_rate == 0.0
    assert 0.9 < record.metrics["min_voltage_pu"] < 1.0
    assert record.mean_ep_length == 48.0


@pytest.mark.full
def test_a_command_beyond_the_store_breaks_the_resource_budget():
    sim = sim_of()
    record = evaluate(sim, Partial(full_power, jnp.ones((1, 1))), draws=few(sim))
    # 0.4 of 0.5 MWh less losses leave after two hours: the other steps ask for 0.2 MW in vain
    emptied = 0.4 * 0.5 * np.sqrt(0.95)
    assert record.mean_costs_by_constraint["resource"] == pytest.approx(48 * 0.2 - emptied / 0.5, rel=SUM)
    assert not record.feasible and record.cost_violation_rate == 1.0
    assert record.constraint_names == ["resource"] and record.cost_thresholds["voltage_violation"] is None
    assert record.episode_costs == record.episode_costs_by_constraint["resource"]
    assert record.metrics["cycles"] == pytest.approx(emptied / (2 * 0.5), rel=SUM)


@pytest.mark.full
def test_the_interval_covers_the_mean_and_the_gain_needs_its_ends():
    sim = sim_of()
    record = evaluate(sim, idle_act(sim), n_episodes=FEW, ends=(-10.0, 10.0))
    low, high = record.ci95
    assert record.min_reward <= low <= record.mean_reward <= high <= record.max_reward
    assert record.gain == pytest.approx((record.mean_reward + 10) / 20)
    assert evaluate(sim, idle_act(sim), n_episodes=FEW).gain is None
    assert evaluate(sim, random_act(sim), n_episodes=FEW, ends=(-10.0, 10.0)).gain is None  # it breaks a budget


def test_a_record_tells_what_its_mean_hides():
    """Against SciPy, and by hand: one bad day in twenty moves the mean and the worst decile, not the middle half."""
    rng = np.random.default_rng(0)
    reward, cost = rng.normal(size=23), np.array([[10.0, 0.0]] + [[0.0, 1.0]] * 22)
    found = summary(reward, cost, ("overload", "misses"), (0.5, np.inf))
    assert found["median_reward"] == np.median(reward)
    assert found["iqm_reward"] == pytest.approx(trim_mean(reward, 0.25), rel=1e-12)
    assert found["worst_decile_by_constraint"] == {"overload": pytest.approx(10 / 3), "misses": 1.0}
    assert found["mean_costs_by_constraint"]["overload"] == pytest.approx(10 / 23)
    assert found["feasible"] and found["cost_violation_rate"] == pytest.approx(1 / 23)
    assert found["constraint_names"] == ["overload"] and found["cost_thresholds"]["misses"] is None


def test_the_fingerprint_is_that_of_the_episodes_whatever_the_float_type():
    draws = seeded_starts(sim_of(), FEW)
    with jax.enable_x64(True):
        wide = seeded_starts(sim_of(dtype="float64"), FEW)
        assert wide.soc.dtype == np.float64 and episode_hash(wide, 42) == episode_hash(draws, 42)
    others = [seeded_starts(sim_of(), FEW, seed=1), draws._replace(soc=draws.soc + 0.01), take(draws, slice(0, 2))]
    found = {episode_hash(d, 42) for d in others} | {episode_hash(draws, 42), episode_hash(draws, 1)}
    assert len(found) == len(others) + 2


@pytest.mark.parametrize(
    ("mean", "budget", "kept"),
    [(1.0, 1.0, True), (1.0009, 1.0, True), (1.0011, 1.0, False), (9e-7, 0.0, True), (1.1e-6, 0.0, False)],
)
def test_a_budget_is_kept_to_its_last_digits(mean, budget, kept):
    assert summary(np.zeros(2), np.full((2, 1), mean), ("c",), (budget,))["feasible"] == kept
    assert summary(np.zeros(2), np.full((2, 1), mean), ("c",), (np.inf,), total=budget)["constraint_names"] == []
    assert summary(np.zeros(2), np.full((2, 1), mean), ("c",), (9.0,), total=budget)["feasible"] == kept


def test_weights_in_a_partial_share_one_compile():
    sim, draws = sim_of(), few(sim_of())
    keys = jax.random.split(jax.random.key(0), FEW)
    run_episodes(sim, Partial(full_power, jnp.ones((1, 1))), keys, draws)
    before = episode._run_batch._cache_size()
    run_episodes(sim, Partial(full_power, -jnp.ones((1, 1))), keys, draws)
    run_episodes(sim_of("val"), Partial(full_power, jnp.ones((1, 1))), keys, draws)
    assert episode._run_batch._cache_size() == before


def test_the_gain_is_zero_at_the_rule_and_one_at_the_best():
    assert gain(-12.0, -12.0, 8.0) == 0.0 and gain(8.0, -12.0, 8.0) == 1.0
    assert gain(4.0, -12.0, 8.0) == pytest.approx(0.8) and gain(4.0, -12.0, 8.0, feasible=False) is None


@pytest.mark.parametrize(("rule", "best"), [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_ends_without_a_span_are_refused(rule, best):
    with pytest.raises(ValueError, match="leave nothing to gain"):
        gain(0.5, rule, best)


def test_no_episodes_are_refused():
    with pytest.raises(ValueError, match="n_episodes = 0 must be a whole number of at least 1"):
        evaluate(sim_of(), idle_act(sim_of()), n_episodes=0)


def test_stacked_tasks_are_refused():
    sims = powerzoo_jax.stack([sim_of(), sim_of(v_max=1.05)])
    with pytest.raises(ValueError, match="one by one"):
        evaluate(sims, idle_act(sim_of()))


@pytest.mark.full
def test_a_record_of_a_shipped_task_has_its_gain():
    sim = powerzoo_jax.make("battery_arbitrage", split="test")
    known = get_reference("battery_arbitrage", "test")
    idle = evaluate(sim, idle_act(sim))
    assert idle.gain == pytest.approx((idle.mean_reward - known["rule"]) / (known["best"] - known["rule"]))
    # of other episodes, of another task, or around it nothing is known
    assert evaluate(sim, idle_act(sim), n_episodes=1).gain is None
    other = powerzoo_jax.make("battery_arbitrage", split="test", eta_roundtrip=0.9)
    assert evaluate(other, idle_act(other)).gain is None
