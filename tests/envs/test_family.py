"""Records of families: one for each folder, a name is taken once, second names are read, and one that nobody registered
has nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax import families
from powerzoo_jax.envs import (
    Family,
    Trace,
    family,
    family_of,
    get_family,
    list_families,
    load_traces,
    register_family,
    save_traces,
)
from powerzoo_jax.envs.history import HistoryEnv
from powerzoo_jax.envs.trace.types import TraceTable
from powerzoo_jax.families.market.tasks.storage import make_storage_market
from powerzoo_jax.oracle import list_baselines, list_causal
from powerzoo_jax.plot import episode_html
from powerzoo_jax.rl import OfflineData, load_offline, save_offline
from powerzoo_jax.tasks import get_builder, get_spec, list_presets, registry
from powerzoo_jax.tasks.registry import SHIPPED, named_splits
from powerzoo_jax.tasks.spec import from_toml

SECOND = {"distribution": "feeder", "transgrid": "transmission", "storage_market": "market"}


@pytest.fixture
def forgotten(monkeypatch):
    """Tasks that a test registers are gone after it."""
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))


def test_a_family_has_one_name_in_its_folder_its_record_and_its_tasks():
    folders = {path.parent.name for path in Path(families.__file__).parent.glob("*/family.py")}
    assert folders == set(list_families()) == {get_family(name).name for name in list_families()}
    for task in SHIPPED:
        assert task.build.startswith(f"powerzoo_jax.families.{task.spec.family}."), task.spec.id


def test_a_family_of_ones_own_is_found_and_its_name_is_taken(monkeypatch):
    monkeypatch.setattr(family, "_OWN", {})
    mine = Family(name="gas", rivals=True)
    register_family(mine)
    assert get_family("gas") is mine and "gas" in list_families()
    for name in ("gas", "market", "distribution"):
        with pytest.raises(ValueError, match=f"family '{name}' is registered already"):
            register_family(Family(name=name))


def test_a_family_that_nobody_registered_has_nothing_of_its_own():
    found = get_family("nowhere")
    assert found.name == "nowhere" and found.read(None) == found.tally(None) == found.figures(None) == {}
    assert found.align is None and not found.rivals and found.splits == ()


def test_a_second_environment_of_a_folder_has_entries_of_its_own_also_inside_another_environment():
    """The battery of the market has no rivals, and the operator no units that share a load by scores."""
    market, grid = make_storage_market(), powerzoo_jax.make("atomic_solar")
    for sim in (market, dataclasses.replace(market, env=HistoryEnv(market.env, 2))):
        assert get_family("market").rivals and not family_of(sim).rivals
        assert family_of(sim).unit_fields == () and family_of(sim).action_ids is None
    assert get_family("transmission").loads_shared and not family_of(grid).loads_shared
    assert family_of(powerzoo_jax.make("marl_opf")) == get_family("transmission")


def test_presets_of_the_operator_have_neither_the_splits_nor_the_plans_of_units_that_share_a_load(forgotten):
    assert "load_stress" in named_splits(get_spec("marl_uc"))
    spec = dataclasses.replace(get_spec("atomic_solar"), id="my_solar")
    powerzoo_jax.register(spec, get_builder("atomic_solar"))
    powerzoo_jax.register(dataclasses.replace(spec, id="my_grid"), "mine.builders:build")
    for name in ("atomic_solar", "my_solar"):
        assert name in (*list_presets(), "my_solar") and named_splits(get_spec(name)) == ()
    assert not {"my_solar", "my_grid"} & {*list_baselines(), *list_causal()}


@pytest.mark.parametrize("second", SECOND)
def test_second_names_are_read_in_traces_data_sets_task_files_and_own_specs(second, tmp_path, forgotten):
    table = TraceTable(np.zeros((1, 1)), ("a",), ("-",))
    told = {"task": "t", "version": 1, "split": "test", "policy": "rule", "episode": 0, "dt_hours": 0.5, "money": True}
    trace = Trace(
        **told, family=second, agents=("a",), budgets=(), tables={"action": table, "reward": table}, networks={}
    )
    read = load_traces(save_traces(tmp_path / "trace.npz", {"rule": trace}))["rule"]
    assert read.family == SECOND[second] and "profits" not in episode_html(read)

    one = np.zeros((1, 1, 1), np.float32)
    lists = ("agents", "observation_names", "observation_units", "action_names", "reward_terms", "cost_names")
    about = {name: ["a"] for name in (*lists, "cost_units")} | {"seed": 0, "drawn": True, "keywords": {}}
    about |= {"task": "t", "split": "test", "policy": "rule", "family": second, "version": 1, "dt_hours": 0.5}
    names = ("observations", "actions", "terms", "final_observations")
    data = OfflineData(
        **dict.fromkeys(names, one),
        **dict.fromkeys(("rewards", "costs", "low", "high"), one[0]),
        **dict.fromkeys(("terminated", "truncated"), np.ones(1, bool)),
        lengths=np.ones(1, np.int32),
        about=about | {"cost_budgets": [None]},
    )
    assert load_offline(save_offline(tmp_path / "data.npz", data)).about["family"] == SECOND[second]

    lines = [f'family = "{second}"', 'id = "mine"', "version = 1", 'case = "case33bw"', "horizon = 48"]
    lines += ["dt_hours = 0.5", 'split = "train"', 'agents = ["a"]']
    lines += [f"{name} = []" for name in ("cost_names", "cost_budget", "term_names", "term_weights")]
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert from_toml(path).family == SECOND[second]

    powerzoo_jax.register(dataclasses.replace(from_toml(path), family=second), "mine.builders:build")
    assert get_spec("mine").family == SECOND[second]
