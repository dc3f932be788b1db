"""The soak test plays what it says, counts every kind of fault, and fails on any."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.spaces import Box, MultiDiscrete
from powerzoo_jax.base.types import Step
from powerzoo_jax.powerflow import Status
from powerzoo_jax.tasks.registry import list_presets, list_versions
from tools import soak
from tools.soak import FAULTS, KINDS, LANES, OUTCOMES, Result, act, groups, judge

BOX = Box(np.full((1, 2), -1.0, np.float32), np.full((1, 2), 1.0, np.float32))
WEIGHTS = jnp.array([1.0, -2.0])


counts_of = jax.jit(lambda step: judge(step, BOX, WEIGHTS))


class Report(NamedTuple):
    """Fields of an `Info` that the counts look at."""

    terminated: jax.Array
    truncated: jax.Array
    pf_status: jax.Array
    pf_residual: jax.Array
    terms: jax.Array


def good_step(**changes: jax.Array) -> Step:
    report = {
        "terminated": jnp.zeros(LANES, bool),
        "truncated": jnp.zeros(LANES, bool),
        "pf_status": jnp.zeros(LANES, jnp.int32),
        "pf_residual": jnp.zeros(LANES),
        "terms": jnp.ones((LANES, 1, 2)),
    }
    step = {"state": jnp.zeros((LANES, 3)), "obs": jnp.zeros((LANES, 1, 2)), "reward": jnp.full((LANES, 1), -1.0)}
    step |= {"cost": jnp.zeros((LANES, 4))}
    report |= {name: value for name, value in changes.items() if name in report}
    step |= {name: value for name, value in changes.items() if name in step}
    return Step(**step, info=Report(**report))


def test_a_good_step_has_no_fault():
    found = counts_of(good_step())
    assert not np.any(found.faults)
    assert found.outcomes.tolist() == [LANES] + [0] * (len(OUTCOMES) - 1)


BROKEN = {
    "obs": ({"obs": jnp.zeros((LANES, 1, 2)).at[1, 0, 1].set(jnp.nan)}, {"obs"}),
    "reward": ({"reward": jnp.full((LANES, 1), -1.0).at[2].set(jnp.inf)}, {"reward", "unequal"}),
    "cost": ({"cost": jnp.zeros((LANES, 4)).at[0, 3].set(jnp.nan)}, {"cost"}),
    "info": ({"pf_residual": jnp.zeros(LANES).at[3].set(jnp.nan)}, {"info"}),
    "state": ({"state": jnp.zeros((LANES, 3)).at[4, 1].set(-jnp.inf)}, {"state"}),
    "outside": ({"obs": jnp.zeros((LANES, 1, 2)).at[5, 0, 0].set(1.01)}, {"outside"}),
    "negative": ({"cost": jnp.zeros((LANES, 4)).at[6, 0].set(-1e-3)}, {"negative"}),
    "unequal": ({"reward": jnp.full((LANES, 1), -1.0).at[7].set(-1.01)}, {"unequal"}),
    "mismatch": ({"pf_residual": jnp.zeros(LANES).at[8].set(0.1)}, {"mismatch"}),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_of_one_lane_is_counted_once(what):
    changes, expected = BROKEN[what]
    counts = dict(zip(FAULTS, counts_of(good_step(**changes)).faults.tolist(), strict=True))
    assert {name for name, count in counts.items() if count} == expected and set(counts.values()) == {0, 1}


def test_a_flow_that_says_that_it_failed_may_leave_a_mismatch_and_is_counted_by_its_status():
    status = jnp.zeros(LANES, jnp.int32).at[0].set(Status.ISLANDED).at[1].set(99)
    found = counts_of(good_step(pf_status=status, pf_residual=jnp.zeros(LANES).at[:2].set(9.0)))
    assert not np.any(found.faults)
    outcomes = dict(zip(OUTCOMES, found.outcomes.tolist(), strict=True))
    assert outcomes["islanded"] == outcomes["unknown"] == 1 and outcomes["converged"] == LANES - 2


@pytest.mark.full
def test_the_actions_of_a_box_are_of_their_kinds():
    draw = jax.jit(functools.partial(act, BOX))
    first, second = (np.asarray(draw(jax.random.key(k), jnp.int32(k))) for k in (0, 1))
    lanes = {name: np.array([k for k, kind in enumerate(KINDS) if kind == name]) for name in KINDS}
    assert first.shape == (LANES, 1, 2)
    assert np.all(np.abs(first[lanes["random"]]) < 1) and np.all(np.abs(first[len(KINDS) :]) < 1)
    assert np.all(np.abs(first[lanes["extreme"]]) == 1)
    assert np.all(first[lanes["alternating"]] == -second[lanes["alternating"]])
    assert np.all(np.isnan(first[lanes["nan"]])) and np.all(np.isinf(first[lanes["infinite"]]))
    assert np.all(np.abs(first[lanes["huge"]]) == np.float32(1e30))


@pytest.mark.full
def test_the_actions_of_a_discrete_space_leave_its_range_where_they_are_invalid():
    space = MultiDiscrete(np.full((2, 3), 4, np.int32))
    found = np.asarray(jax.jit(functools.partial(act, space))(jax.random.key(0), jnp.int32(0)))
    by_kind = {name: found[k] for k, name in enumerate(KINDS)}
    assert np.all((by_kind["random"] >= 0) & (by_kind["random"] < 4)) and set(by_kind["extreme"].flat) <= {0, 3}
    invalid = np.stack([by_kind[name] for name in ("nan", "infinite", "huge")])
    assert np.all((invalid < 0) | (invalid >= 4))


@pytest.mark.full
def test_tasks_of_one_form_survive_and_share_a_program():
    steps = 3 * LANES * soak.LENGTH
    found = soak.soak_group([("marl_opf", 1), ("marl_opf_7d", 1)], steps, 0, soak.QUICK_LEVEL)
    assert [x.programs for x in found] == [1, 0] and all(x.good and x.steps == steps for x in found)
    assert all(sum(x.outcomes.values()) == steps for x in found)
    assert [x.ended for x in found] == [LANES, 0]  # a day has 48 steps, 75 are played


def test_groups_hold_every_task_once_and_those_of_one_grid_together():
    names = (*pz.list_tasks(), *list_presets())
    members = [member for group in groups(names, quick=False) for member in group]
    assert sorted(members) == sorted((name, k) for name in names for k in list_versions(name))
    quick = groups(names, quick=True)
    assert sorted(name for group in quick for name, _ in group) == sorted(names)
    assert any({("opf_118", 1), ("marl_opf_118", 1), ("opf_118_7d", 1)} <= set(group) for group in quick)


@pytest.mark.parametrize(("programs", "faults", "status"), [(1, 0, 0), (0, 0, 0), (2, 0, 1), (1, 3, 1)])
def test_the_command_fails_on_a_fault_and_on_a_second_program(programs, faults, status, monkeypatch, capsys, tmp_path):
    result = Result("battery_arbitrage", 0, 400, 1.0, programs, {"obs": faults}, {"converged": 400}, 16)
    monkeypatch.setattr(soak, "soak", lambda *_: result)
    out = tmp_path / "rows.tsv"
    soak.write_rows(out, [("another", "1", "400", "1.0", "1", "16", "none", "400 converged")])
    assert soak.main(["battery_arbitrage", "--quick", "--out", str(out)]) == status
    row = capsys.readouterr().out.splitlines()[-2]
    head, _, other, last = out.read_text().splitlines()
    assert row == last and other.startswith("another\t") and head.startswith("# 2 tasks, presets and versions, 800 ste")
    assert ("3 obs" in row) == bool(faults) and "400 converged" in row
