"""What docs/microgrid.md says about the islanded data centre is so, and its snippet runs."""

from __future__ import annotations

from pathlib import Path

from powerzoo_jax.data.synthetic_load import UTILISATION
from powerzoo_jax.families.microgrid.plan.policies import HABITS
from powerzoo_jax.families.microgrid.tasks.build import STRESS
from powerzoo_jax.tasks import get_spec

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "microgrid.md").read_text(encoding="utf-8")


def test_the_snippet_runs(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    printed = run_snippet(body)
    assert printed.startswith("('gpu_util', 'infer_util', 'queue_train_fill'") and printed.strip().endswith("0.0")


def test_the_page_names_every_stress_preset_and_channel():
    names = (*STRESS, *UTILISATION, *get_spec("dc_microgrid").cost_names)
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_the_page_counts_the_rules_that_the_oracle_tries():
    assert len(HABITS) == 12 and "plays twelve such rules" in PAGE
