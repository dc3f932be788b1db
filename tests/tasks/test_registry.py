"""Bad input to `make`, `stack` and `register`: refused on the host, by name, with nothing half-built left behind."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import powerzoo_jax
from powerzoo_jax.base import TaskSpec
from powerzoo_jax.base.errors import CaseError, DataError, DataMissing, SettingsError, SolverError
from powerzoo_jax.base.ranges import check_fields
from powerzoo_jax.envs import Family, Names, family, register_family
from powerzoo_jax.families.market.tasks.storage import make_storage_market
from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
from powerzoo_jax.tasks import Task, get_builder, get_spec, list_presets, register_task, registry

TASK = "battery_arbitrage"

FEEDER = """function mpc = mine
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [
    1 3 0   0    0 0 1 1 0 12.66 1 1.1 0.9;
    2 1 0.1 0.05 0 0 1 1 0 12.66 1 1.1 0.9;
    3 1 0.2 0.1  0 0 1 1 0 12.66 1 1.1 0.9;
];
mpc.gen = [1 0 0 10 -10 1 100 1 10 0];
mpc.branch = [
    1 2 0.01 0.01 0 0 0 0 0 0 1 -360 360;
    2 3 0.01 0.01 0 0 0 0 0 0 {status} -360 360;
];
"""


def feeder(folder: Path, status: int) -> str:
    path = folder / "mine.m"
    path.write_text(FEEDER.format(status=status), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"split": "tets"}, r"Unknown split 'tets'. Did you mean 'test'\?"),
        ({"split": ""}, r"Unknown split ''"),
        ({"case": "case33"}, r"Unknown case 'case33'. Did you mean 'case33bw'\?"),
        ({"case": ""}, r"Unknown case ''"),
        ({"battery_bus_ids": (99,)}, "case33bw has no bus 99"),
        ({"battery_bus_ids": (1,)}, "contains the slack bus 1"),
        ({"battery_bus_ids": ()}, "battery_bus_ids is empty"),
        ({"max_steps": 0}, "max_steps = 0 must be a whole number of at least 1"),
        ({"max_steps": 1.5}, r"max_steps = 1\.5 must be a whole number"),
        ({"delta_t_minutes": 0}, "delta_t_minutes = 0 must be a whole number of at least 1"),
        ({"delta_t_minutes": 7}, "does not divide a day"),
        ({"max_load_ratio": 0.0}, r"max_load_ratio = 0\.0 must be positive"),
        ({"load_scale": float("inf")}, "load_scale = inf must be positive and finite"),
        ({"voll": -1.0}, r"voll = -1\.0 must be positive"),
        ({"v_slack": -1.0}, r"v_slack = -1\.0 must lie in \(0, 10\]"),
        ({"rate_mva": -1.0}, r"rate_mva = -1\.0 must not be negative"),
        ({"v_min": 1.1, "v_max": 0.9}, "need v_min < v_max"),
        ({"battery_capacity_mwh": 0.0}, r"capacity_mwh = 0\.0 must be positive"),
        ({"battery_power_mw": -0.2}, r"power_mw = -0\.2 must be positive"),
        ({"initial_soc": 0.95}, r"initial_soc = 0\.95 must lie inside"),
        ({"degradation_per_mwh": float("nan")}, "degradation_per_mwh = nan must not be negative"),
        ({"dtype": "float16"}, "dtype 'float16' is not supported"),
        ({"dtype": "float64"}, "dtype='float64' needs x64 mode, which is off"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_unusable_value_is_refused_by_name(keywords, words):
    with pytest.raises(ValueError, match=words):
        powerzoo_jax.make(TASK, **keywords)


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ValueError, match=r"Unknown task 'batery_arbitrage'. Did you mean 'battery_arbitrage'\?"):
        powerzoo_jax.make("batery_arbitrage")


def test_an_unknown_keyword_names_the_nearest():
    words = r"got an unexpected keyword argument 'max_load_ration'. Did you mean 'max_load_ratio'\?"
    with pytest.raises(TypeError, match=words):
        powerzoo_jax.make(TASK, max_load_ration=0.5)


def pythons_words(keyword):
    """How Python itself says that a function does not take a keyword, without the function's name."""

    def plain():
        return None

    with pytest.raises(TypeError) as refused:
        plain(**{keyword: 1})
    return str(refused.value).partition("plain() ")[2]


@pytest.mark.parametrize("task", [*powerzoo_jax.list_tasks(), *list_presets()])
def test_every_task_refuses_a_keyword_in_pythons_words(task):
    with pytest.raises(TypeError) as refused:
        powerzoo_jax.make(task, frameskip=1)
    text = str(refused.value)
    assert pythons_words("frameskip") in text and "Valid: " in text


