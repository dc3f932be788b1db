"""What a user gives is used, or refused: every keyword of `make` and every field of a spec changes what is built."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.data import Series, series_from_arrays
from powerzoo_jax.devices.facility import TRAIN
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.oracle.forecast import train_sim
from powerzoo_jax.tasks import get_spec, list_tasks, make
from powerzoo_jax.tasks.registry import get_builder, list_presets
from powerzoo_jax.tasks.settings import WITHOUT_EFFECT, TaskSettings, keywords_of

HOURS = 8760
HOUR = np.arange(HOURS) % 24
LOAD = 2 + np.sin(HOUR)
PRICE = 40.0 + HOUR
BATTERY, EV, DSO, OPF, TSO, ISLAND = (
    "battery_arbitrage",
    "marl_ev_v2g_1d",
    "dso",
    "marl_opf",
    "comparison_tso_centralized",
    "dc_microgrid",
)
WEIGHED = (OPF, "marl_uc", TSO, "joint_trans_dist", ISLAND, "dc_microgrid_safe", BATTERY, "dc_scheduling", DSO)


def own(**columns: Any) -> Series:
    return series_from_arrays(
        "own", columns or {"load_mw": LOAD, "price_per_mwh": PRICE}, start="2023-01-01", step_minutes=60
    )


def write(folder: Path, **columns: Any) -> str:
    """Path of a CSV file with these columns, in this order."""
    stamps = np.datetime64("2023-01-01T00:00") + np.arange(HOURS) * np.timedelta64(1, "h")
    rows = zip(*columns.values(), strict=True)
    lines = [f"{stamp}Z," + ",".join(f"{x:.5f}" for x in row) for stamp, row in zip(stamps, rows, strict=True)]
    path = folder / "my.csv"
    path.write_text("\n".join([",".join(["time", *columns]), *lines]))
    return str(path)


def built(spec: TaskSpec, builder: str, **keywords: Any) -> Sim:
    """A spec that is not registered, as `make` builds it."""
    module, function = builder.split(":")
    found: Sim = getattr(importlib.import_module(module), function)(spec, split=spec.split, **keywords)
    return found


def variant(task: str, overrides: dict[str, Any] | None = None, **fields: Any) -> Sim:
    spec = get_spec(task)
    listed = tuple(sorted((dict(spec.overrides) | (overrides or {})).items()))
    return built(dataclasses.replace(spec, id=f"my_{task}", overrides=listed, **fields), get_builder(task))


def alike(one: Sim, other: Sim) -> bool:
    """Whether two simulations have the same parameters, environment and spec, but for the keywords on record."""
    specs = [dataclasses.replace(sim.spec, overrides=(), id="", version=0) for sim in (one, other)]
    if one.env != other.env or specs[0] != specs[1] or one.spec.split != other.spec.split:
        return False
    (leaves, tree), (others, shape) = (jax.tree.flatten(sim.params) for sim in (one, other))
    return tree == shape and all(np.array_equal(a, b) for a, b in zip(leaves, others, strict=True))


@cache
def base(task: str) -> Sim:
    return make(task)


def settings_kind(task: str) -> type[TaskSettings]:
    """Class of a task's keywords: the one that has all of them and no other."""
    names = {keyword.name for keyword in keywords_of(lambda: make(task))}
    kinds = [TaskSettings]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return next(kind for kind in kinds if {f.name for f in dataclasses.fields(kind)} == names)


