"""Scores of the drop-in: shares of the way from random to the oracle, and gains from version 1 of a task on."""

from __future__ import annotations

import pytest
from powerzoo import benchmarks

from powerzoo_jax.oracle import get_best
from powerzoo_jax.tasks import registry

TASK = "battery_arbitrage"
LATER = "gencos_bidding"  # a task of version 1 whose best return is not recorded


@pytest.fixture
def next_versions(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "DEFAULT_VERSION", 1)


@pytest.mark.usefixtures("next_versions")
def test_from_version_1_on_the_score_is_the_gain_over_the_rule():
    record = get_best(TASK, "test", version=1)
    assert benchmarks.get_baseline(TASK) == record and TASK in benchmarks.list_baselines()
    ends = [benchmarks.normalized_score(TASK, record[name]) for name in ("rule", "best")]
    assert ends == [0.0, 1.0] and benchmarks.normalized_score(TASK, record["trivial"]) < 0
    assert 0.9 < benchmarks.normalized_score(TASK, record["causal"]) < 1


@pytest.mark.usefixtures("next_versions")
def test_a_gain_takes_a_rule_among_registered_anchors():
    assert LATER not in benchmarks.list_baselines()
    with pytest.raises(KeyError, match="no best return is known for 'gencos_bidding' v1"):
        benchmarks.normalized_score(LATER, 1.0)
    benchmarks.register_baseline(LATER, random=0.0, oracle=10.0, save=False)
    with pytest.raises(ValueError, match=r"register_baseline\('gencos_bidding', random, oracle, rule=\.\.\.\)"):
        benchmarks.normalized_score(LATER, 6.0)
    benchmarks.register_baseline(LATER, random=0.0, oracle=10.0, rule=5.0, save=False)
    assert benchmarks.normalized_score(LATER, 6.0) == pytest.approx(0.2) and LATER in benchmarks.list_baselines()
