"""What steps of feeder tasks are lowered to for accelerators: no factorisation of a library, no float64."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import powerzoo_jax
from powerzoo_jax.base.solver_mode import AUTO, auto_is
from powerzoo_jax.envs import DistributionEnv, Sim
from powerzoo_jax.tasks import list_presets

pytestmark = [pytest.mark.program, pytest.mark.full]

FACTORISATION = re.compile(r"getrf|LuDecomposition|lu_pivots|triangular_solve|cholesky|potrf|geqrf|householder", re.I)
WIDE = re.compile(r"\bf64\b|complex<f64>|xf64>")
LANES = 4


@cache
def feeder_tasks() -> tuple[str, ...]:
    names = (*powerzoo_jax.list_tasks(), *list_presets())
    return tuple(name for name in names if powerzoo_jax.tasks.get_spec(name).family == "feeder")


def lowered(task: str, platform: str, solver: str = "auto") -> str:
    """Text of `vstep` on a few lanes, lowered for a platform that need not be there."""
    sim = powerzoo_jax.make(task, solver=solver)
    keys = jax.random.split(jax.random.key(0), LANES)
    states, obs = jax.eval_shape(lambda s, k: jax.vmap(s.init)(k), sim, keys)
    actions = jax.ShapeDtypeStruct((LANES, sim.env.dims.agent, sim.env.dims.act), obs.dtype)
    step: Any = jax.jit(lambda sim, states, actions: powerzoo_jax.vstep(sim, states, actions))
    with auto_is(AUTO):  # both forms, or the trace would have that of this machine
        traced = step.trace(sim, states, actions)
    text: str = traced.lower(lowering_platforms=(platform,)).as_text()
    return text


def test_the_tasks_with_a_feeder_are_known():
    kept = [name for name in feeder_tasks() if isinstance(powerzoo_jax.make(name).env, DistributionEnv)]
    assert {"battery_arbitrage", "dso", "marl_ders_benchmark", "dc_scheduling", "distribution_3phase"} <= set(kept)


@pytest.mark.tiers("long", full=["marl_der_arbitrage", "atomic_distribution_grid"])
@pytest.mark.parametrize("task", feeder_tasks())
def test_a_step_for_a_tpu_holds_no_factorisation_and_no_float64(task):
    text = lowered(task, "tpu")
    assert not FACTORISATION.search(text) and not WIDE.search(text)


def test_what_is_looked_for_is_there_in_the_adaptive_form():
    text = lowered("battery_arbitrage", "cpu")
    assert FACTORISATION.search(text) and WIDE.search(text)


def test_gpus_get_the_same_form_as_tpus():
    text = lowered("battery_arbitrage", "cuda")
    assert not FACTORISATION.search(text) and not WIDE.search(text)


def start(sim: Sim) -> Any:
    return jax.eval_shape(sim.init, jax.random.key(0))[0]


def normalised(text: str) -> str:
    """Instructions of an optimised program without names and sources.

    The line that opens the program goes too: it spells its arguments otherwise when the program comes
    from the compilation cache.
    """
    names: dict[str, str] = {}
    _, _, text = text[text.index("ENTRY") :].partition("\n")
    text = re.sub(r"metadata=\{[^}]*\}", "", text)
    return re.sub(r"%[\w.\-]+", lambda m: names.setdefault(m[0], f"%{len(names)}"), text)


@pytest.mark.long
def test_on_a_cpu_auto_is_the_adaptive_program():
    def compiled(mode: str) -> str:
        sim = powerzoo_jax.make("battery_arbitrage", solver=mode)
        step = jax.jit(lambda params, state, action: sim.env.step(state, action, params))
        return normalised(step.lower(sim.params, start(sim), jnp.zeros((1, 1))).compile().as_text())

    assert compiled("auto") == compiled("adaptive") != compiled("fixed")