@pytest.mark.parametrize("task", [*powerzoo_jax.list_tasks(), *list_presets()])
def test_every_task_knows_the_modes_of_its_solvers(task):
    with pytest.raises(ValueError, match=rf"{task}: Unknown solver 'fixd'. Did you mean 'fixed'\?"):
        powerzoo_jax.make(task, solver="fixd")


FAMILIES = (
    TASK,
    "distribution_3phase",
    "marl_opf",
    "atomic_solar",
    "gencos_bidding",
    "dc_microgrid",
    "joint_trans_dist",
)


@pytest.mark.tiers(full=["distribution_3phase"])
@pytest.mark.parametrize("task", FAMILIES)
def test_a_family_keeps_the_mode_of_its_solvers(task):
    assert powerzoo_jax.make(task).env.solver == "auto"
    sim = powerzoo_jax.make(task, solver="fixed")
    assert sim.env.solver == "fixed" and dict(sim.spec.overrides)["solver"] == "fixed"


def test_a_grid_without_a_task_keeps_the_mode_of_its_solvers():
    assert make_transgrid(solver="adaptive").env.solver == "adaptive"
    assert make_storage_market(solver="adaptive").env.solver == "adaptive"


def test_both_levels_of_the_joint_task_have_one_mode():
    env = powerzoo_jax.make("joint_trans_dist", solver="fixed").env
    assert env.transmission.solver == env.feeder.solver == "fixed"


@pytest.mark.parametrize("kind", ["cost", "bid"])
def test_a_storage_market_refuses_a_keyword_in_pythons_words(kind):
    with pytest.raises(TypeError, match=pythons_words("frameskip")):
        make_storage_market(kind, frameskip=1)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"start_date": "2016-03-01"}, "Give both dates or neither"),
        ({"end_date": "2016-03-01"}, "Give both dates or neither"),
        ({"start_date": "2016-03-02", "end_date": "2016-03-01"}, "ends before it starts"),
        ({"start_date": "2015-12-31", "end_date": "2016-03-01"}, "leaves simbench_2016"),
        ({"start_date": "2016-03-01", "end_date": "2016-03-01", "max_steps": 49}, "an episode needs 2"),
        ({"start_date": "1 March", "end_date": "2016-03-01"}, "Write dates as YYYY-MM-DD"),
    ],
)
def test_an_unusable_window_is_refused(window, words):
    with pytest.raises(DataError, match=words):
        powerzoo_jax.make(TASK, **window)


def test_a_load_beyond_the_feeder_names_the_task_keyword():
    with pytest.raises(SolverError, match=r"case33bw has no power flow at 5 times .* max_load_ratio = 10"):
        powerzoo_jax.make(TASK, max_load_ratio=10)


def test_a_network_for_another_solver_is_refused():
    with pytest.raises(SolverError, match=r"case118: bus .* holds its voltage \(PV\)"):
        powerzoo_jax.make(TASK, case="case118")


def test_a_case_file_of_the_user_makes_a_task(tmp_path):
    sim = powerzoo_jax.make(TASK, case=feeder(tmp_path, status=1), battery_bus_ids=[3])
    assert sim.env.dims.bus == 3 and hash(sim.spec)


def test_a_missing_case_file_is_named(tmp_path):
    with pytest.raises(DataMissing, match="nowhere"):
        powerzoo_jax.make(TASK, case=str(tmp_path / "nowhere.m"))


def test_a_corrupt_case_file_is_refused(tmp_path):
    path = tmp_path / "broken.m"
    path.write_text("mpc.bus = [1 3 0 0", encoding="utf-8")
    with pytest.raises(CaseError, match="broken"):
        powerzoo_jax.make(TASK, case=str(path))


def test_a_disconnected_bus_of_a_user_is_named(tmp_path):
    with pytest.raises(CaseError, match=r"bus 3"):
        powerzoo_jax.make(TASK, case=feeder(tmp_path, status=0), battery_bus_ids=(2,))


@pytest.mark.parametrize(
    ("size", "value", "words"),
    [
        ("bus", 32, "smaller than the task's 33"),
        ("branch", 31, "smaller than the task's 32"),
        ("unit", 0, "smaller than the task's 1"),
        ("obs", 100, "smaller than the task's 203"),
        ("agent", 2, "cannot be padded"),
        ("cost", 9, "cannot be padded"),
    ],
)
def test_sizes_that_cannot_hold_the_task_are_refused(size, value, words):
    dims = dataclasses.replace(powerzoo_jax.make(TASK).env.dims, **{size: value})
    with pytest.raises(ValueError, match=rf"dims.{size} = {value} is .*{words}"):
        powerzoo_jax.make(TASK, dims=dims)


