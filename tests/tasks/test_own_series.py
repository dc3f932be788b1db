"""A user's series without spread, with zeros, far too large or without a sign: whatever a task takes stays finite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import DataError, PowerZooError, SettingsError
from powerzoo_jax.data import Series, build_bank, load_dataset, make_series, series_from_arrays, split_rows
from powerzoo_jax.data.bank import published_sums
from powerzoo_jax.data.library import usual_price
from powerzoo_jax.families.feeder.causal.storage import price_forecast, signal_scale
from powerzoo_jax.oracle.baselines import evaluate_baseline, idle_action
from powerzoo_jax.tasks import get_spec, list_tasks, make
from powerzoo_jax.tasks.settings import keywords_of

HOURS = 8760
HOUR = np.arange(HOURS) % 24
NOISE = np.random.default_rng(5).standard_normal(HOURS)
WAVE = 1 + 0.4 * np.sin((HOUR - 9) * np.pi / 12)

PRICES: dict[str, Any] = {
    "flat": 50.0,
    "zero": 0.0,
    "negative": -20.0,
    "one peak hour": np.where(HOUR == 18, 500.0, 50.0),
    "free but for one hour": np.where(HOUR == 18, 500.0, 0.0),
    "paid to take": np.where(HOUR == 12, -500.0, 0.0),
    "one spike": np.where(np.arange(HOURS) == 4000, 9000.0, 50.0),
    "flat in training": np.where(np.arange(HOURS) // 24 % 31 > 24, 300.0 + NOISE, 50.0),
    "noise of rounding": 50 * (1 + 1e-12 * NOISE),
    "two neighbours in float32": 50 * (1 + 1e-7 * (NOISE > 0)),
    "subnormal": 1e-40 * (2 + NOISE),
    "large": 1e8 * (2 + np.sin(HOUR)),
}
LOADS: dict[str, Any] = {
    "flat": 7.0,
    "on for an hour a day": np.where(HOUR == 18, 7.0, 0.0),
    "noise of rounding": 7 * (1 + 1e-12 * NOISE),
    "two neighbours in float32": 7 * (1 + 1e-7 * (NOISE > 0)),
    "subnormal": 1e-40 * (2 + np.sin(HOUR)),
    "feeds back at noon": np.where(np.abs(HOUR - 12) < 3, -4.0, 7.0),
}
PLANTS = {"solar_mw": 3.0, "wind_mw": 2.0}  # constant, and needed by some tasks


def own(load: Any = WAVE, price: Any = WAVE, plants: Any = PLANTS, name: str = "own") -> Series:
    columns = {"load_mw": load, "price_per_mwh": price, **plants}
    return series_from_arrays(
        name, {k: np.broadcast_to(v, HOURS) for k, v in columns.items()}, start="2023-01-01", step_minutes=60
    )


@cache
def keywords(task: str) -> tuple[str, ...]:
    """Keywords of a task that name series."""
    spec = get_spec(task)
    taken = {"load_set", "price_set", "load_column", "price_column", "feeder_shapes", "pv_columns"}
    return tuple(sorted(taken & (dict(spec.overrides).keys() | {"load_set"})))


def with_series(task: str, data: Series, **more: Any) -> Any:
    """The task on one own series in the place of all that it reads of that kind."""
    values = {
        "load_set": data,
        "price_set": data,
        "load_column": "load_mw",
        "price_column": "price_per_mwh",
        "feeder_shapes": ("load_mw",) * 3,
        "pv_columns": ("solar_mw",),
    }
    return make(task, **{key: values[key] for key in keywords(task)}, **more)


READING = tuple(task for task in list_tasks() if not task.startswith("dc_microgrid"))
PRICED = tuple(task for task in READING if "price_set" in keywords(task))


def tables(sim: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Every number of a simulation that comes from a series, by name."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(sim.params.bank):
        yield jax.tree_util.keystr(path), np.asarray(leaf)
    for name in ("median_per_mwh", "full_load_mw", "load_ratio"):
        if getattr(sim.params, name, None) is not None:
            yield name, np.asarray(getattr(sim.params, name))


def refuse_infinite(sim: Any) -> None:
    for name, values in tables(sim):
        assert np.isfinite(values).all(), name


def bank_of(price: Any, load: Any = WAVE, **more: Any) -> Any:
    data = own(load, price)
    return build_bank(data, "load_mw", data, "price_per_mwh", 60, "train", 24, **more)


def signal(price: Any) -> np.ndarray:
    bank = bank_of(price)
    found: np.ndarray = bank.price_rows[:HOURS, bank.price_fields.index("price_signal")]
    return found


@pytest.mark.parametrize("price", ["flat", "zero", "negative", "noise of rounding", "two neighbours in float32"])
def test_the_signal_of_a_price_that_does_not_vary_is_zero(price):
    assert np.all(signal(PRICES[price]) == 0)
    assert np.all(published_sums(bank_of(PRICES[price])) == 0)


def test_one_dear_hour_a_day_is_told_from_the_others():
    """p05 = p95 = 50, so the lowest and the highest price are 0 and 1."""
    np.testing.assert_array_equal(signal(PRICES["one peak hour"]), (HOUR == 18) * 1.0)


def test_a_price_with_spread_keeps_the_scale_of_its_percentiles():
    price = 50 + 10 * NOISE
    data, bank = own(price=price), bank_of(price)
    day = np.arange(HOURS) // 24 + np.datetime64("2023-01-01")
    train = (day - day.astype("datetime64[M]").astype("datetime64[D]")).astype(int) < 20
    low, high = np.percentile(data.column("price_per_mwh")[train].astype(float), [5, 95])
    assert (bank.price_p05, bank.price_p95) == (low, high)


@pytest.mark.full
@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("task", PRICED)
def test_no_price_leads_to_a_number_that_is_not_finite(task, price):
    refuse_infinite(with_series(task, own(price=PRICES[price]), split="train"))


@pytest.mark.full
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("task", READING)
def test_no_load_leads_to_a_number_that_is_not_finite(task, load):
    refuse_infinite(with_series(task, own(load=LOADS[load]), split="train"))


def test_a_flat_load_stays_at_its_largest_under_a_smallest_ratio():
    """min_load_ratio maps the smallest value, which here is the largest too: load = max_load_ratio * nominal."""
    for load in ("flat", "noise of rounding", "two neighbours in float32"):
        bank = bank_of(50.0, LOADS[load], load_floor=0.4)
        np.testing.assert_array_equal(bank.load_rows[:, bank.load_fields.index("load_factor")], 1.0)
    refuse_infinite(make("battery_arbitrage", data_source=own(load=7.0), min_load_ratio=0.3, split="train"))


def test_what_feeds_back_is_no_load_that_can_go_unserved():
    """A day of 19 hours at +1 and 5 at -4/7: 19 h of the largest load are what consumers may miss."""
    bank = bank_of(50.0, LOADS["feeds back at noon"])
    ahead = bank.load_rows[:, [bank.load_fields.index(f"load_ahead_{part}") for part in ("hi", "lo")]].sum(axis=1)
    assert ahead[24] - ahead[0] == pytest.approx(19.0)


@pytest.mark.parametrize(
    ("price", "usual"), [("flat", 50.0), ("zero", 1.0), ("free but for one hour", 500.0), ("negative", 20.0)]
)
def test_prices_are_shown_over_one_that_is_positive(price, usual):
    assert usual_price(own(price=PRICES[price]), "price_per_mwh") == usual


def test_shipped_prices_are_shown_over_their_median():
    data = load_dataset("ercot_dam_2021_2022")
    price = data.column("HB_HOUSTON")[split_rows(data, "train")]
    assert usual_price(data, data.resolve("HB_HOUSTON")) == np.median(price.astype(np.float64))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"price": 1e30}, "price.day_ahead_per_mwh holds 1e.30, more than 1e.09. Check its unit"),
        ({"load": 1e30}, "load.actual_mw holds 1e.30"),
        ({"load": -1.0}, "largest value of load_mw is -1"),
        ({"load": 0.0}, "largest value of load_mw is 0"),
        ({"load": np.where(HOUR == 3, 0.1, -2.0)}, "Check the signs"),
        ({"plants": {"solar_mw": 0.0, "wind_mw": 0.0}}, "largest value of solar_mw is 0"),
        ({"price": np.where(HOUR == 3, np.nan, 50.0)}, "lacks 365 of 8760 values"),
        ({"price": np.inf}, "infinite"),
    ],
)
def test_what_no_task_can_use_is_refused_with_its_value(columns, message):
    with pytest.raises(DataError, match=message):
        data = own(**columns)
        with_series("marl_ders_benchmark" if "plants" in columns else "battery_arbitrage", data)


def test_a_series_made_by_hand_with_an_infinity_is_refused():
    data = own()
    columns = dict(data.columns) | {"price.day_ahead_per_mwh": np.where(HOUR == 3, np.inf, 50.0)}
    with pytest.raises(DataError, match="lacks 365 of 8760 values"):
        with_series("battery_arbitrage", dataclasses.replace(data, columns=columns))


@pytest.mark.parametrize("profile", [0.0, 0.5, 1.0])
def test_constant_profiles_of_a_microgrid_are_finite(profile):
    day = (profile,) * 288
    sim = make("dc_microgrid", cpu_profile=day, solar_profile=day, temperature_profile=(20.0,) * 288)
    refuse_infinite(sim)


@pytest.mark.parametrize("use", ["flat", "on for an hour a day", "subnormal"])
def test_a_constant_trace_of_work_is_finite(use):
    steps = 365 * 288
    values = np.broadcast_to(np.repeat(np.broadcast_to(LOADS[use], HOURS), 12), steps)
    trace = make_series(
        "trace",
        np.datetime64("2018-01-01", "ns") + np.arange(steps) * np.timedelta64(5, "m"),
        {"load.profile_pu": values},
        {"load.profile_pu": "pu"},
        offset_minutes=0,
    )
    refuse_infinite(make("dc_microgrid", workload_source=trace))


@pytest.mark.full
@pytest.mark.parametrize("price", ["flat", "zero", "one peak hour", "one spike", "large"])
@pytest.mark.parametrize("task", ["battery_arbitrage", "marl_ev_v2g_1d"])
def test_planners_without_foresight_read_any_price(task, price):
    """price = low + span * signal, and a forecast of finite gains whose mean is that of the signals."""
    sim = with_series(task, own(price=PRICES[price]), split="train")
    low, span = signal_scale(sim)
    forecast, _ = price_forecast(sim)
    assert all(np.isfinite(x).all() for x in map(np.asarray, (forecast.mean, forecast.gain)))
    rows = np.asarray(sim.params.bank.price_rows, np.float64)
    shown = np.abs(rows[:, 1]) < 3
    np.testing.assert_allclose(low + span * rows[shown, 1], rows[shown, 0], rtol=1e-4, atol=1e-4 + 1e-6 * abs(span))


OBJECTS: dict[str, Any] = {"an array": np.full((2, 2), 0.5), "an object": object(), "a table": {"x": 1}, "bytes": b"x"}


@pytest.mark.tiers("full", quick=["battery_arbitrage"])
@pytest.mark.parametrize("task", list_tasks())
def test_every_keyword_says_what_it_takes(task):
    for name in ("version", "split", "dims", "dtype", *(keyword.name for keyword in keywords_of(lambda: make(task)))):
        for what, value in OBJECTS.items():
            try:
                make(task, **{name: value})
            except (PowerZooError, ValueError) as err:
                assert name in str(err) or str(value) in str(err), (name, what, str(err))
            except TypeError as err:
                assert name in str(err), (name, what, str(err))


def test_an_array_is_no_set_of_prices():
    with pytest.raises(SettingsError, match=r"price_set = \(0.0, 0.0\) must be text or a Path or a Series\."):
        make("battery_arbitrage", price_set=np.zeros(2))


@pytest.mark.full
@pytest.mark.parametrize("task", ["battery_arbitrage", "marl_ev_v2g_1d", "marl_opf"])
def test_double_precision_reads_the_same_series(task):
    series = [own(price=price) for price in PRICES.values()] if task in PRICED else []
    with jax.enable_x64(True):
        for data in (*series, *(own(load=load) for load in LOADS.values())):
            refuse_infinite(with_series(task, data, split="train", dtype="float64"))


@pytest.mark.full
@pytest.mark.parametrize("name", ["rule", "causal", "oracle"])
@pytest.mark.parametrize(("task", "data"), [("battery_arbitrage", {"price": 50.0}), ("dso", {"load": LOADS["flat"]})])
def test_planners_play_series_without_spread(task, data, name):
    """One price all year: nothing is to be earned, and every return is finite."""
    sim = with_series(task, own(**data), split="test")
    found = evaluate_baseline(sim, name, n_episodes=1)
    assert np.isfinite(found.mean_reward) and np.isfinite(list(found.mean_costs_by_constraint.values())).all()
    if task == "battery_arbitrage":
        assert found.mean_reward <= 1e-4


PLAYED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("battery_arbitrage", PRICES, {}),
    ("marl_ev_v2g_1d", PRICES, {}),
    ("dc_scheduling", PRICES, {}),
    ("dso", {}, LOADS),
    ("marl_der_arbitrage", PRICES, LOADS),
    ("marl_ders_benchmark", {}, LOADS),
    ("marl_opf", {}, LOADS),
    ("gencos_bidding", {}, LOADS),
    ("joint_trans_dist", {}, LOADS),
)


@pytest.mark.full
@pytest.mark.parametrize(("task", "prices", "loads"), PLAYED)
def test_a_few_steps_on_any_series_show_and_pay_finite_numbers(task, prices, loads):
    many = {k: own(price=v) for k, v in prices.items()} | {k: own(load=v) for k, v in loads.items()}
    sims = {what: with_series(task, data, split="train") for what, data in many.items()}
    first = next(iter(sims.values()))
    action = jnp.asarray(idle_action(first)) + 0.5

    @jax.jit
    def begin(params: Any) -> tuple[Any, Any]:
        found: tuple[Any, Any] = first.env.init(jax.random.key(3), params)
        return found

    step = jax.jit(lambda state, params: first.env.step(state, action, params)[:4])
    for what, sim in sims.items():
        state, obs = begin(sim.params)
        assert np.isfinite(np.asarray(obs)).all(), what
        for _ in range(3):
            state, *numbers = step(state, sim.params)
            assert all(np.isfinite(np.asarray(x)).all() for x in numbers), what
