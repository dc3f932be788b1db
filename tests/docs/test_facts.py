"""What pages say about cases, tasks and learners is what cases, tasks and learners are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from powerzoo_jax import list_tasks, powerflow
from powerzoo_jax.cases import list_cases, load_case
from powerzoo_jax.cli.main import build_parser
from powerzoo_jax.data.synthetic_load import UTILISATION
from powerzoo_jax.families.joint.tasks import JointSettings
from powerzoo_jax.families.microgrid.plan.policies import HABITS
from powerzoo_jax.families.microgrid.tasks.build import STRESS
from powerzoo_jax.families.transmission.tasks.operator import DIFFICULTIES, PHYSICS, SOLVER_MODES
from powerzoo_jax.rl.training.config import ALGORITHMS
from powerzoo_jax.tasks import get_spec, list_presets
from tests.references.causal_battery import shares
from tools.tasks import report

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("cases", "feeders", "learning", "measurements/learning", "microgrid", "powerflow", "scaling", "transmission")
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


def test_every_function_of_the_page_on_power_flow_exists():
    named = set(re.findall(r"`((?:prepare|solve|check|with)_\w+)", PAGE["powerflow"]))
    assert len(named) > 8
    assert [name for name in sorted(named) if not hasattr(powerflow, name)] == []


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


def test_the_page_counts_the_rules_that_the_oracle_tries():
    assert len(HABITS) == 12 and "plays twelve such rules" in PAGE["microgrid"]


def test_the_page_on_transmission_names_every_mode_and_what_a_difficulty_changes():
    page = PAGE["transmission"]
    assert all(f"| `{physics}`, `{mode}` |" in page for physics in PHYSICS for mode in SOLVER_MODES)
    ratios, minutes = zip(*DIFFICULTIES.values(), strict=True)
    told = f"load ratio {', '.join(f'{x:.2f}' for x in ratios)} in steps of {', '.join(map(str, minutes))} minutes"
    assert told in page


def test_the_page_counts_the_feeders_of_the_joint_task():
    assert JointSettings().feeder_bus_ids == (3,) and JointSettings().feeder_scale == 10
    assert "below bus 3" in PAGE["transmission"]


@pytest.mark.full
def test_the_battery_lacks_a_memory_of_the_mean_price_as_the_page_says():
    """Six days of the split that the page's figures are of; the script that it names plays all."""
    assert "`python tests/references/causal_battery.py`" in PAGE["measurements/learning"]
    remembering, forgetting = shares(6)
    assert forgetting < 0.9 < 0.98 < remembering <= 1


def test_the_page_on_learning_names_every_algorithm():
    rows = "".join(line.split("|")[1] for line in PAGE["learning"].splitlines() if line.startswith("| `"))
    assert all(f"`{name}`" in rows for name in ALGORITHMS)


def test_the_commands_of_the_page_on_scaling_are_understood():
    lines = re.findall(r"`(powerzoo-jax [^`]*)`", PAGE["scaling"])
    assert len(lines) == 5
    for line in lines:
        words = line.replace("[TASK ...]", "dso").split()[1:]
        build_parser().parse_args(words if len(words) > 1 else [*words, "dso"])


def test_the_scripts_that_the_page_on_scaling_names_exist():
    assert all((ROOT / name).is_file() for name in re.findall(r"`python (\S+\.py)", PAGE["scaling"]))


@pytest.mark.full
def test_the_page_of_tasks_is_up_to_date():
    assert report.main([str(ROOT / report.PAGE)]) == 0
    assert sorted(report.ABOUT) == list(list_tasks())


@pytest.mark.full
def test_a_page_of_tasks_that_differs_is_told(tmp_path):
    other = tmp_path / "tasks.md"
    other.write_text("# Tasks\n")
    assert report.main([str(other)]) == 1
