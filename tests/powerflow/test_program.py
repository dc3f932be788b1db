"""What the compiled power flow is made of: one program, rank-two products, nothing baked in, nothing on the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import (
    FeederFactors,
    MeshedResult,
    nominal_injection,
    prepare_feeder,
    prepare_meshed,
    solve_feeder,
    solve_meshed,
)

pytestmark = pytest.mark.program

PROGRAM_LIMIT = 200_000  # characters of the lowered text, measured 100,000; a baked-in factor adds many more


@pytest.fixture(scope="module")
def feeder() -> tuple[FeederFactors, np.ndarray, np.ndarray]:
    """Factors of case141 and 16 scenarios."""
    case = load_case("141")
    s = nominal_injection(case) * np.random.default_rng(2).uniform(0.8, 1.2, (16, case.n_bus))
    return prepare_feeder(case), s.real.astype(np.float32), s.imag.astype(np.float32)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a program, those of branches, loops and custom rules included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda v: isinstance(v, Jaxpr | ClosedJaxpr)):
            if isinstance(value, ClosedJaxpr):
                yield from equations(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from equations(value)


@pytest.mark.full
def test_several_calls_compile_once(feeder: tuple[FeederFactors, np.ndarray, np.ndarray]) -> None:
    factors, p, q = feeder
    traces = []

    def counted(factors: FeederFactors, p: jax.Array, q: jax.Array) -> jax.Array:
        traces.append(p.shape)
        return solve_feeder(factors, p, q).v_re

    solve = jax.jit(jax.vmap(counted, in_axes=(None, 0, 0)))
    v = solve(factors, p, q)
    solve(factors, p + np.float32(0.001), q)
    other = prepare_feeder(load_case("141"), load_factor=0.95)
    assert other.core.steps == factors.core.steps  # static: a fixed form of another length is another program
    solve(other, jnp.asarray(v[:, : p.shape[1]]) * 0, q)
    assert len(traces) == 1


def test_the_program_carries_no_factors_as_constants(feeder: tuple[FeederFactors, np.ndarray, np.ndarray]) -> None:
    factors, p, q = feeder
    text = jax.jit(jax.vmap(solve_feeder, in_axes=(None, 0, 0))).lower(factors, p, q).as_text()
    assert len(text) < PROGRAM_LIMIT
    baked = jax.jit(jax.vmap(lambda p, q: solve_feeder(factors, p, q))).lower(p, q).as_text()
    assert len(baked) > PROGRAM_LIMIT  # so the limit would notice


@pytest.mark.full
def test_a_solve_moves_nothing_to_the_host(feeder: tuple[FeederFactors, np.ndarray, np.ndarray]) -> None:
    factors, p, q = (jax.tree.map(jnp.asarray, x) for x in feeder)
    solve = jax.jit(jax.vmap(solve_feeder, in_axes=(None, 0, 0)))
    program = jax.make_jaxpr(solve)(factors, p, q)
    assert not [e for e in equations(program.jaxpr) if "callback" in e.primitive.name]
    jax.block_until_ready(solve(factors, p, q))
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(solve(factors, p, q))


def test_nested_vmaps_run_the_chord_as_rank_two_products(
    feeder: tuple[FeederFactors, np.ndarray, np.ndarray],
) -> None:
    factors, p, q = feeder
    adaptive = partial(solve_feeder, solver="adaptive")
    nested = jax.vmap(jax.vmap(adaptive, in_axes=(None, 0, 0)), in_axes=(None, 0, 0))
    program = jax.make_jaxpr(nested)(factors, p.reshape(4, 4, -1), q.reshape(4, 4, -1))
    side = 2 * factors.n_active
    chord = [
        [v.aval.shape for v in e.invars]
        for e in equations(program.jaxpr)
        if e.primitive.name == "dot_general" and (side, side) in [v.aval.shape for v in e.invars]
    ]
    # two steps taken by all and one in the loop; what maps r to all buses afterwards stays with the vmaps
    assert chord.count([(16, side), (side, side)]) == 3


def questions(read: Callable[[MeshedResult], Any]) -> int:
    """Loops whose length the compiled program does not know, when it reads `read` off solves of fixed steps."""
    case = load_case("9")
    s = nominal_injection(case)
    p, q = (jnp.tile(jnp.asarray(x, jnp.float32), (4, 1)) for x in (s.real, s.imag))
    solve = jax.vmap(lambda factors, p, q: read(solve_meshed(factors, p, q, fixed_steps=4)), in_axes=(None, 0, 0))
    text = jax.jit(solve).lower(prepare_meshed(case), p, q).compile().as_text()
    return len([line for line in text.splitlines() if re.search(r" while\(", line) and "known_trip_count" not in line])


@pytest.mark.full
def test_a_fixed_number_of_steps_asks_the_host_nothing_also_for_flows() -> None:
    assert questions(lambda r: r) == 0