DAY = {"cpu_profile": (0.5,) * 288, "solar_profile": (0.5,) * 288, "temperature_profile": (20.0,) * 288}
# values of keywords that no arithmetic finds
VALUES: dict[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in DAY.items()},
    "action_mode": ("direct",),
    "augment": ("blocks",),
    "battery_bus_ids": ((7,), (7, 8, 9, 10), (7, 8, 9, 10, 11)),
    "budgets": ((("thermal_overload", (1.0, 2.0, 3.0)),),),
    "bus_load_scale_overrides": (((6, 1.5),),),
    "case": ("case69", "case14", "case118"),
    "commute_schedules": ("acn",),
    "constraint_tightness": ("strict",),
    "data_source": (own(),),
    "devices": ((("storage", 3, (("capacity_mwh", 1.0), ("power_mw", 0.2))),),),
    "dist_case": ("case69",),
    "end_date": ("2018-03-20",),
    "ev_bus_ids": ((7, 10, 14, 18, 22, 25, 28, 30, 32, 33),),
    "feeder_bus_ids": ((4,),),
    "feeder_bus_map": ((tuple(range(2, 18)), tuple(range(18, 23)), tuple(range(23, 34))),),
    "feeder_shapes": (("mv_rural", "mv_comm", "mv_urban"),),
    "finetune_cfg": (TRAIN,),
    "flexload_bus_ids": ((42, 70, 135, 24),),
    "flexload_config": ((("a", 6, 0.1, 0.1), ("b", 25, 0.1, 0.1)),),
    "initial_soc": (0.3,),
    "lines_out": ((0,),),
    "load_column": ("mv_rural",),
    "load_ratios": ((0.5, 0.6, 0.7),),
    "load_set": ("fr_2017_2019", "activsg200_load"),
    "months": ((3,),),
    "obs_mode": ("global", "local", "flattened"),
    "ood_scenario": ("cooling_stress",),
    "plant_columns": (("solar.pv3_pu",),),
    "price_column": ("HB_NORTH",),
    "price_misses": (False, True),
    "price_set": ("ercot_dam_2021_2022", "de_smard_2018"),
    "pv_bus_ids": ((7, 73, 72, 82),),
    "pv_columns": (("solar.pv3_pu",),),
    "q_control": (("storage",),),
    "reward_type": ("individual", "shared"),
    "shifted_workload_source": (own(),),
    "solver": ("fixed",),
    "start_date": ("2018-03-01",),
    "train_cfg": (dataclasses.replace(TRAIN, rate_per_h=2.0),),
    "trans_action_mode": ("direct",),
    "trans_case": ("pz_case14",),
    "unit_technologies": (("base",) * 5,),
    "weather": ("analytic",),
    "weather_site": ("buffalo",),
    "workload_preset": ("vm_cloud",),
    "workload_source": (own(load_pu=LOAD), "azure"),
}


def tried(name: str, now: Any) -> tuple[Any, ...]:
    """Values to give a keyword, other than the one it has."""
    if name in VALUES:
        return VALUES[name]
    if isinstance(now, bool):
        return (not now,)
    if isinstance(now, int | float):
        return (0.9 * now, now + 1, 0.5, now - 1)
    return (0.97, 0.5, 30, 15, 2, 50.0)


def outcome(task: str, name: str, now: Any) -> str:
    """Effect of a keyword: "used", "refused" or "ignored"."""
    found = "refused"
    for value in tried(name, now):
        if value == now:
            continue
        try:
            sim = make(task, **{name: value})
        except (ValueError, TypeError, KeyError, FileNotFoundError):
            continue
        if not alike(sim, base(task)):
            return "used"
        found = "ignored"
    return found


@pytest.mark.tiers("full", quick=["marl_opf"])
@pytest.mark.parametrize("task", (*list_tasks(), *list_presets()))
def test_every_keyword_changes_the_task_or_is_refused(task):
    kind, spec = settings_kind(task), get_spec(task)
    now = {field.name: field.default for field in dataclasses.fields(kind)} | dict(spec.overrides)
    ignored = {name for name in now if outcome(task, name, now[name]) == "ignored"}
    assert ignored <= set(WITHOUT_EFFECT)


@pytest.mark.full
def test_the_table_of_keywords_without_effect_names_keywords_of_tasks():
    names = {field.name for task in list_tasks() for field in dataclasses.fields(settings_kind(task))}
    assert set(WITHOUT_EFFECT) <= names


def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}x" for name in names)


FIELDS: dict[str, Callable[[Any], Any]] = {
    "family": lambda family: f"my {family}",
    "case": lambda case: "case69",
    "horizon": lambda steps: 2 * steps,
    "dt_hours": lambda hours: 2 * hours,
    "split": lambda split: "val" if split != "val" else "test",
    "agents": renamed,
    "cost_names": lambda names: (*names[1:], names[0]),
    "cost_budget": lambda budgets: tuple(1.0 if math.isinf(b) else 0.5 * b + 0.1 for b in budgets),
    "term_names": lambda names: (*names[1:], names[0]),
    "term_weights": lambda weights: tuple((k + 2) * w for k, w in enumerate(weights)),
}


@pytest.mark.full
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("task", list_tasks())
def test_every_field_of_a_spec_is_used_or_refused(task, field):
    value = FIELDS[field](getattr(get_spec(task), field))
    try:
        sim = variant(task, **{field: value})
    except ValueError as err:
        assert str(err)
        return
    assert getattr(sim.spec, field) == value
    if field in ("cost_names", "term_names", "term_weights", "dt_hours"):
        assert getattr(sim.env, field, value) == value
    if field == "horizon":
        assert int(sim.params.horizon) == value