def test_a_failed_make_leaves_the_task_as_it_was():
    spec, tasks = get_spec(TASK), powerzoo_jax.list_tasks()
    with pytest.raises(SolverError):
        powerzoo_jax.make(TASK, max_load_ratio=10)
    assert get_spec(TASK) is spec and powerzoo_jax.list_tasks() == tasks
    assert powerzoo_jax.make(TASK).params.load_ratio == pytest.approx(0.85)


def test_a_registered_id_cannot_be_taken_again():
    before = dict(registry._TASKS)
    with pytest.raises(ValueError, match="'battery_arbitrage' is registered already"):
        powerzoo_jax.register(get_spec(TASK), "elsewhere:build")
    assert before == registry._TASKS


def test_a_malformed_builder_registers_nothing():
    before = dict(registry._TASKS)
    with pytest.raises(ValueError, match="'module:function'"):
        powerzoo_jax.register(dataclasses.replace(get_spec(TASK), id="mine"), "elsewhere.build")
    assert before == registry._TASKS


def test_an_empty_stack_is_refused():
    with pytest.raises(ValueError, match="at least one simulation"):
        powerzoo_jax.stack([])


def test_a_stacked_sim_is_not_stacked_again():
    sim = powerzoo_jax.make(TASK)
    with pytest.raises(ValueError, match="stacked already"):
        powerzoo_jax.stack([powerzoo_jax.stack([sim, sim]), sim])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("family", "transmission"),
        ("cost_names", ("voltage_violation",)),
        ("term_names", ("energy_sales",)),
        ("term_weights", (2.0, 1.0, 1.0, 1.0)),
        ("agents", ("someone",)),
        ("dt_hours", 1.0),
        ("horizon", 24),
    ],
)
def test_stacking_different_tasks_names_the_field(field, value):
    sim = powerzoo_jax.make(TASK)
    other = sim.replace(spec=dataclasses.replace(sim.spec, **{field: value}))
    with pytest.raises(ValueError, match=f"{field} differs"):
        powerzoo_jax.stack([sim, other])


def test_stacking_two_kinds_of_observation_is_refused():
    with pytest.raises(ValueError, match="observation blocks differ"):
        powerzoo_jax.stack([powerzoo_jax.make(TASK), powerzoo_jax.make(TASK, price_forecast=False)])


def test_stacking_two_modes_of_the_solver_is_refused():
    with pytest.raises(ValueError, match="solver differs"):
        powerzoo_jax.stack([powerzoo_jax.make(TASK), powerzoo_jax.make(TASK, solver="fixed")])


def test_stacking_two_dtypes_is_refused():
    with jax.enable_x64(True), pytest.raises(ValueError, match="dtype differs"):
        powerzoo_jax.stack([powerzoo_jax.make(TASK), powerzoo_jax.make(TASK, dtype="float64")])


@pytest.mark.full
def test_a_bus_without_load_stacks_beside_one_with_load():
    sims = [powerzoo_jax.make(TASK, case="case69", battery_bus_ids=(bus,)) for bus in (3, 6)]
    assert powerzoo_jax.stack(sims).params.horizon.shape == (2,)


@pytest.mark.parametrize("what", ["baselines", "causal", "priced"])
def test_a_place_that_is_no_import_string_is_refused_by_its_name(what):
    mine = dataclasses.replace(get_spec("dso"), id="badly_placed")
    with pytest.raises(ValueError, match=rf"'badly_placed': {what} = 'mine\.NAME' is not of the form 'module:NAME'"):
        registry.register_task(dataclasses.replace(registry.get_task("dso"), spec=mine, **{what: "mine.NAME"}))


def test_shipped_tasks_have_no_findings():
    for task in registry.SHIPPED:
        assert registry.findings(task) == [], task.spec.id
        assert registry.get_task(task.spec.id, task.spec.version) is task
        check_fields(f"{task.spec.id}: ", TaskSpec, vars(task.spec))


def mine(base, build=None, devices=None, **changes):
    """A task of one's own, like a shipped one but for what is changed."""
    spec = get_spec(base)
    if devices is not None:
        changes["overrides"] = tuple((dict(spec.overrides) | {"devices": devices}).items())
    return Task(dataclasses.replace(spec, id="mine", **changes), build or get_builder(base))


