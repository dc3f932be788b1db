"""Unit-commitment rules against an independent checker that reads histories, and against hand-made histories."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases.commitment import commitment_table
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf.commit import (
    CommitmentRules,
    advance_commitment,
    commitment_rules,
    initial_commitment,
    legal_commitment,
    no_load_cost,
    output_window,
    project_commitment,
    reserve_shortfall,
    switching_cost,
    table_rules,
)

pytestmark = pytest.mark.property

STEPS, SEQUENCES = 30, 10_000
UNITS = {
    "p_min_mw": np.array([150.0, 20.0, 25.0, 10.0, 0.0, 30.0]),
    "p_max_mw": np.array([455.0, 130.0, 162.0, 55.0, 80.0, 90.0]),
    "ramp_mw": np.array([100.0, 50.0, 40.0, 60.0, 15.0, 20.0]),
    "stop_mw": np.array([np.inf, 60.0, np.inf, 30.0, np.inf, 35.0]),
    "min_up": np.array([8, 5, 3, 1, 2, 4]),
    "min_down": np.array([6, 4, 3, 1, 2, 5]),
    "startup_usd": np.array([4500.0, 560.0, 900.0, 30.0, 0.0, 100.0]),
    "shutdown_usd": np.array([0.0, 10.0, 0.0, 5.0, 1.0, 0.0]),
    "no_load_usd_per_hour": np.array([1000.0, 680.0, 450.0, 660.0, 0.0, 10.0]),
}
N_UNIT = 6


def rules_of(dtype: str = "float32", **changes: object) -> CommitmentRules:
    return commitment_rules(**(UNITS | changes), dtype=dtype)


@jax.jit
def play(rules: CommitmentRules, intent: jax.Array, level: jax.Array) -> tuple[jax.Array, ...]:
    """Histories of a batch: intents (B, T, G) bool, place in the window (B, T, G) in [0, 1]."""

    def episode(intent: jax.Array, level: jax.Array) -> tuple[jax.Array, ...]:
        def advance(state, inputs):  # type: ignore[no-untyped-def]
            requested, place = inputs
            legal = legal_commitment(rules, state)
            on, overridden = project_commitment(rules, state, requested)
            low, high = output_window(rules, state, on)
            p = low + place * (high - low)
            start, stop = switching_cost(rules, state, on)
            new = advance_commitment(rules, state, on, p)
            return new, (on, p, overridden, legal, start + stop, low, high)

        first = initial_commitment(rules, 0.5 * (rules.p_min_mw + rules.p_max_mw))
        return jax.lax.scan(advance, first, (intent, level))[1]

    return jax.vmap(episode)(intent, level)


@pytest.fixture(scope="module")
def histories() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    # a third flips at random, a third holds for long, a third asks for what is hardest: everyone together
    flips = rng.random((SEQUENCES, STEPS, N_UNIT)) < 0.5
    held = rng.random((SEQUENCES, STEPS, N_UNIT)) < 0.1
    held = np.cumsum(held, axis=1) % 2 == 0
    together = np.repeat(rng.random((SEQUENCES, STEPS, 1)) < 0.5, N_UNIT, axis=2)
    kind = np.arange(SEQUENCES)[:, None, None] % 3
    intent = np.where(kind == 0, flips, np.where(kind == 1, held, together))
    level = np.clip(rng.uniform(-0.3, 1.3, (SEQUENCES, STEPS, N_UNIT)), 0, 1).astype("float32")
    out = play(rules_of(), jnp.asarray(intent), jnp.asarray(level))
    return intent, *(np.asarray(x) for x in out)


def walk(intent: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Who is on, and what switching costs, by the words of the rule: one step and one unit after the other in NumPy."""
    on, cost = np.zeros(intent.shape, bool), np.zeros(intent.shape)
    for g in range(N_UNIT):
        is_on = np.ones(len(intent), bool)
        since = np.full(len(intent), 100)
        before = np.full(len(intent), 0.5 * (UNITS["p_min_mw"][g] + UNITS["p_max_mw"][g]))
        for t in range(STEPS):
            stops = is_on & ~intent[:, t, g] & (since >= UNITS["min_up"][g]) & (before <= UNITS["stop_mw"][g])
            starts = ~is_on & intent[:, t, g] & (since >= UNITS["min_down"][g])
            is_on = (is_on | starts) & ~stops
            since = np.where(stops | starts, 1, since + 1)
            cost[:, t, g] = starts * UNITS["startup_usd"][g] + stops * UNITS["shutdown_usd"][g]
            on[:, t, g], before = is_on, p[:, t, g]
    return on, cost


def test_ten_thousand_random_sequences_agree_with_an_independent_checker(histories):
    intent, on, p, overridden, _, cost, _, _ = histories
    expected, expected_cost = walk(intent, p)
    assert np.array_equal(on, expected)
    assert np.array_equal(overridden, expected != intent)
    np.testing.assert_allclose(cost, expected_cost)


def runs_of(on: np.ndarray) -> list[tuple[bool, int]]:
    """(state, length) of the complete runs of one history: neither the first nor the last is complete."""
    cuts = np.flatnonzero(np.diff(on)) + 1
    return [(bool(part[0]), len(part)) for part in np.split(on, cuts)[1:-1]]


