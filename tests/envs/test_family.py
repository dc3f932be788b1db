"""Records of families: every task has one, a name is taken once, and one that nobody registered has nothing."""

from __future__ import annotations

import pytest

from powerzoo_jax.envs import Family, family, get_family, list_families, register_family
from powerzoo_jax.tasks.registry import SHIPPED


def test_every_shipped_task_has_the_record_of_its_family():
    names = {task.spec.family for task in SHIPPED}
    assert names <= set(list_families())
    assert {get_family(name).name for name in list_families()} == set(list_families())


def test_a_family_of_ones_own_is_found_and_its_name_is_taken(monkeypatch):
    monkeypatch.setattr(family, "_OWN", {})
    mine = Family(name="gas", rivals=True)
    register_family(mine)
    assert get_family("gas") is mine and "gas" in list_families()
    for name in ("gas", "market"):
        with pytest.raises(ValueError, match=f"family '{name}' is registered already"):
            register_family(Family(name=name))


def test_a_family_that_nobody_registered_has_nothing_of_its_own():
    found = get_family("nowhere")
    assert found.name == "nowhere" and found.read(None) == found.tally(None) == found.figures(None) == {}
    assert found.align is None and not found.rivals and found.splits == ()
