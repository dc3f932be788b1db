"""Gains on the cards of trained policies follow the references, and nothing else of a card changes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.rl.zoo import find_policy, read_card
from tools.tasks.zoo_gains import renew_gains

TASK = "dc_microgrid"


@pytest.fixture
def card(tmp_path):
    shipped = find_policy(TASK)
    for suffix in (".npz", ".md"):
        shutil.copy(shipped.with_suffix(suffix), tmp_path)
    return tmp_path / shipped.name


def test_the_gain_is_between_the_new_rule_and_best_and_the_weights_stay(card):
    before = read_card(card)
    ends = {split: (score["ends"][0], score["ends"][1] + 2.0) for split, score in before["scores"].items()}
    lines = renew_gains(card, lambda task, split: ends[split])
    assert len(lines) == 2 and read_card(card) == before
    assert renew_gains(card, lambda task, split: ends[split], write=True) == lines
    after = read_card(card)
    for split, score in after["scores"].items():
        rule, best = ends[split]
        assert score["ends"] == [rule, best]
        assert score["gain"] * (best - rule) + rule == pytest.approx(score["return"])
        told = {"gain": score["gain"], "ends": score["ends"]}
        assert score == before["scores"][split] | told
    assert {k: v for k, v in after.items() if k != "scores"} == {k: v for k, v in before.items() if k != "scores"}
    shipped, written = read_npz(find_policy(TASK)), read_npz(card)
    assert all(np.array_equal(written[name], shipped[name]) for name in shipped if name != "about")
    assert card.with_suffix(".md").read_text(encoding="utf-8") != find_policy(TASK).with_suffix(".md").read_text(
        encoding="utf-8"
    )