def test_a_task_with_three_mistakes_gets_one_message_with_three_findings():
    before = dict(registry._TASKS)
    task = mine(
        "atomic_battery",
        devices=(("batery", 6, ()),),
        term_names=("energy_sale",),
        cost_names=("voltage_violation", "thermal_overlod", "unserved_energy", "resource"),
    )
    with pytest.raises(SettingsError) as caught:
        powerzoo_jax.register(task.spec, task.build)
    head, *found = str(caught.value).splitlines()
    assert head == "task 'mine' has 3 problems:"
    assert found[0].startswith("1. Unknown reward term 'energy_sale'. Did you mean 'energy_sales'? Valid: backlog, ")
    assert found[1].startswith("2. Unknown cost channel 'thermal_overlod'. Did you mean 'thermal_overload'? Valid: ")
    assert found[2].startswith("3. devices[0]: Unknown device kind 'batery'.") and found[2].endswith("vehicle.")
    assert len(found) == 3 and before == registry._TASKS


@pytest.mark.parametrize("task", ["marl_uc", "opf_118", "atomic_solar", "gencos_bidding", "dc_microgrid", "dso"])
@pytest.mark.parametrize(("field", "what"), [("term_names", "reward term"), ("cost_names", "cost channel")])
def test_names_that_a_family_does_not_know_are_refused_at_registration(task, field, what):
    names = ("beauty", *getattr(get_spec(task), field)[1:])
    with pytest.raises(SettingsError, match=rf"task 'mine': Unknown {what} 'beauty'\. Valid: "):
        register_task(mine(task, **{field: names}))


def test_ratings_of_devices_are_checked_by_name():
    rows = (("storage", 6, (("capacity_mhw", 1.0), ("phases", "a"))), ("renewable", 7, {"capacity_mw": 1.0}))
    with pytest.raises(SettingsError, match=r"devices\[0\]: Unknown rating of storage 'capacity_mhw'.*'capacity_mwh'"):
        register_task(mine("distribution_3phase", devices=rows))


def test_builders_of_ones_own_and_their_families_say_what_is_valid(monkeypatch):
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    monkeypatch.setattr(family, "_OWN", {})
    register_task(mine("dso", "mine.builders:build", term_names=("beauty",), term_weights=(1.0,)))
    register_family(Family(name="heat", names=Names(("electricity",), ("cold",))))
    with pytest.raises(SettingsError) as caught:
        register_task(mine("dso", "heat:build", family="heat", version=2, term_names=("power",), term_weights=(1.0,)))
    assert "1. Unknown reward term 'power'. Valid: electricity." in str(caught.value)


ORDER = """
import dataclasses, sys
import powerzoo_jax as pz
from powerzoo_jax.devices import register_kind, storage
from powerzoo_jax.tasks import get_builder, get_spec
base = get_spec("atomic_battery")
pz.register(dataclasses.replace(base, id="one"), get_builder(base.id))
assert not any(name.endswith((".feeder.types", ".feeder.family")) for name in sys.modules)
register_kind(dataclasses.replace(storage.KIND, name="cell", terms={"glow": storage.KIND.terms["degradation"]}))
over = dict(base.overrides) | {"devices": (("cell", 6, (("capacity_mwh", 0.5), ("power_mw", 0.2))),)}
changes = {"overrides": tuple(over.items()), "term_names": ("glow",), "term_weights": (1.0,)}
pz.register(dataclasses.replace(base, id="two", **changes), get_builder(base.id))
assert pz.make("two").spec.term_names == ("glow",)
"""


@pytest.mark.full
def test_a_kind_registered_between_two_tasks_is_known_to_the_second():
    """Registration of a task takes no device as the last: names are checked without the fields of kinds."""
    done = subprocess.run([sys.executable, "-c", ORDER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("task", ["battery_arbitrage", "dc_microgrid", "marl_opf"])
def test_keywords_of_a_spec_that_there_are_not_are_named_together(task, monkeypatch):
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    spec = get_spec(task)
    register_task(mine(task, overrides=(*spec.overrides, ("colour", "red"), ("solvr", "auto"))))
    with pytest.raises(SettingsError) as caught:
        powerzoo_jax.make("mine")
    head, *found = str(caught.value).splitlines()
    assert head == "mine: overrides has 2 problems:" and "Did you mean 'solver'?" in found[1]
    assert found[0].startswith("1. Unknown keyword 'colour'.")


def test_modes_of_a_task_are_those_that_its_builder_takes():
    """The default is the mode of the keywords; what a builder says it takes is what the record says."""
    for task in registry.SHIPPED:
        modes = registry.observation_modes(task.spec)
        assert dict(task.spec.overrides).get("obs_mode", modes[0]) == modes[0], task.spec.id
        if task.modes is None:
            continue
        with pytest.raises(ValueError, match="mode") as caught:
            powerzoo_jax.make(task.spec.id, obs_mode="nothing")
        valid = str(caught.value).partition("Valid: ")[2].rstrip(".").split(", ")
        assert set(valid) - {"flattened"} == set(modes), task.spec.id
