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
from tools import soak
from tools.soak import FAULTS, KINDS, LANES, OUTCOMES, Result, act, judge

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


def test_the_actions_of_a_discrete_space_leave_its_range_where_they_are_invalid():
    space = MultiDiscrete(np.full((2, 3), 4, np.int32))
    found = np.asarray(jax.jit(functools.partial(act, space))(jax.random.key(0), jnp.int32(0)))
    by_kind = {name: found[k] for k, name in enumerate(KINDS)}
    assert np.all((by_kind["random"] >= 0) & (by_kind["random"] < 4)) and set(by_kind["extreme"].flat) <= {0, 3}
    invalid = np.stack([by_kind[name] for name in ("nan", "infinite", "huge")])
    assert np.all((invalid < 0) | (invalid >= 4))


def test_a_task_survives_and_compiles_once():
    found = soak.soak(pz.make("battery_arbitrage", split="train"), 3 * LANES * soak.LENGTH)
    assert found.good and found.programs == 1 and found.steps == 3 * LANES * soak.LENGTH
    assert sum(found.outcomes.values()) == found.steps and found.ended == LANES  # a day has 48 steps, 75 are played


@pytest.mark.parametrize(("programs", "faults", "status"), [(1, 0, 0), (2, 0, 1), (1, 3, 1)])
def test_the_command_fails_on_a_fault_and_on_a_second_program(programs, faults, status, monkeypatch, capsys, tmp_path):
    result = Result("some", 400, 1.0, programs, {"obs": faults}, {"converged": 400}, 16)
    monkeypatch.setattr(soak, "soak", lambda *_: result)
    assert soak.main(["battery_arbitrage", "--out", str(tmp_path / "rows.tsv")]) == status
    row = capsys.readouterr().out.splitlines()[-1]
    assert row == (tmp_path / "rows.tsv").read_text().splitlines()[-1]
    assert ("3 obs" in row) == bool(faults) and "400 converged" in row


@pytest.mark.parametrize(("step", "flat"), [(0.0, True), (2.0, False)])
def test_memory_that_grows_is_told_from_caches_that_fill(step, flat):
    samples = [100.0] * 5 + [500.0 + step * k for k in range(95)]
    assert (soak.growth(samples) < soak.FLAT_MB) == flat
