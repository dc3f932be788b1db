"""Prices that were never recorded: what they are made of, and that only training plays them."""

from __future__ import annotations

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.data.augment import Augmentation, made_row, made_years, weekend
from powerzoo_jax.data.splits import span, split_days
from powerzoo_jax.envs.series import MEAN_AHEAD, PRICE
from powerzoo_jax.rl.training.config import PPOConfig

TASK, YEARS, DAY = "battery_arbitrage", 2, 48
TRAIN = split_days("de_smard_2018", "train")
# a day's value says which day and which step it is
TOLD = np.arange(len(TRAIN))[:, None] + np.arange(24) / 100


@pytest.fixture(scope="module")
def banks():
    """(plain, augmented) sims of training."""
    return powerzoo_jax.make(TASK, split="train"), powerzoo_jax.make(
        TASK, split="train", augment="blocks", augment_years=YEARS
    )


def test_blocks_are_copied_from_training_days_of_the_season_at_their_time_of_day():
    made = made_years(TRAIN, TOLD, Augmentation("blocks", YEARS, 6))
    day, step = np.divmod(np.round(100 * made).astype(int), 100)
    np.testing.assert_array_equal(step, np.broadcast_to(np.arange(24), step.shape))
    assert (day.reshape(-1, 4, 6) == day.reshape(-1, 4, 6)[:, :, :1]).all()
    assert len(np.unique(day[0])) > 1  # a day of several ones
    date = np.arange(365 * YEARS)[:, None] % 365
    away = (TRAIN[day] - np.datetime64("2018-01-01")).astype(int) - date
    assert np.abs((away + 182) % 365 - 182).max() <= 21
    rest = weekend(TRAIN)[day]
    assert (rest == rest[:, :1]).all() and 0.2 < rest[:, 0].mean() < 0.37


def test_synthetic_days_have_the_mean_and_spread_of_the_recorded_ones():
    """One law for the whole year: noise of spread 3, which a day shares with the next one, around a profile."""
    days = span("2018-01-01", "2018-12-31")
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((366, 4))
    values = np.array([1.0, 5.0, 2.0, 4.0]) + 3.0 * (0.8944 * noise[1:] + 0.4472 * noise[:-1])
    made = made_years(days, values, Augmentation("synthetic", 40))
    np.testing.assert_allclose(made.mean(axis=0), values.mean(axis=0), atol=0.4)
    np.testing.assert_allclose(made.std(axis=0), values.std(axis=0), rtol=0.1)
    assert len(np.unique(made, axis=0)) == len(made)
    years = made.reshape(40, 365, 4)
    off = years - values.mean(axis=0)
    # 0.4 where work days follow one another; a source that a weekend cuts off lends nothing to the next day
    assert 0.2 < np.corrcoef(off[:, :-1].ravel(), off[:, 1:].ravel())[0, 1] < 0.4


def test_the_recorded_rows_of_training_stay_and_the_others_follow_them(banks):
    plain, more = (sim.params for sim in banks)
    rows = len(plain.bank.price_rows)
    np.testing.assert_array_equal(more.bank.price_rows[:rows], plain.bank.price_rows)
    np.testing.assert_array_equal(more.bank.load_rows, plain.bank.load_rows)
    assert len(more.bank.price_rows) == rows + YEARS * 365 * DAY
    starts, before = more.starts, plain.starts
    np.testing.assert_array_equal(starts.pair_count, before.pair_count + YEARS)
    first = np.asarray(starts.price_row)[np.arange(len(starts.pair_count)), before.pair_count]
    own = (first - rows) // DAY
    year_day = (np.array(TRAIN) - np.datetime64("2018-01-01")).astype(int)
    assert set(own[: int(starts.n_start)]) <= set(range(365)) and len(set(own)) > len(year_day) // 2
    np.testing.assert_array_equal(starts.price_row[:, 0], before.price_row[:, 0])


def test_blocks_hold_only_values_of_training_days_and_their_forecasts_come_true(banks):
    plain, more = (np.asarray(sim.params.bank.price_rows) for sim in banks)
    starts = banks[0].params.starts
    first = np.unique(np.asarray(starts.price_row)[: int(starts.n_start), 0])
    known = plain[first[:, None] + np.arange(DAY), PRICE]
    made = more[len(plain) :, PRICE]
    assert np.isin(made, known).all()
    year = more[len(plain) : len(plain) + 365 * DAY]
    np.testing.assert_array_equal(year[:-DAY, 2], year[2 : 2 - DAY, 1])  # an hour ahead
    np.testing.assert_allclose(more[len(plain), MEAN_AHEAD], made[:DAY].mean(), rtol=1e-5)


@pytest.mark.parametrize("split", ["val", "test", "price_stress"])
def test_no_other_split_is_played_with_days_that_were_never_recorded(split):
    with pytest.raises(ValueError, match=f"augment = 'blocks' adds days to split 'train'; '{split}'"):
        powerzoo_jax.make(TASK, split=split, augment="blocks")


def test_what_cannot_be_made_is_refused_by_name():
    with pytest.raises(ValueError, match="Did you mean 'blocks'"):
        powerzoo_jax.make(TASK, split="train", augment="block")
    with pytest.raises(ValueError, match="Did you mean 'blocks'"):
        PPOConfig(augment="block")
    with pytest.raises(ValueError, match="augment_block_hours = 5 must divide a day"):
        made_years(TRAIN, TOLD, Augmentation("blocks", 1, 5))
    with pytest.raises(TypeError, match="augment"):
        powerzoo_jax.make("gencos_bidding", split="train", augment="blocks")


def test_a_start_late_in_the_year_is_paired_where_its_horizon_fits():
    rows = made_row(np.array(["2018-01-01", "2018-12-31"], "datetime64[D]"), 7, 1)
    assert rows.tolist() == [365, 365 + 358]
