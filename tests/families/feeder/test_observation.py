"""What battery_arbitrage shows: names, order, the coming step, true futures of prices, and no day of another split."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.data.bank import STRESS_COLUMN, STRESS_SET, build_bank
from powerzoo_jax.data.library import load_dataset
from powerzoo_jax.data.series import day_matrix
from powerzoo_jax.data.splits import label_days
from powerzoo_jax.envs.series import draw_episode
from tests.families.feeder.storage_episodes import HORIZON, POWER_MW, Episodes, make, rows_of, run
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

SPLITS = ("train", "val", "test", "price_stress")
DRAWS = 6000  # the largest split has 240 days: missing one of them has a chance of 3e-9


def played(split: str) -> Episodes:
    return run((("dtype", "float32"), ("split", split)))


def field(episodes: Episodes, name: str) -> np.ndarray:
    """One observation field after every step, (B, T)."""
    return episodes.steps.obs[..., 0, episodes.sim.env.fields.names.index(name)].astype(float)


def test_fields_stand_in_the_order_of_the_contract():
    buses, lines = range(1, 34), range(1, 33)
    device = ("p_charge_max_norm", "p_discharge_max_norm", "p_mw_norm", "soc", "time_cos", "time_sin")
    expected = [f"node_{i}_v_norm" for i in buses]
    expected += [f"line_{i}_p_norm" for i in lines] + [f"line_{i}_q_norm" for i in lines]
    expected += [f"node_{i}_p_load_norm" for i in buses] + [f"node_{i}_q_load_norm" for i in buses]
    expected += [f"battery_0_{name}" for name in ("soc", "p_dis_max", "p_chg_max", "p_norm")]
    expected += ["time_sin", "time_cos", *(f"battery_0/{name}" for name in device)]
    expected += ["time/time_sin", "time/time_cos", "price_signal", *(f"price_forecast_{k}" for k in range(1, 25))]
    assert make().env.fields.names == (*expected, "settlement_price")


@pytest.mark.full
def test_the_observation_has_203_fields():
    assert make().env.dims.obs == 203 and played("train").obs0.shape == (8, 1, 203)


def test_without_price_forecast_the_observation_has_178_fields():
    sim = make(price_forecast=False)
    assert sim.env.fields.names == (*make().env.fields.names[:177], "settlement_price")
    assert jax.eval_shape(sim.init, jax.random.key(0))[1].shape == (1, 178)


def true_signals(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Price signal of every half hour of the price set, and the last half hour of each one's run of equal labels."""
    column, name = (
        (STRESS_COLUMN, STRESS_SET) if split == "price_stress" else ("price.day_ahead_per_mwh", "de_smard_2018")
    )
    days, prices = day_matrix(load_dataset(name), column, 30)
    labels = label_days(name)
    if split == "price_stress":
        days, prices, labels = days[labels == split], prices[labels == split], labels[labels == split]
    low, high = np.quantile(_training_prices(name, column), [0.05, 0.95])
    last = np.arange(len(days))
    for d in reversed(range(len(days) - 1)):
        if labels[d] == labels[d + 1] and days[d + 1] - days[d] == np.timedelta64(1, "D"):
            last[d] = last[d + 1]
    return np.clip((prices - low) / (high - low), -1, 3).reshape(-1), np.repeat((last + 1) * HORIZON - 1, HORIZON)


def _training_prices(name: str, column: str) -> np.ndarray:
    return day_matrix(load_dataset(name), column, 60)[1][label_days(name) == "train"].reshape(-1)


@pytest.mark.tiers("full", long=["0-train"])
@pytest.mark.parametrize("split", ["train", "price_stress"])
@pytest.mark.parametrize("hours", [0, 1, 24])
def test_observed_prices_are_the_true_future_of_their_run(split, hours):
    episodes = played(split)
    signal, run_end = true_signals(split)
    row = episodes.state.price_row[:, None] + np.minimum(np.arange(HORIZON) + 1, HORIZON - 1)
    seen = field(episodes, f"price_forecast_{hours}" if hours else "price_signal")
    expected = signal[np.minimum(row + 2 * hours, run_end[row])]
    np.testing.assert_allclose(seen, expected, atol=tolerance("signal", "float32"))


def test_the_first_observation_shows_the_first_step():
    episodes = played("train")
    names = episodes.sim.env.fields.names
    factor = np.asarray(episodes.sim.params.bank.load_rows)[episodes.state.load_row, 0] * 0.85
    seen = episodes.obs0[:, 0, names.index("node_18_p_load_norm")]
    np.testing.assert_allclose(seen, factor * 0.09 / 10, rtol=1e-6)


