"""Current laws in every kind of number, and the length of the fixed form against counted iterations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import nominal_injection, prepare_feeder, solve_feeder
from powerzoo_jax.powerflow.rows import LENGTHS, ConstantPower, common_length, residual_parts
from powerzoo_jax.powerflow.wide import Wide

UNIT = 2.0**-42  # relative error of a law in pairs of float32, of 48 digits, after some twenty operations


def states() -> list[np.ndarray]:
    """e, f, p, q (64, 3), float32 numbers in float64: voltages from nearly none to far above every limit."""
    rng = np.random.default_rng(4)
    e, f = rng.uniform(0.05, 1.8, (64, 3)), rng.uniform(-0.6, 0.6, (64, 3))
    p, q = rng.normal(size=(2, 64, 3))
    return [x.astype(np.float32).astype(float) for x in (e, f, p, q)]


def test_constant_power_in_pairs_has_twice_the_digits_of_a_float():
    law, (e, f, p, q) = ConstantPower(), states()
    exact = law.current((), e, f, p, q)  # float64, on the host

    @jax.jit
    def in_pairs(e: Any, f: Any, p: Any, q: Any) -> Any:
        return [part.pair for part in law.current((), Wide(ds.pair(e)), Wide(ds.pair(f)), p, q)]

    size = np.hypot(*exact)
    for part, expected in zip(in_pairs(*(x.astype(np.float32) for x in (e, f, p, q))), exact, strict=True):
        found = np.asarray(part.high, float) + np.asarray(part.low, float)
        assert (np.abs(found - expected) / size).max() < UNIT


@pytest.mark.tiers("full", quick=["0.425-33bw"])
@pytest.mark.parametrize("name", ["33bw", "141"])
@pytest.mark.parametrize("load_factor", [0.425, 1.0])
def test_the_fixed_form_is_longer_than_the_range_of_loads_needs(name, load_factor):
    case = load_case(name)
    factors = prepare_feeder(case, load_factor=load_factor)
    # loads between none and twice the base, and some export, bus by bus
    factor = load_factor * np.random.default_rng(0).uniform(0, 2, (256, 1)) * np.ones(case.n_bus)
    factor[:16] *= -0.25
    s = factor * nominal_injection(case)
    solve = jax.jit(jax.vmap(lambda p, q: solve_feeder(factors, p, q, solver="adaptive").iterations))
    needed = np.asarray(solve(s.real.astype(np.float32), s.imag.astype(np.float32)))
    assert factors.core.steps in LENGTHS and needed.max() < factors.core.steps


def test_a_wider_range_of_loads_asks_for_more_steps():
    case = load_case("118zh")
    lengths = [prepare_feeder(case, load_factor=k).core.steps for k in (0.1, 0.5, 1.0)]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


def test_lanes_of_one_program_take_the_longest_form_of_theirs():
    case = load_case("118zh")
    trees = [prepare_feeder(case, load_factor=k) for k in (0.1, 1.0)]
    alike = common_length(trees)
    assert [tree.core.steps for tree in alike] == [trees[1].core.steps] * 2
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *alike)
    assert stacked.core.steps == trees[1].core.steps


def test_the_residual_is_one_formula_for_host_and_device():
    core = prepare_feeder(load_case("33bw")).core
    a = core.d_base.shape[-1]
    rng = np.random.default_rng(3)
    e, f, p, q = (x.astype(np.float32) for x in (1 + 0.1 * rng.normal(size=(5, a)), *rng.normal(size=(3, 5, a))))
    host = residual_parts(ConstantPower(), jax.tree.map(np.asarray, core), e, f, p, q)
    device = jax.jit(lambda *x: residual_parts(ConstantPower(), core, *x))(e, f, p, q)
    assert all(isinstance(part, np.ndarray) for part in host)
    np.testing.assert_allclose(np.stack(device), np.stack(host), rtol=1e-5, atol=1e-5)
