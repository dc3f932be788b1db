"""What the compiled step and init are made of: one program for all splits, one solve, no tables, no host."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

import powerzoo_jax
from powerzoo_jax.base import Step
from powerzoo_jax.envs import Sim

pytestmark = pytest.mark.program

TASK = "battery_arbitrage"
SPLITS = ("train", "val", "test", "price_stress")
TEXT_LIMIT = {"init": 250_000, "step": 450_000}  # characters of the lowered text; a closed-over bank adds megabytes
CONSTANT_LIMIT = 1_000  # numbers in the largest constant of a program


@cache
def make(split: str = "train") -> Sim:
    return powerzoo_jax.make(TASK, split=split)


def start(sim: Sim) -> Any:
    return jax.eval_shape(sim.init, jax.random.key(0))[0]


@cache
def program(name: str) -> Any:
    """Closed jaxpr of `init` or `step` on one lane."""
    sim = make()
    if name == "init":
        return jax.make_jaxpr(lambda sim, key: sim.init(key))(sim, jax.random.key(0))
    return jax.make_jaxpr(lambda sim, state, action: sim.step(state, action))(sim, start(sim), jnp.zeros((1, 1)))


SOLVE = "custom_jvp_call"  # the solver is the one function here with its own derivative


def equations(jaxpr: Any, closed: tuple[str, ...] = ()) -> Iterator[Any]:
    """Every equation of a program, those inside other equations included, but for those inside `closed` primitives."""
    for eqn in jaxpr.eqns:
        yield eqn
        if eqn.primitive.name in closed:
            continue
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda v: isinstance(v, Jaxpr | ClosedJaxpr)):
            if isinstance(value, Jaxpr | ClosedJaxpr):
                yield from equations(getattr(value, "jaxpr", value), closed)


def names(name: str, closed: tuple[str, ...] = ()) -> list[str]:
    return [eqn.primitive.name for eqn in equations(program(name).jaxpr, closed)]


def lowered(name: str) -> str:
    sim = make()
    if name == "init":
        return jax.jit(lambda sim, key: sim.init(key)).lower(sim, jax.random.key(0)).as_text()
    step = jax.jit(lambda sim, state, action: sim.step(state, action))
    return step.lower(sim, start(sim), jnp.zeros((1, 1))).as_text()


def test_one_program_serves_all_splits_and_seeds():
    traces = []

    def step(sim: Sim, state: Any, action: Any) -> Step:
        traces.append(sim.spec.split)
        return sim.step(state, action)

    trace = jax.jit(step).trace
    for split in SPLITS:
        for seed in range(2):
            state = jax.eval_shape(make(split).init, jax.random.key(seed))[0]
            trace(make(split), state, jnp.zeros((1, 1)))
    assert traces == ["train"]


@pytest.mark.parametrize("name", ["init", "step"])
def test_the_main_path_runs_one_solve(name):
    assert names(name, closed=("cond",)).count(SOLVE) == 1


@pytest.mark.parametrize("name", ["init", "step"])
def test_nothing_runs_step_by_step_outside_the_solver(name):
    assert not {"scan", "while"} & set(names(name, closed=(SOLVE,)))


@pytest.mark.parametrize("name", ["init", "step"])
def test_no_program_calls_the_host(name):
    assert not [n for n in names(name) if "callback" in n or "infeed" in n or "outfeed" in n]


@pytest.mark.parametrize("name", ["init", "step"])
def test_no_program_carries_tables_as_constants(name):
    assert max((c.size for c in program(name).consts), default=0) <= CONSTANT_LIMIT
    assert len(lowered(name)) < TEXT_LIMIT[name]


def test_a_closed_over_bank_would_be_noticed():
    sim = make()
    baked = jax.jit(lambda state, action: sim.step(state, action)).lower(start(sim), jnp.zeros((1, 1))).as_text()
    assert len(baked) > TEXT_LIMIT["step"]


@pytest.mark.full
def test_steps_move_nothing_to_or_from_the_host():
    sim = make()
    step = jax.jit(lambda sim, state, action: sim.step(state, action))
    state, _ = jax.jit(lambda sim, key: sim.init(key))(sim, jax.random.key(0))
    action = jnp.zeros((1, 1))
    state = step(sim, state, action).state
    with jax.transfer_guard("disallow"):
        for _ in range(3):
            state = step(sim, state, action).state
    assert int(state.t) == 4
