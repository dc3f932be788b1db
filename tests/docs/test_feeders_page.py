"""What docs/feeders.md says about feeders with devices is so, and its snippet runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from powerzoo_jax.cases import load_case
from powerzoo_jax.tasks import get_spec, list_presets

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "feeders.md").read_text(encoding="utf-8")


def test_the_snippet_prints_sizes_channels_and_terms(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    printed = run_snippet(body)
    assert printed.startswith("(1, 271) ('voltage_violation', 'thermal_overload', 'vuf_violation'")
    assert "'degradation'" in printed and "'comfort'" not in printed


def test_the_page_names_every_preset_and_the_budgets_of_the_data_centre():
    assert [name for name in list_presets() if f"`{name}`" not in PAGE] == []
    budget = dict(zip(get_spec("dc_scheduling").cost_names, get_spec("dc_scheduling").cost_budget, strict=True))
    assert (budget["sla"], budget["overtemp"]) == (5.0, 0.5)


def test_two_flexible_loads_of_the_benchmark_have_no_load_to_move():
    case = load_case("case141")
    buses = dict(get_spec("marl_ders_benchmark").overrides)["flexload_bus_ids"]
    idle = [bus for bus in buses if case.p_load_mw[case.positions(np.array([bus]))[0]] == 0]
    assert idle == [70, 24]
