"""Every registered task keeps the contract on every split, and every rule of the contract can fail."""

from __future__ import annotations

import jax
import pytest

import powerzoo_jax
from powerzoo_jax.tasks import contract
from powerzoo_jax.tasks.contract import ContractError, check_sim
from tests.tasks import toy

pytestmark = pytest.mark.contract

STRESS = ("renewable_drought", "cooling_stress", "dg_derating", "sla_tighten", "workload_swap", "workload_shock")
CALENDAR = ("train", "val", "test")
STRESSED_GRID = ("load_stress", "line_tightening")
SPLITS = {
    "battery_arbitrage": ("train", "val", "test", "price_stress"),
    "dso": (*CALENDAR, "summer_ood", "zone_holdout", "iid"),
    "marl_der_arbitrage": (*CALENDAR, "price_stress"),
    "marl_der_arbitrage_5bat": (*CALENDAR, "price_stress"),
    "marl_der_arbitrage_7d": (*CALENDAR, "price_stress"),
    "marl_ders_benchmark": (*CALENDAR, "load_stress", "pv_penetration_shift", "voltage_tightening"),
    "marl_ev_v2g": (*CALENDAR, "price_stress"),
    "marl_ev_v2g_10ev": (*CALENDAR, "price_stress"),
    "marl_ev_v2g_1d": (*CALENDAR, "price_stress"),
    "dc_scheduling": (*CALENDAR, "price_stress", "cooling_stress"),
    "dc_scheduling_7d": (*CALENDAR, "price_stress", "cooling_stress"),
    "dc_microgrid": ("train", "val", "test", *STRESS),
    "dc_microgrid_safe": ("train", "val", "test", *STRESS),
    "joint_trans_dist": CALENDAR,
    "joint_trans_dist_7d": CALENDAR,
    "marl_opf": ("train", "val", "test", *STRESSED_GRID),
    "marl_opf_118": ("train", "val", "test", *STRESSED_GRID),
    "marl_opf_7d": ("train", "val", "test", *STRESSED_GRID),
    "marl_uc": ("train", "val", "test", *STRESSED_GRID),
    "opf_118": ("train", "val", "test", *STRESSED_GRID),
    "opf_118_7d": ("train", "val", "test", *STRESSED_GRID),
    "comparison_tso_centralized": ("train", "val", "test", "iid", *STRESSED_GRID),
    "gencos_bidding": ("train", "val", "test", "iid", "demand_shift", "renewable_shock"),
}


def test_every_registered_task_is_listed_with_its_splits():
    assert set(SPLITS) == set(powerzoo_jax.list_tasks())


# in double precision one task of each kind of step; the others run the same code, and tests/property plays a
# single battery and dso in double precision too
WIDE = ("marl_ders_benchmark", "marl_ev_v2g", "dc_microgrid", "marl_uc", "gencos_bidding")


@pytest.mark.tiers("long", quick=["marl_opf-float32"], full=["battery_arbitrage-float32", "opf_118_7d-float32"])
@pytest.mark.parametrize(("task", "dtype"), [*((t, "float32") for t in SPLITS), *((t, "float64") for t in WIDE)])
def test_a_task_keeps_the_contract_on_every_split(task, dtype):
    with jax.enable_x64(dtype == "float64"):
        first, *others = (powerzoo_jax.make(task, split=split, dtype=dtype) for split in SPLITS[task])
        check_sim(first, others=tuple(others))


MODES = {
    "marl_der_arbitrage": ("global", "local", "local_plus_voltage"),
    "marl_ders_benchmark": ("global", "local", "local_plus_voltage"),
    "marl_ev_v2g": ("global", "local"),
}


@pytest.mark.long
@pytest.mark.parametrize(("task", "mode"), [(task, mode) for task, modes in MODES.items() for mode in modes])
def test_a_task_keeps_the_contract_in_every_other_mode(task, mode):
    check_sim(powerzoo_jax.make(task, obs_mode=mode))


def test_a_sound_environment_passes():
    check_sim(toy.toy_sim(), others=(toy.toy_sim(split="test"),))


BROKEN = {
    "a weakly typed leaf": (toy.WeakLeaf(), "shapes and dtypes: leaf .*x is weakly typed"),
    "a second trace": (toy.WeakLeaf(), "one trace: three steps traced the program 2 times"),
    "a wrong shape": (toy.FlatObservation(), r"shapes and dtypes: obs has shape \(2,\), expected \(1, 2\)"),
    "a float flag": (toy.FloatFlag(), "shapes and dtypes: terminated has dtype float32"),
    "another tree": (toy.OtherTree(), "one tree: "),
    "a NaN": (toy.NanObservation(), "membership: the observation before step 2 lies outside"),
    "a value out of bounds": (toy.OutOfBounds(), "membership: the observation before step 3 lies outside"),
    "a negative cost": (toy.NegativeCost(), "membership: a cost channel is negative in step 0"),
    "no end": (toy.Endless(), "membership: no end flag after the horizon of 4 steps"),
    "cleared flags": (toy.ClearsFlags(), "membership: stepping past the end clears the flags"),
    "a memory": (toy.Remembers(), "determinism: the same key and action gave two results"),
    "an ignored key": (toy.IgnoresKey(), "determinism: another key gave the same state"),
    "coupled lanes": (toy.CoupledLanes(), "vmap equals loop: lane . of a vmap differs"),
    "a NaN action let through": (toy.NanAction(), "finite under absurd actions: action nan gave a"),
    "a wrong sum": (toy.WrongSum(), "reward is the weighted sum: "),
    "equality by identity": (toy.EqualByIdentity(), "names and sizes: two equal environments are not equal by value"),
    "an exception": (toy.Raises(), "one trace: raised ValueError: no such bus"),
}


@pytest.mark.parametrize(("env", "words"), BROKEN.values(), ids=[name.replace(" ", "-") for name in BROKEN])
def test_a_broken_environment_is_reported_by_rule(env, words):
    with pytest.raises(ContractError, match=words):
        check_sim(toy.toy_sim(env))


def test_names_that_do_not_match_the_sizes_are_reported():
    with pytest.raises(ContractError, match=r"names and sizes: spec\.cost_names has 2 entries, the environment 1"):
        check_sim(toy.toy_sim(cost_names=("size", "weight")))


def test_a_split_of_another_shape_is_reported_by_name():
    with pytest.raises(ContractError, match="one compile over the splits: 2 programs for the splits train, test"):
        check_sim(toy.toy_sim(), others=(toy.toy_sim(rows=9, split="test"),))


def test_all_breaches_come_in_one_error():
    with pytest.raises(ContractError) as caught:
        check_sim(toy.toy_sim(toy.NegativeCost(), cost_names=("size", "weight")))
    assert str(caught.value).count("\n- ") == 2


@pytest.mark.full
def test_every_rule_has_an_environment_that_breaks_it():
    rules = {rule.__name__[1:].replace("_", " ") for rule in contract.RULES}
    assert rules == {words.partition(":")[0] for _, words in BROKEN.values()}
