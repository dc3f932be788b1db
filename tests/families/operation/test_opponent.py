"""Opponents: attacks as often, as long and on the same lines as Grid2Op's own, and its budget to the step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.stats import chi2_contingency

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.families.operation import opponent
from powerzoo_jax.families.operation.grid2op.example import LINES
from tests.references.grid2op_opponent import CONFIGS, OUT, PERIOD, RHO, STEPS, STEPS_OUT, count

# Of Grid2Op 1.12.6, 300 episodes of 400 steps each: python -m tests.references.grid2op_opponent
RECORDED = {
    "RandomLineOpponent": {
        "waits": [300, 0, 0, 0, 7500, 0, 0, 0, 0, 0],
        "durations": [0, 0, 0, 0, 0, 7500, 0, 0, 0, 0],
        "lines": [0, 2711, 0, 0, 2444, 2645, 0],
    },
    "WeightedRandomOpponent": {
        "waits": [30, 65, 153, 216, 6482, 804, 0, 0, 0, 0],
        "durations": [0, 0, 0, 0, 0, 7462, 0, 19, 0, 0],
        "lines": [0, 3462, 0, 0, 2956, 1332, 0],
    },
    "GeometricOpponent": {
        "waits": [0, 252, 506, 416, 543, 501, 455, 389, 471, 519],
        "durations": [0, 0, 550, 455, 780, 632, 710, 517, 349, 0],
        "lines": [0, 2329, 0, 0, 589, 1134, 0],
    },
    "GeometricOpponentMultiArea": {
        "waits": [0, 761, 1469, 1130, 1461, 1425, 1127, 955, 849, 286],
        "durations": [3, 6, 1, 1038, 1714, 1333, 1529, 1330, 1394, 849],
        "lines": [985, 2641, 0, 0, 714, 1278, 3845],
    },
}
# the first 40 steps of RandomLineOpponent: those that its attack goes on, and its budget after each
DOWN = (8, 7, 6, 5, 4, 3, 2, 1)
LEFT = [*DOWN, *[0] * 7, *DOWN, *[0] * 8, *DOWN, 0]
FALL, RISE = np.arange(7.0, 3.0, -0.5), np.arange(4.0, 8.0, 0.5)
BUDGET = [7.5, *FALL[:-1], *RISE[1:], *FALL, *RISE, *FALL, 4.0]


def play(kind, episodes, seed=0):
    """Attacks (N, T, L), the steps that they go on and the budget, (N, T)."""
    p = opponent.read_opponent(CONFIGS[kind] | {"opponent_class": kind}, LINES)

    class Params:
        opponent = p
        horizon = jnp.asarray(STEPS)

    def step(carry, t):
        state, key = carry
        on = ~state.lines & ((jnp.arange(len(LINES)) != OUT) | (t % PERIOD >= STEPS_OUT))
        state, attack = opponent.strike(state, on, jnp.asarray(RHO), p, Params.horizon, jax.random.fold_in(key, t))
        return (state, key), (attack.lines, attack.duration, state.budget)

    def episode(key):
        start, key = jax.random.split(key)
        return lax.scan(step, (opponent.initial(start, Params), key), jnp.arange(STEPS))[1]

    return map(np.asarray, jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(seed), episodes)))


@pytest.mark.full
@pytest.mark.parametrize("kind", CONFIGS)
def test_attacks_are_distributed_as_grid2ops(kind):
    attacks, _, _ = play(kind, 300)
    for name, ours in count(attacks, CONFIGS[kind]).items():
        both = np.array([ours, RECORDED[kind][name]])
        few = both.sum(axis=0) < 20  # too rare for the statistic: counted as one
        both = np.concatenate([both[:, ~few], both[:, few].sum(axis=1, keepdims=True)], axis=1)
        both = both[:, both.sum(axis=0) > 0]
        if both.shape[1] > 1:
            assert chi2_contingency(both).pvalue > 1e-3, (name, both.tolist())


def test_budget_and_times_are_grid2ops_to_the_step():
    attacks, left, budget = play("RandomLineOpponent", 2)
    np.testing.assert_array_equal(left[0, :40], LEFT)
    np.testing.assert_array_equal(budget[0, :40], BUDGET)
    np.testing.assert_array_equal(attacks.any(axis=2), left > 0)


@pytest.mark.parametrize("kind", CONFIGS)
def test_budget_pays_for_every_line_and_is_never_overdrawn(kind):
    attacks, _, budget = play(kind, 20, seed=1)
    config = CONFIGS[kind]
    spent = np.cumsum(attacks.sum(axis=2), axis=1)
    added = config["opponent_init_budget"] + config["opponent_budget_per_ts"] * np.arange(1, STEPS + 1)
    np.testing.assert_allclose(budget, added - spent, atol=1e-4)
    assert budget.min() >= 0


WRONG = [
    ({"opponent_class": "CleverOpponent"}, "RandomLineOpponent"),
    ({"opponent_budget_class": "UnlimitedBudget"}, "BaseActionBudget"),
    ({"kwargs_opponent": {"lines_attacked": ["0_9_9"]}}, "0_9_9"),
    ({"kwargs_opponent": {"lines_attacked": LINES[:3], "rho_normalization": [1.0]}}, "3 lines"),
    ({"opponent_budget_per_ts": -1.0}, "at least 0"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_settings_that_no_opponent_has_are_refused(change, message):
    config = CONFIGS["GeometricOpponent"] | {"opponent_class": "GeometricOpponent"} | change
    with pytest.raises(DataError, match=message):
        opponent.read_opponent(config, LINES)


def test_times_of_a_geometric_opponent_grow():
    config = CONFIGS["GeometricOpponent"] | {"opponent_class": "GeometricOpponent"}
    config["kwargs_opponent"] = config["kwargs_opponent"] | {"minimum_attack_duration_hour": 3}
    with pytest.raises(DataError, match="must grow"):
        opponent.read_opponent(config, LINES)


@pytest.mark.parametrize("change", [{"opponent_class": "BaseOpponent"}, {"kwargs_opponent": {}}])
def test_a_world_may_have_no_opponent(change):
    config = CONFIGS["RandomLineOpponent"] | {"opponent_class": "RandomLineOpponent"} | change
    assert opponent.read_opponent(config, LINES) is None
    assert opponent.read_opponent({}, LINES) is None
