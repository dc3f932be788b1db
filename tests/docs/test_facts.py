"""What pages say about cases, tasks and learners is what cases, tasks and learners are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from powerzoo_jax import list_tasks
from powerzoo_jax.cases import list_cases, load_case
from powerzoo_jax.data.synthetic_load import UTILISATION
from powerzoo_jax.families.microgrid.tasks.build import STRESS
from powerzoo_jax.rl.training.config import ALGORITHMS
from powerzoo_jax.tasks import get_spec, list_presets
from tests.references.causal_battery import shares
from tools.tasks import report

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("cases", "feeders", "learning", "measurements/learning", "microgrid")
PAGE = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
CASES = {
    row[0]: row[1:]
    for row in re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\S+) \|", PAGE["cases"], re.MULTILINE)
}


def unnamed(page: str, names: object) -> list[str]:
    """Names that a page does not print."""
    return [name for name in names if f"`{name}`" not in PAGE[page]]


def test_every_shipped_case_has_a_row():
    assert list(CASES) == list(list_cases())


@pytest.mark.parametrize("name", CASES)
def test_a_row_gives_the_size_and_the_load_of_its_case(name):
    case = load_case(name)
    buses, units, branches, load = CASES[name]
    assert (int(buses), int(units), int(branches)) == (case.n_bus, case.n_unit, case.n_branch)
    assert float(load) == pytest.approx(case.load.p_mw.sum(), rel=5e-6)


def test_pages_name_every_preset_stress_and_channel():
    assert unnamed("feeders", list_presets()) == []
    assert unnamed("microgrid", (*STRESS, *UTILISATION, *get_spec("dc_microgrid").cost_names)) == []


def test_the_budgets_of_the_data_centre_are_those_of_the_page():
    budget = dict(zip(get_spec("dc_scheduling").cost_names, get_spec("dc_scheduling").cost_budget, strict=True))
    assert (budget["sla"], budget["overtemp"]) == (5.0, 0.5)


def test_two_flexible_loads_of_the_benchmark_have_no_load_to_move():
    case = load_case("case141")
    buses = dict(get_spec("marl_ders_benchmark").overrides)["flexload_bus_ids"]
    idle = [bus for bus in buses if case.p_load_mw[case.positions(np.array([bus]))[0]] == 0]
    assert idle == [70, 24]


@pytest.mark.full
def test_the_battery_lacks_a_memory_of_the_mean_price_as_the_page_says():
    """Six days of the split that the page's figures are of; the script that it names plays all."""
    assert "`python tests/references/causal_battery.py`" in PAGE["measurements/learning"]
    remembering, forgetting = shares(6)
    assert forgetting < 0.9 < 0.98 < remembering <= 1


def test_the_page_on_learning_names_every_algorithm():
    rows = "".join(line.split("|")[1] for line in PAGE["learning"].splitlines() if line.startswith("| `"))
    assert all(f"`{name}`" in rows for name in ALGORITHMS)


@pytest.mark.full
def test_the_page_of_tasks_is_up_to_date():
    assert report.main([str(ROOT / report.PAGE)]) == 0
    assert sorted(report.ABOUT) == list(list_tasks())
