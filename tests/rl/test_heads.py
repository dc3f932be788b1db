"""Heads of a policy: densities by hand, masks that hold, and choices that reach the task as what they mean."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.networks.heads import Dist, Head, head_of
from powerzoo_jax.tasks import make

MIXED = Head((0, 3, 2))
LOGITS = [0.5, 9.0, -0.2, 1.0, 1.0]  # the middle option would be drawn nearly always
LEGAL = [True, False, True, False, True]


def mixed() -> tuple[Dist, jax.Array]:
    dist = MIXED.dist(jnp.array([[0.3, *LOGITS]]), jnp.array([[-0.5]]))
    return dist, jnp.array([LEGAL])


def test_a_leaning_distance_weighs_choices_of_the_last_option_alone():
    head = Head((0, 2))
    dist = head.dist(jnp.array([0.3, 0.4, -1.0]), jnp.array([-0.5]))
    off, on = np.array([0.4, -1.0]) - np.log(np.exp(0.4) + np.exp(-1.0))
    error = 0.5 * (0.3 - 0.1) ** 2
    for action, plain, leaning in (([0.1, -1.0], -off, -off), ([0.1, 1.0], -on, -5.0 * on)):
        assert float(head.distance(dist, jnp.array(action))) == pytest.approx(error + plain, rel=1e-5)
        assert float(head.distance(dist, jnp.array(action), lean=5.0)) == pytest.approx(error + leaning, rel=1e-5)
        for counts, left in (([True, False], error), ([False, True], plain), ([False, False], 0.0)):
            heard = head.distance(dist, jnp.array(action), counts=np.array(counts))
            assert float(heard) == pytest.approx(left, rel=1e-5)


def test_the_log_probability_of_a_mixed_action_is_the_sum_of_its_columns():
    dist, legal = mixed()
    raw = jnp.array([[1.1, 2.0, 1.0]])
    z = (1.1 - 0.3) / np.exp(-0.5)
    gaussian = -0.5 * z**2 + 0.5 - 0.5 * np.log(2 * np.pi)
    choice = -0.2 - np.log(np.exp(0.5) + np.exp(-0.2))  # of the two options left; the second choice is forced
    assert float(MIXED.log_prob(dist, raw, legal)[0]) == pytest.approx(gaussian + choice, rel=1e-5)


def test_the_entropy_of_a_mixed_action_is_the_sum_of_its_columns():
    dist, legal = mixed()
    p = np.exp([0.5, -0.2]) / np.exp([0.5, -0.2]).sum()
    expected = -0.5 + 0.5 * np.log(2 * np.pi * np.e) - (p * np.log(p)).sum()
    assert float(MIXED.entropy(dist, legal)[0]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.full
def test_an_illegal_option_is_never_drawn_nor_preferred():
    dist, legal = mixed()
    raw = jax.vmap(lambda key: MIXED.sample(key, dist, legal))(jax.random.split(jax.random.key(0), 2000))[:, 0]
    assert set(np.unique(raw[:, 1]).tolist()) == {0.0, 2.0}
    assert set(np.unique(raw[:, 2]).tolist()) == {1.0}
    share = np.exp(0.5) / np.exp([0.5, -0.2]).sum()
    assert float(jnp.mean(raw[:, 1] == 0)) == pytest.approx(share, abs=4 * np.sqrt(0.25 / 2000))
    assert MIXED.mode(dist, legal)[0].tolist() == pytest.approx([0.3, 0.0, 1.0])


def test_an_agent_without_a_legal_option_may_take_any():
    dist, _ = mixed()
    raw = jnp.array([[0.3, 1.0, 0.0]])
    barred, free = (MIXED.log_prob(dist, raw, mask) for mask in (jnp.zeros((1, 5), bool), jnp.ones((1, 0), bool)))
    assert float(barred[0]) == float(free[0])


def test_what_is_sent_lies_in_the_box():
    sent = Head((0, 3, 2), squash=True).emit(jnp.array([[0.7, 1.0, 0.0], [-9.0, 2.0, 1.0]]))
    np.testing.assert_allclose(sent, [[np.tanh(0.7), 0.0, -1.0], [np.tanh(-9.0), 1.0, 1.0]], rtol=1e-6)


def test_choices_without_a_box_are_sent_as_integers():
    sent = Head((3,), whole=True).emit(jnp.array([[2.0]]))
    assert sent.dtype == jnp.int32 and sent.tolist() == [[2]]


def test_a_start_is_the_odds_of_a_choice_of_two():
    """0.6 stands for 80 % on the second option; a column drawn from a Gaussian starts at its number."""
    head = Head((0, 2))
    biases = jnp.asarray(head.start(np.array([0.3, 0.6])))
    assert float(biases[0]) == pytest.approx(0.3)
    np.testing.assert_allclose(jax.nn.softmax(biases[1:]), [0.2, 0.8], rtol=1e-6)
    assert head.start(np.array([0.3, 0.0]))[1:] == (0.0, 0.0)


@pytest.mark.parametrize("task", ["marl_uc", "comparison_tso_centralized"])
def test_a_choice_reaches_the_units_as_their_commitment(task):
    """The first options chosen switch every unit off, the second on, whatever the scores say."""
    sim = make(task, split="train")
    head = head_of(sim)
    agents, units = sim.env.dims.agent, sim.env.dims.unit
    assert agents * sum(head.options) == agents * sim.env.dims.choice
    for option, running in ((0.0, False), (1.0, True)):
        raw = np.full((agents, len(head.options)), 0.4, np.float32)
        raw[:, list(head.picks)] = option
        command = sim.env.decode(head.emit(jnp.asarray(raw)), sim.params)
        assert command.intent.tolist() == [running] * units
        np.testing.assert_allclose(command.place, 0.7, rtol=1e-6)
