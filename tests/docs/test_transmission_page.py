"""What docs/transmission.md says about the environments on transmission grids is so, and its snippet runs."""

from __future__ import annotations

from pathlib import Path

from powerzoo_jax.envs.constraint import N_MINUS_1
from powerzoo_jax.families.joint.tasks import JointSettings
from powerzoo_jax.families.transmission.tasks.operator import DIFFICULTIES, PHYSICS, SOLVER_MODES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "transmission.md").read_text(encoding="utf-8")


def test_the_snippet_runs(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    printed = run_snippet(body)
    assert printed.startswith("(1, 360) {'thermal_overload'") and f"'{N_MINUS_1}'" in printed


def test_the_page_names_every_mode_and_what_a_difficulty_changes():
    assert all(f"| `{physics}`, `{mode}` |" in PAGE for physics in PHYSICS for mode in SOLVER_MODES)
    ratios, minutes = zip(*DIFFICULTIES.values(), strict=True)
    assert (
        f"load ratio {', '.join(f'{x:.2f}' for x in ratios)} in steps of {', '.join(map(str, minutes))} minutes" in PAGE
    )


def test_the_page_counts_the_feeders_of_the_joint_task():
    assert JointSettings().feeder_bus_ids == (3,) and JointSettings().feeder_scale == 10 and "below bus 3" in PAGE