@pytest.mark.full
@pytest.mark.parametrize("task", WEIGHED)
def test_a_variant_is_paid_by_its_own_weights(task):
    weights = tuple(float(k + 1) for k in range(len(get_spec(task).term_weights)))
    sim = variant(task, term_weights=weights)
    assert sim.env.term_weights == weights == sim.spec.term_weights


@pytest.mark.parametrize(("task", "scale"), [(OPF, 1e-3), (TSO, 1e-4), ("joint_trans_dist", 1e-3), (BATTERY, 1.0)])
def test_a_scale_takes_the_place_of_the_weights_in_their_proportions(task, scale):
    assert make(task).env.term_weights == (scale,) * len(get_spec(task).term_weights)
    assert make(task, reward_scale=0.5).env.term_weights == (0.5,) * len(get_spec(task).term_weights)
    halves = tuple(0.5 * scale if k else scale for k in range(len(get_spec(task).term_weights)))
    found = built(
        dataclasses.replace(get_spec(task), id="mine", term_weights=halves), get_builder(task), reward_scale=2.0
    )
    assert found.env.term_weights == pytest.approx([2.0 if k == 0 else 1.0 for k in range(len(halves))])


@pytest.mark.full
def test_weights_of_a_microgrid_follow_its_keywords():
    """reward = scale * (w_cost * money + w_carbon * carbon): 0.02 * (2 * money + 0.04 * carbon)."""
    sim = make(ISLAND, w_cost=2.0, w_carbon=0.04, reward_scale=0.02)
    weights = dict(zip(sim.spec.term_names, sim.env.term_weights, strict=True))
    assert weights["fuel"] == pytest.approx(0.04) and weights["carbon"] == pytest.approx(0.0008)
    safe = make("dc_microgrid_safe", price_misses=True)
    assert safe.env.price_misses and set(safe.env.term_weights) == {0.01, 0.0008}
    assert not make(ISLAND, price_misses=False).env.price_misses


@pytest.mark.full
def test_standard_budgets_are_those_of_the_spec():
    for task in list_tasks():
        assert base(task).spec.cost_budget == get_spec(task).cost_budget, task
    with pytest.raises(ValueError, match="cost_budget and the standard budgets of the keyword budgets differ"):
        variant(OPF, cost_budget=(0.7, math.inf, math.inf, 0.0, math.inf))
    found = variant(OPF, {"budgets": ()}, cost_budget=(0.7, math.inf, math.inf, 0.0, math.inf))
    assert found.spec.cost_budget[0] == 0.7
    with pytest.raises(ValueError, match="constraint_tightness = 'strict'"):
        variant(BATTERY, {"constraint_tightness": "strict"})


@pytest.mark.parametrize("agents", [("a", "b"), ()])
def test_names_of_another_number_of_agents_are_refused(agents):
    for task in (BATTERY, "marl_der_arbitrage", OPF, TSO, "gencos_bidding", "joint_trans_dist"):
        with pytest.raises(ValueError, match="agents"):
            variant(task, agents=agents)


@pytest.mark.tiers(full=["dc_microgrid-15-96"])
@pytest.mark.parametrize(
    ("task", "minutes", "steps"),
    [(BATTERY, 15, 96), (BATTERY, 60, 24), (EV, 30, 48), (OPF, 15, 96), ("gencos_bidding", 60, 24), (ISLAND, 15, 96)],
)
def test_an_episode_keeps_its_hours_at_another_step(task, minutes, steps):
    sim = make(task, delta_t_minutes=minutes)
    assert (sim.spec.horizon, sim.spec.dt_hours, int(sim.params.horizon)) == (steps, minutes / 60, steps)
    assert make(task, delta_t_minutes=minutes, max_steps=6).spec.horizon == 6


def test_an_episode_that_ends_within_a_step_is_refused():
    with pytest.raises(ValueError, match=r"an episode of 1.5 h is no whole number of steps of 60 min. Give max_steps"):
        built(dataclasses.replace(get_spec(BATTERY), horizon=3), get_builder(BATTERY), delta_t_minutes=60)


PRICED = [task for task in list_tasks() if "price_set" in dict(get_spec(task).overrides) and "ders" not in task]


def prices(sim: Sim) -> np.ndarray:
    found: np.ndarray = np.asarray(sim.params.bank.price_rows[: HOURS * round(1 / sim.spec.dt_hours), 0])
    return found[:: round(1 / sim.spec.dt_hours)]


def loads(sim: Sim) -> np.ndarray:
    per_hour = round(1 / sim.spec.dt_hours)
    found: np.ndarray = np.asarray(sim.params.bank.load_rows[: HOURS * per_hour : per_hour, 0])
    return found