def test_no_complete_run_is_shorter_than_its_minimum_time(histories):
    on = histories[1]
    shortest = {True: np.full(N_UNIT, STEPS), False: np.full(N_UNIT, STEPS)}
    for history in on[:1500]:
        for g in range(N_UNIT):
            for state, length in runs_of(history[:, g]):
                shortest[state][g] = min(shortest[state][g], length)
    # tight as well as kept: random play does reach every minimum
    assert np.array_equal(shortest[True], UNITS["min_up"])
    assert np.array_equal(shortest[False], UNITS["min_down"])


def test_no_dispatch_leaves_the_limits_or_the_ramps(histories):
    on, p = histories[1], histories[2].astype(float)
    slack = 1e-4  # MW: rounding of float32 at 455 MW
    assert np.all(p[~on] == 0)
    assert np.all((p >= UNITS["p_min_mw"] - slack) | ~on) and np.all((p <= UNITS["p_max_mw"] + slack) | ~on)
    before, after, was = p[:, :-1], p[:, 1:], on[:, :-1]
    now = on[:, 1:]
    assert np.all((np.abs(after - before) <= UNITS["ramp_mw"] + slack) | ~(was & now))
    first = np.maximum(UNITS["p_min_mw"], UNITS["ramp_mw"])
    assert np.all((after <= first + slack) | ~(now & ~was))
    assert np.all((before <= UNITS["stop_mw"] + slack) | ~(was & ~now))
    assert np.abs(after - before)[was & now].max() > 99  # the ramps did bind


def test_the_mask_tells_what_the_projection_lets_pass(histories):
    intent, _, _, overridden, legal, *_ = histories
    allowed = np.where(intent, legal[..., 1], legal[..., 0])
    assert np.array_equal(allowed, ~overridden)
    assert legal.any(-1).all()
    assert not legal.all()


def test_a_unit_stops_only_after_its_minimum_time_and_pays_for_each_start():
    """A history by hand: up 2 and down 2 steps, ramp 10 MW, range 20 to 60 MW."""
    rules = commitment_rules(
        [20.0], [60.0], ramp_mw=10.0, min_up=2, min_down=2, startup_usd=500.0, shutdown_usd=200.0, dtype="float32"
    )
    intent = np.array([0, 1, 1, 0, 0, 1], bool).reshape(1, 6, 1)
    on, p, overridden, legal, cost, low, high = (x[0, :, 0] for x in play(rules, intent, jnp.ones((1, 6, 1))))
    assert on.tolist() == [False, False, True, True, False, False]
    assert overridden.tolist() == [False, True, False, True, False, True]
    assert p.tolist() == [0.0, 0.0, 20.0, 30.0, 0.0, 0.0]
    assert cost.tolist() == [200.0, 0.0, 500.0, 0.0, 200.0, 0.0]
    assert (low.tolist()[2:4], high.tolist()[2:4]) == ([20.0, 20.0], [20.0, 30.0])
    assert legal.tolist() == [[True, True], [True, False], [True, True], [False, True], [True, True], [True, False]]


def test_a_unit_out_of_service_is_off_whatever_is_asked():
    rules = rules_of(available=np.array([True, False, True, True, True, True]))
    everyone = np.ones((1, STEPS, N_UNIT), bool)
    on, p, *_ = play(rules, everyone, jnp.ones((1, STEPS, N_UNIT)))
    assert not np.asarray(on)[..., 1].any() and not np.asarray(p)[..., 1].any()
    assert np.asarray(on)[..., [0, 2, 3, 4, 5]].all()


def test_reserve_and_running_costs_count_units_that_run():
    rules = rules_of("float32")
    on = jnp.asarray([True, False, True, False, False, False])
    assert float(reserve_shortfall(rules, on, jnp.float32(700.0))) == pytest.approx(1.05 * 700 - 617)
    assert float(reserve_shortfall(rules, on, jnp.float32(500.0))) == 0.0
    assert no_load_cost(rules, on).tolist() == [1000.0, 0.0, 450.0, 0.0, 0.0, 0.0]


def test_a_table_in_hours_becomes_whole_steps():
    rules = table_rules(commitment_table(load_case("case118")), 0.75)
    assert sorted(set(rules.min_up.tolist())) == [2, 6, 11]  # 1, 4 and 8 h
    base = np.argmax(np.asarray(rules.min_up))
    assert float(rules.ramp_mw[base] / rules.p_max_mw[base]) == pytest.approx(0.3 * 0.75)
    assert float(rules.startup_usd[base] / rules.p_max_mw[base]) == pytest.approx(60)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"p_min_mw": np.full(6, 100.0)}, r"unit 4, 5, 6 with p_min_mw outside 0\.\.p_max_mw"),
        ({"ramp_mw": -1.0}, "ramp_mw below 0"),
        ({"stop_mw": 20.0}, "unit 1, 3, 6 with start_mw or stop_mw below p_min_mw"),
        ({"min_up": 0}, "min_up or min_down that is no whole number"),
        ({"startup_usd": np.nan}, "startup_usd below 0 or not finite"),
    ],
)
def test_rules_that_cannot_be_kept_are_refused_by_unit(change, words):
    with pytest.raises(CaseError, match=words):
        rules_of(**change)
