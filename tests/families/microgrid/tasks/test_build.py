"""The islanded data centre step by step: hand numbers, the golden reset, splits, keywords."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.errors import DataMissing
from powerzoo_jax.data import make_series
from powerzoo_jax.devices import jobs
from powerzoo_jax.devices.facility import FINETUNE, TRAIN, enough_slots
from powerzoo_jax.families.microgrid.env import CURVE, OUTDOOR, SUN
from powerzoo_jax.families.microgrid.names import TERMS
from powerzoo_jax.families.microgrid.tasks.build import STRESS

# spec 07, section 5: five digits printed
GOLDEN = (0, 0, 0, 0, 1, 0.23333, 0.46144, 0.75, 0, 0.5, 1, 0, 0, 0, 0.5, 0, 0, 1)
DIGITS = 5e-6
NOON = 144
EXACT = 1e-5  # a few roundings of float32, relative above 1


@cache
def sim(split="test", **keywords):
    return powerzoo_jax.make("dc_microgrid", split=split, **keywords)


@jax.jit
def step(sim, state, action):
    return sim.step(state, action)


@jax.jit
def init(sim, key):
    return sim.init(key)


def act(train=0.0, finetune=0.0, cooling=0.0, battery=0.0, diesel=0.0):
    """A kernel action from fractions, the battery in its own sign."""
    return jnp.asarray([[2 * train - 1, 2 * finetune - 1, 2 * cooling - 1, battery, 2 * diesel - 1]], jnp.float32)


def at(state, t):
    return state.replace(t=jnp.asarray(t, jnp.int32))


def test_the_reset_observation_is_the_golden_one():
    _, obs = init(sim(weather="analytic"), jax.random.key(3))
    np.testing.assert_allclose(np.asarray(obs)[0], GOLDEN, atol=DIGITS)


@pytest.mark.full
def test_the_first_step_is_as_by_hand():
    """No jobs run: 1000 GPUs at 55 W, some of them serving at 290 W, 0.4 MW base, 5 % auxiliaries."""
    one = sim(weather="analytic", cpu_profile=(0.5,) * 288)
    state, _ = init(one, jax.random.key(0))
    out = step(one, state, act(cooling=0.0, diesel=0.5))
    it = (200 * 290 + 800 * 55) / 1e6 + 0.4
    heat = 200 * (22.0 - 18.0)
    load = 1.05 * it + heat / 5000
    t_zone = 22 + (1000 * it - heat + 5 * (13.0718 - 22)) / 500 / 12
    info = out.info
    assert float(info.p_load_mw) == pytest.approx(load, rel=EXACT)
    assert float(info.t_zone) == pytest.approx(t_zone, rel=EXACT)
    deficit = load - 0.45
    assert float(info.power_deficit_mw) == pytest.approx(deficit, rel=1e-4)
    np.testing.assert_allclose(np.asarray(out.cost), [0, 0, deficit], rtol=1e-4)
    money = 300 * 0.45 / 12 + 10_000 * deficit / 12
    carbon = 800 * 0.45 / 12
    assert float(out.reward[0]) == pytest.approx(-0.01 * (money + 0.08 * carbon), rel=1e-4)
    np.testing.assert_allclose(np.asarray(info.reward_vector), [-load / 12, -money, -carbon], rtol=1e-4)


@pytest.mark.full
def test_a_surplus_is_taken_from_diesel_then_from_the_battery_and_only_then_from_the_sun():
    one = sim(weather="analytic", pv_capacity_mw=0.6, cpu_profile=(0.0,) * 288)
    state, _ = init(one, jax.random.key(0))
    state = at(state, NOON)
    both = step(one, state, act(cooling=1.0, battery=1.0, diesel=1.0)).info
    load = 1.05 * 0.455
    assert float(both.p_load_mw) == pytest.approx(load, rel=EXACT)
    assert float(both.p_dg_mw) == 0.0 and float(both.p_batt_mw) == pytest.approx(0.0, abs=1e-7)
    assert float(both.power_spill_mw) == pytest.approx(0.6 - load, rel=1e-4)
    state = at(state, 0)
    night = step(one, state, act(cooling=1.0, battery=0.8, diesel=1.0)).info
    assert float(night.p_batt_mw) == pytest.approx(0.4, rel=EXACT)
    assert float(night.p_dg_mw) == pytest.approx(load - 0.4, rel=1e-4)
    charging = step(one, at(state, NOON), act(cooling=1.0, battery=-1.0, diesel=1.0)).info
    assert float(charging.p_batt_mw) == pytest.approx(-0.5, rel=EXACT)
    assert float(charging.p_dg_mw) == pytest.approx(load + 0.5 - 0.6, rel=1e-4)


@pytest.mark.full
def test_a_nan_starts_nothing_and_moves_nothing():
    one = sim()
    state, _ = init(one, jax.random.key(0))
    idle = step(one, state, act())
    absurd = step(one, state, jnp.full((1, 5), jnp.nan))
    assert float(idle.reward[0]) == float(absurd.reward[0])
    np.testing.assert_array_equal(np.asarray(idle.obs), np.asarray(absurd.obs))


@pytest.mark.full
def test_backlog_and_settlement_fall_due_in_the_last_step_only():
    one = sim()
    state, _ = init(one, jax.random.key(0))
    play = jax.jit(
        lambda sim, state: jax.lax.scan(
            lambda s, _: (lambda o: (o.state, (o.info.terms[0], o.info.backlog_gpu_h, o.info.truncated)))(
                sim.step(s, act(battery=1.0, diesel=1.0))
            ),
            state,
            None,
            length=288,
        )
    )
    last, (terms, backlog, truncated) = play(one, state)
    late = [TERMS.index(name) for name in ("backlog", "settlement")]
    assert not np.asarray(terms)[:-1, late].any()
    assert float(terms[-1, late[0]]) == pytest.approx(-float(backlog[-1]), rel=EXACT)
    emptied = (0.5 - float(last.storage.soc[0])) * 2.0 / 0.95
    assert emptied > 0.5
    assert float(terms[-1, late[1]]) == pytest.approx(-300 * emptied, rel=1e-4)
    assert np.asarray(truncated).tolist() == [False] * 287 + [True]


@pytest.mark.full
def test_misses_cost_money_in_one_task_and_only_the_channel_in_the_other():
    rewards, costs = [], []
    for task in ("dc_microgrid", "dc_microgrid_safe"):
        one = powerzoo_jax.make(task, split="test", sla_tighten_factor=0.0)
        state, _ = init(one, jax.random.key(1))
        play = jax.jit(
            lambda sim, s: jax.lax.scan(
                lambda s, _: (lambda o: (o.state, (o.reward[0], o.cost)))(sim.step(s, act(diesel=1.0))),
                s,
                None,
                length=100,
            )[1]
        )
        reward, cost = play(one, state)
        rewards.append(float(reward.sum()))
        costs.append(float(cost[:, 0].sum()))
    assert costs[0] == costs[1] > 0
    assert rewards[1] - rewards[0] == pytest.approx(0.01 * 500 * costs[0], rel=1e-4)


def test_every_stress_changes_what_its_name_says_and_nothing_else():
    base = sim().params
    weather, work = np.asarray(base.bank.weather_rows), np.asarray(base.bank.work_rows)
    stressed = {name: sim(name).params for name in STRESS}
    for name, params in stressed.items():
        rows = np.asarray(params.bank.weather_rows)
        changed = {SUN: name == "renewable_drought", OUTDOOR: name == "cooling_stress"}
        changed[CURVE] = name.startswith("workload")
        for column in range(rows.shape[1]):
            assert np.array_equal(rows[:, column], weather[:, column]) != changed.get(column, False), (name, column)
        assert np.array_equal(params.bank.work_rows[:, 1:], work[:, 1:])
        assert np.array_equal(params.starts.load_row, base.starts.load_row)
    sun, drought = weather[:, SUN], np.asarray(stressed["renewable_drought"].bank.weather_rows)[:, SUN]
    np.testing.assert_allclose(drought, 0.2 * sun, rtol=1e-6)
    hot = np.asarray(stressed["cooling_stress"].bank.weather_rows)[:, OUTDOOR]
    np.testing.assert_allclose(hot, weather[:, OUTDOOR] + 8, rtol=1e-6)
    assert float(stressed["dg_derating"].diesel.p_max_mw[0]) == pytest.approx(0.45)
    assert float(stressed["sla_tighten"].site.slack_factor[0]) == 0.5
    means = [
        float(np.asarray(stressed[n].bank.weather_rows)[:, CURVE].mean()) for n in ("workload_swap", "workload_shock")
    ]
    assert means == pytest.approx([0.40, 0.79], abs=0.02)


def test_a_scenario_keyword_is_the_split_of_that_name():
    keyword = sim("train", ood_scenario="cooling_stress")
    assert keyword.spec.split == "cooling_stress"
    for a, b in zip(jax.tree.leaves(keyword.params), jax.tree.leaves(sim("cooling_stress").params), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_splits_share_no_day_and_no_trace_of_work():
    rows = {s: sim(s).params for s in ("train", "val", "test")}
    days = [set(np.asarray(p.starts.load_row)[: int(p.starts.n_start)].tolist()) for p in rows.values()]
    assert sum(map(len, days)) == len(set.union(*days))
    traces = [np.asarray(p.bank.work_rows)[:288].tobytes() for p in rows.values()]
    assert len(set(traces)) == 3


def test_drawn_work_has_the_rates_of_the_job_classes():
    work = np.asarray(sim("train").params.bank.work_rows)
    days = len(work) / 288
    n_train, n_fine = sim("train").env.sizes.arrivals
    train, fine = work[:, 1 : 1 + n_train], work[:, 1 + 2 * n_train : 1 + 2 * n_train + n_fine]
    for gpus, mean in ((train, 36.0), (fine, 72.0)):
        assert (gpus > 0).sum() / days == pytest.approx(mean, abs=5 * np.sqrt(mean / days))
    assert abs(work[:, 0].mean()) < 0.002 and work[:, 0].std() == pytest.approx(0.036, rel=0.02)


def test_the_slots_hold_every_job_that_could_ever_wait():
    """Fewer slots than the queue of 64 are the same as long as no trace fills them with nothing started."""
    slots = enough_slots()
    assert sim().env.sizes.queue == slots == 32
    for split in ("train", "val", "test"):
        rows = np.asarray(sim(split).params.bank.work_rows).reshape(-1, 288, 23)
        for kind, gpus, duration in (
            (TRAIN, rows[:, :, 1:6], rows[:, :, 6:11]),
            (FINETUNE, rows[:, :, 11:17], rows[:, :, 17:23]),
        ):
            stay = np.ceil(kind.deadline_factor * duration / 5).astype(int)
            level = np.zeros((len(rows), 1000))
            trace, step_, slot = np.nonzero(gpus)
            np.add.at(level, (trace, step_), 1)
            np.add.at(level, (trace, step_ + stay[trace, step_, slot]), -1)
            assert level.cumsum(axis=1)[:, :288].max() <= slots


def test_a_full_queue_is_observed_as_one_whatever_the_slots():
    pool = jobs.empty(1, 32, 4, np.dtype("float32")).replace(gpus=jnp.ones((1, 32)))
    assert float(jobs.waiting(pool)[0]) == 32 and float(sim().params.queue) == 64


def test_profiles_replace_the_series():
    cpu, sun, temperature = np.linspace(0, 1, 288), np.linspace(1, 0, 288), np.linspace(-5, 40, 288)
    one = powerzoo_jax.make("dc_microgrid", cpu_profile=cpu, solar_profile=sun, temperature_profile=temperature)
    rows = np.asarray(one.params.bank.weather_rows)[5 * 288 : 6 * 288]
    np.testing.assert_allclose(rows[:, [SUN, OUTDOOR, CURVE]], np.stack([sun, temperature, cpu], 1), rtol=1e-6)
    assert not np.asarray(one.params.bank.work_rows)[:, 0].any()
    assert one.params.bank.work_rows.shape == sim().params.bank.work_rows.shape


def test_a_users_trace_gives_each_split_its_own_days():
    minutes = np.arange(31 * 288) * 5
    day = minutes // 1440 + 1
    trace = make_series(
        "mine", minutes * 60_000_000_000, {"use_share": day / 31.0}, {"use_share": "1"}, offset_minutes=0
    )
    found = {s: sim(s, workload_source=trace).params.bank.work_rows[:, 0] for s in ("train", "val", "test")}
    days = {s: set(np.unique(np.round(np.asarray(x) * 31)).astype(int)) for s, x in found.items()}
    assert days == {"train": set(range(1, 21)), "val": set(range(21, 25)), "test": set(range(26, 32))}
    with pytest.raises(DataMissing, match="shifted_workload_source='azure:PATH'"):
        sim("workload_swap", workload_source=trace)


@pytest.mark.long
def test_plants_of_different_ratings_step_as_lanes_of_one_program():
    ratings = [{"pv_capacity_mw": 0.2}, {"battery_capacity_mwh": 4.0, "dg_max_mw": 0.5}, {"t_critical_c": 27.0}]
    singles = [sim(**keywords) for keywords in ratings]
    stacked = powerzoo_jax.stack(singles)
    axes = powerzoo_jax.lanes(stacked)
    assert stacked.params.bank.work_rows.shape == singles[0].params.bank.work_rows.shape
    keys, action = jax.random.split(jax.random.key(2), 3), act(0.5, 1.0, 0.3, 0.7, 0.9)
    states, _ = jax.jit(jax.vmap(lambda s, k: s.init(k), in_axes=(axes, 0)))(stacked, keys)
    out = jax.jit(jax.vmap(lambda s, x: s.step(x, action), in_axes=(axes, 0)))(stacked, states)
    for lane, single in enumerate(singles):
        alone = step(single, init(single, keys[lane])[0], action)
        np.testing.assert_allclose(out.obs[lane], alone.obs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(out.reward[lane], alone.reward, rtol=1e-6, atol=1e-6)


def test_plants_of_different_sizes_are_not_stacked():
    with pytest.raises(ValueError, match="static setting differs"):
        powerzoo_jax.stack([sim(), sim(queue=8)])


@pytest.mark.parametrize(
    ("tightness", "budget", "critical"),
    [("loose", (5.0, 1.0, 0.5), 32.0), ("standard", (2.0, 0.5, 0.15), 30.0), ("strict", (1.0, 0.2, 0.05), 28.0)],
)
def test_tightness_sets_budgets_and_the_critical_temperature(tightness, budget, critical):
    one = sim(constraint_tightness=tightness)
    assert one.spec.cost_budget == budget and float(one.params.site.t_critical_c[0]) == critical
    assert float(sim(constraint_tightness=tightness, t_critical_c=31.0).params.site.t_critical_c[0]) == 31.0


@pytest.mark.parametrize(
    ("error", "keywords", "words"),
    [
        (ValueError, {"split": "tset"}, "tset.*test"),
        (ValueError, {"constraint_tightness": "hard"}, "constraint_tightness"),
        (ValueError, {"ood_scenario": "drought"}, "renewable_drought"),
        (ValueError, {"weather": "tmyy"}, "tmy"),
        (ValueError, {"workload_preset": "hyper"}, "hyperscale"),
        (ValueError, {"solar_profile": (0.0, 1.0)}, "solar_profile has shape"),
        (ValueError, {"voll": -1.0}, "voll"),
        (ValueError, {"max_steps": 0}, "max_steps"),
        (TypeError, {"pv_capacty_mw": 1.0}, "pv_capacity_mw"),
        (FileNotFoundError, {"workload_source": "google"}, "google:PATH"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(error, keywords, words):
    with pytest.raises(error, match=words):
        powerzoo_jax.make("dc_microgrid", **keywords)