@pytest.mark.full
@pytest.mark.parametrize("task", PRICED)
def test_a_source_brings_its_loads_and_its_prices(task):
    sim = make(task, data_source=own())
    np.testing.assert_allclose(prices(sim), PRICE, rtol=1e-6)
    np.testing.assert_allclose(loads(sim), LOAD / LOAD.max(), rtol=1e-6)


@pytest.mark.parametrize("task", [BATTERY, DSO])
def test_a_registered_source_is_used_as_one_that_is_given(task, tmp_path):
    path = write(tmp_path, load_mw=LOAD, price_usd_per_mwh=PRICE)
    assert alike(variant(task, {"data_source": path}), make(task, data_source=path))
    sim = variant(task, {"data_source": path})
    assert not alike(sim, base(task)) and "data_source" not in dict(sim.spec.overrides)
    assert dict(sim.spec.overrides)["load_set"] == path == dict(sim.spec.overrides)["price_set"]
    assert alike(make(task, **dict(sim.spec.overrides)), sim)


def test_the_order_of_the_columns_of_a_file_does_not_matter(tmp_path):
    sim = make(BATTERY, data_source=write(tmp_path, price_usd_per_mwh=PRICE, solar_mw=LOAD + 1, load_mw=LOAD))
    np.testing.assert_allclose(loads(sim), LOAD / LOAD.max(), rtol=1e-5)
    np.testing.assert_allclose(prices(sim), PRICE, rtol=1e-6)


def test_a_source_without_a_price_or_a_load_keeps_that_of_the_task():
    bare, priced = make(BATTERY, data_source=own(load_mw=LOAD)), make(BATTERY, data_source=own(price_per_mwh=PRICE))
    np.testing.assert_array_equal(prices(bare), prices(base(BATTERY)))
    np.testing.assert_array_equal(loads(priced), loads(base(BATTERY)))
    np.testing.assert_allclose(prices(priced), PRICE, rtol=1e-6)


def test_prices_named_beside_a_source_are_taken():
    sim = make(BATTERY, data_source=own(), price_set="de_smard_2018")
    np.testing.assert_array_equal(prices(sim), prices(base(BATTERY)))
    np.testing.assert_allclose(loads(sim), LOAD / LOAD.max(), rtol=1e-6)


def test_a_load_named_beside_a_registered_source_keeps_its_prices():
    spec = dataclasses.replace(get_spec(BATTERY), id="mine", overrides=(("data_source", own()),))
    sim = built(spec, get_builder(BATTERY), load_set="simbench_2016", load_column="mv_semiurb")
    np.testing.assert_array_equal(loads(sim), loads(base(BATTERY)))
    np.testing.assert_allclose(prices(sim), PRICE, rtol=1e-6)


@pytest.mark.parametrize("task", [OPF, TSO])
def test_a_transmission_grid_takes_the_path_of_a_file(task, tmp_path):
    path = write(tmp_path, load_mw=LOAD, wind_mw=LOAD, solar_mw=LOAD)
    sim = make(task, data_source=path)
    assert not alike(sim, base(task)) and alike(sim, make(task, load_set=path))
    assert alike(sim, variant(task, {"data_source": path}))
    with pytest.raises(ValueError, match="name the same thing"):
        make(task, data_source=path, load_set=path)


def test_planners_without_foresight_train_on_the_source():
    sim = make(BATTERY, data_source=own(), split="test")
    np.testing.assert_allclose(prices(train_sim(sim)), PRICE, rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "keywords", "needed"),
    [
        (BATTERY, {"target_soc": 0.7}, "soc_penalty_weight"),
        (BATTERY, {"augment_years": 7}, "augment"),
        ("marl_der_arbitrage", {"price_forecast": False}, "obs_mode"),
        (DSO, {"preserve_feeder_totals": True}, "bus_load_scale_overrides"),
        (EV, {"commute_schedules": "acn", "jitter_steps": 2}, "the task's own trips"),
        (TSO, {"load_ratios": (0.5, 0.6, 0.7)}, "max_load_ratio"),
        ("gencos_bidding", {"ramp_up_mw_per_step": 1.0, "ramp_down_mw_per_step": 1.0, "ramp_rate_fraction": 0.1}, "MW"),
        (ISLAND, {**DAY, "weather": "analytic"}, "without a profile"),
        ("atomic_battery", {"plant_columns": ("solar.pv3_pu",)}, "renewable"),
    ],
)
def test_a_keyword_that_changes_nothing_says_what_it_needs(task, keywords, needed):
    with pytest.raises(SettingsError, match=f"changes nothing: it needs .*{needed}"):
        make(task, **keywords)