def test_loads_are_those_of_the_coming_step_and_repeat_the_last_one_at_the_end():
    episodes = played("train")
    case = load_case("case33bw")
    coming = rows_of(episodes, "load_rows", ahead=1)[..., 0] * 0.85
    for bus in (2, 18, 33):
        p_load = case.p_load_mw[case.bus_index[bus]] / case.base_mva
        np.testing.assert_allclose(field(episodes, f"node_{bus}_p_load_norm"), coming * p_load, rtol=1e-6)


def test_a_battery_is_subtracted_from_the_net_load_of_its_bus():
    episodes = played("train")
    case = load_case("case33bw")
    at = case.bus_index[6]
    net = rows_of(episodes, "load_rows", ahead=1)[..., 0] * 0.85 * case.p_load_mw[at]
    net -= episodes.steps.info.p_mw[..., 0].astype(float)
    seen = field(episodes, "node_6_p_load_norm") * case.base_mva
    np.testing.assert_allclose(seen, net, atol=tolerance("soc", "float32"))


def test_the_clock_is_that_of_the_coming_step():
    episodes = played("train")
    angle = 2 * np.pi * np.minimum(np.arange(HORIZON) + 1, HORIZON - 1) / HORIZON
    for name in ("time_sin", "time/time_sin", "battery_0/time_sin"):
        np.testing.assert_allclose(
            field(episodes, name), np.tile(np.sin(angle), (8, 1)), atol=tolerance("signal", "float32")
        )


def test_device_fields_describe_the_battery_after_the_step():
    episodes = played("train")
    soc, p = episodes.steps.info.soc[..., 0], episodes.steps.info.p_mw[..., 0]
    for prefix, power in (("battery_0_", "p_norm"), ("battery_0/", "p_mw_norm")):
        np.testing.assert_array_equal(field(episodes, f"{prefix}soc"), soc)
        np.testing.assert_allclose(field(episodes, f"{prefix}{power}"), p / POWER_MW, atol=tolerance("soc", "float32"))


def test_observed_power_limits_bound_what_the_next_step_delivers():
    episodes = played("train")
    p = episodes.steps.info.p_mw[:, 1:, 0] / POWER_MW
    slack = tolerance("soc", "float32")
    assert (p <= field(episodes, "battery_0_p_dis_max")[:, :-1] + slack).all()
    assert (p >= -field(episodes, "battery_0_p_chg_max")[:, :-1] - slack).all()


def test_every_observation_lies_in_its_bounds():
    episodes = played("price_stress")
    box, _ = episodes.sim.spaces()
    assert ((episodes.steps.obs >= box.low) & (episodes.steps.obs <= box.high)).all()


def visited(sim: object) -> tuple[np.ndarray, np.ndarray]:
    """First load and price rows of many drawn episodes."""
    params = sim.params  # type: ignore[attr-defined]
    low = params.storage.soc_low
    keys = jax.random.split(jax.random.key(3), DRAWS)
    draws = jax.jit(jax.vmap(lambda starts, key: draw_episode(key, starts, low, low), in_axes=(None, 0)))(
        params.starts, keys
    )
    return np.asarray(draws.load_row), np.asarray(draws.price_row)


def day_labels(days: np.ndarray) -> set[str]:
    """The splits of calendar days of a single-year set, by the rule of the contract."""
    of_month = (days - days.astype("datetime64[M]")).astype(int) + 1
    return set(np.select([of_month <= 20, of_month <= 24, of_month >= 26], ["train", "val", "test"], "unused").tolist())


@pytest.mark.tiers(full=["price_stress"])
@pytest.mark.parametrize("split", SPLITS)
def test_drawn_days_are_exactly_the_eligible_days_of_the_split(split):
    load_row, _ = visited(make(split=split))
    days = np.datetime64("2016-01-01") + np.unique(load_row) // HORIZON
    assert not (load_row % HORIZON).any()
    assert days.astype(str).tolist() == list(
        build_bank(
            "simbench_2016", "mv_semiurb", "de_smard_2018", "price.day_ahead_per_mwh", 30, split, HORIZON
        ).start_day
    )
    assert day_labels(days) == {"test" if split == "price_stress" else split}


@pytest.mark.tiers(full=["price_stress"])
@pytest.mark.parametrize("split", SPLITS)
def test_drawn_prices_come_from_days_of_the_split(split):
    _, price_row = visited(make(split=split))
    if split == "price_stress":
        assert price_row.min() >= 0 and price_row.max() < 11 * HORIZON  # the table holds the eleven days alone
    else:
        assert day_labels(np.datetime64("2018-01-01") + np.unique(price_row) // HORIZON) == {split}


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_long_episode_never_leaves_its_split(split):
    load_row, price_row = visited(make(split=split, max_steps=96))
    for first, rows in ((np.datetime64("2016-01-01"), load_row), (np.datetime64("2018-01-01"), price_row)):
        start = first + np.unique(rows) // HORIZON
        assert day_labels(start) == {split} == day_labels(start + 1)
