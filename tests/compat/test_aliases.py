"""Imports of PowerZooPy's README, pages and examples (its commit efa667f, 7 May 2026), listed by name alone."""

import importlib
from pathlib import Path

import powerzoo
import pytest
from powerzoo_compat.powerzoo_api.aliases import REFUSED, SERVED

LISTED = Path(__file__).with_name("powerzoopy_names.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", LISTED)
def test_an_import_of_its_pages_resolves_or_says_why_not(line):
    module, *name = line.split()
    code = f"from {module} import {name[0]}" if name else f"import {module}"
    refused = next((x for x in (module, ".".join((module, *name))) if x in REFUSED), None)
    if refused is None:
        exec(code, {})
        return
    with pytest.raises(ImportError, match=f"{refused} is a solver of PowerZooPy.*Use powerzoo_jax"):
        exec(code, {})


@pytest.mark.parametrize("instead", sorted({instead for instead, _ in REFUSED.values()}))
def test_what_a_refusal_names_exists(instead):
    module, name = instead.rsplit(".", 1)
    assert callable(getattr(importlib.import_module(module), name))


def test_an_alias_has_the_very_objects_and_nothing_else():
    from powerzoo.benchmarks.policies import RandomPolicy, evaluate
    from powerzoo.case.distribution.Case33bw import Case33bw
    from powerzoo.data import signals
    from powerzoo.tasks.simple.task3_marl_ev import MARLEVTask

    assert RandomPolicy is powerzoo.RandomPolicy and evaluate is powerzoo.evaluate
    assert MARLEVTask is powerzoo.tasks.get_task_class("marl_ev_v2g") and Case33bw().name == "case33bw"
    assert signals.LOAD_ACTUAL_MW == "load.actual_mw" and signals.LOAD_ACTUAL_MW in signals()
    for module, name in (("powerzoo.benchmarks.policies", "GreedyPolicy"), ("powerzoo.data.signals", "LOAD_GUESS")):
        with pytest.raises(AttributeError, match=name):
            getattr(importlib.import_module(module), name)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("powerzoo.nothing")
    assert all(importlib.util.find_spec(target) for target in set(SERVED.values()))
