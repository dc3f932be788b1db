"""A task registered under an id of its own has rules, an oracle and a score: those of the tasks it is a variant of."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.cli import main
from powerzoo_jax.oracle import (
    evaluate_baseline,
    get_baselines,
    get_causal,
    get_reference,
    list_baselines,
    register_baselines,
    solve_starts,
)
from powerzoo_jax.oracle import registry as oracles
from powerzoo_jax.tasks import get_builder, get_spec, registry
from powerzoo_jax.tasks.score import all_starts, episode_keys

MINE, BASE, BUILD = (
    "large_battery",
    "battery_arbitrage",
    "powerzoo_jax.families.feeder.tasks.storage:build_feeder_storage",
)
CENT = 0.01  # [$] of the table


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    monkeypatch.setattr(oracles, "_OWN", dict(oracles._OWN))


@pytest.fixture
def mine():
    base = get_spec(BASE)
    changed = dict(base.overrides) | {"battery_capacity_mwh": 1.0}
    powerzoo_jax.register(dataclasses.replace(base, id=MINE, overrides=tuple(changed.items())), BUILD)
    return MINE


def test_every_task_under_another_id_keeps_its_baselines():
    for spec, build in [(task.spec, task.build) for task in registry.SHIPPED if not task.preset]:
        powerzoo_jax.register(dataclasses.replace(spec, id=f"my_{spec.id}"), build)
        assert get_baselines(f"my_{spec.id}") is get_baselines(spec.id)
        assert f"my_{spec.id}" in list_baselines()


def test_a_builder_of_ones_own_gets_the_baselines_of_its_family_and_terms():
    powerzoo_jax.register(dataclasses.replace(get_spec("dso"), id="my_dso"), "mine.builders:build")
    powerzoo_jax.register(dataclasses.replace(get_spec("marl_uc"), id="my_uc"), "mine.builders:build")
    assert get_baselines("my_dso") is get_baselines("dso") and get_baselines("my_uc") is get_baselines("marl_uc")


def test_a_dispatch_task_takes_the_rules_of_its_grid_and_on_another_grid_those_of_the_first():
    for base, case, like in (("opf_118", "case118", "marl_opf"), ("marl_opf", "pz_case118", "opf_118")):
        powerzoo_jax.register(dataclasses.replace(get_spec(base), id=f"my_{case}", case=case), "mine.builders:build")
        assert get_baselines(f"my_{case}") is get_baselines(like)


@pytest.mark.full
def test_a_mixed_fleet_of_ones_own_has_rules_an_oracle_and_a_bound():
    base = get_spec("atomic_distribution_grid")
    fleet = (
        ("storage", 6, (("capacity_mwh", 0.5), ("degradation_per_mwh", 5.0), ("power_mw", 0.2))),
        ("renewable", 18, (("capacity_mw", 0.3),)),
        ("flexload", 30, ()),
    )
    terms = ("energy_sales", "degradation", "deferral", "unserved_energy")
    changed = dict(base.overrides) | {"devices": fleet, "price_forecast": True}
    mine = dataclasses.replace(
        base, id="mixed", overrides=tuple(changed.items()), term_names=terms, term_weights=(1.0,) * len(terms)
    )
    powerzoo_jax.register(mine, get_builder("atomic_battery"))
    sim = powerzoo_jax.make("mixed", split="test")
    draws = take(all_starts(sim), np.array([2]))
    plan = get_baselines("mixed").oracle(sim, draws, episode_keys(42, 1))
    played = {name: evaluate_baseline(sim, name, draws=draws).mean_reward for name in ("random", "rule", "oracle")}
    assert played["random"] < played["rule"] < played["oracle"] <= float(plan.bound[0]) + CENT
    assert played["oracle"] == pytest.approx(float(plan.objective[0]), abs=CENT)
    with pytest.raises(ValueError, match=r"no causal planner is known for 'mixed'.*causal='module:NAME'"):
        get_causal("mixed")


def test_a_task_that_pays_for_something_else_says_how_to_give_it_baselines():
    spec = dataclasses.replace(get_spec("marl_uc"), id="my_uc", term_names=("beauty",), term_weights=(1.0,))
    powerzoo_jax.register(spec, "mine.builders:build")
    words = r"'my_uc'.*'transmission'.*'mine.builders:build'.*register_baselines\('my_uc'"
    with pytest.raises(ValueError, match=words):
        get_baselines("my_uc")
    assert "my_uc" not in list_baselines()
    register_baselines("my_uc", "powerzoo_jax.families.transmission.commitment.policies:COMMITMENT")
    assert get_baselines("my_uc") is get_baselines("marl_uc") and get_builder("my_uc") == "mine.builders:build"


@pytest.mark.full
def test_the_command_scores_ones_own_task_and_its_oracle_is_the_optimum_of_its_programme(mine, capsys):
    """Every start of the split, as for the shipped task, so that both are one program."""
    assert main(["evaluate", mine]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isalpha()}
    assert rows["rule"][2] == "0.000" and rows["oracle"][2] == "1.000" and float(rows["random"][2]) < 0
    sim = powerzoo_jax.make(mine, split="test")
    best = np.mean([solution.objective for solution in solve_starts(sim, all_starts(sim))])
    assert float(rows["oracle"][1]) == pytest.approx(best, abs=CENT)
    assert float(rows["oracle"][1]) > get_reference(BASE)["best"] + CENT  # more room earns more


def test_a_missing_record_of_ones_own_task_names_what_this_process_can_call(mine):
    with pytest.raises(KeyError, match=r"reference\.reference\('large_battery', 'test'\)"):
        get_reference(mine, "test")
