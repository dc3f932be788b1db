"""Loads that follow powers of their voltage: OpenDSS's voltages, slopes, and no trace where a feeder has none."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.cases import ThreePhaseCase, load_feeder, read_opendss
from powerzoo_jax.cases.threephase.case import ExponentTable, empty_table, stripped
from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.threephase.factors import nominal_phase_load, prepare_threephase
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host
from powerzoo_jax.powerflow.threephase.solve import ThreePhaseResult, solve_threephase
from tests.recorders.record_opendss_elements import recorded
from tests.references.opendss_feeders import feeders
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

MEASURED = "CVR loads of measured exponents"
SHARES = (("i", 1), ("z", 2))  # the exponents that they stand for
HEAVY, STEP = 1.1, 1e-4  # factor of the loads at which slopes are taken


@pytest.fixture(scope="module")
def measured() -> ThreePhaseCase:
    return read_opendss("feeder.dss", read=lambda _: feeders()[MEASURED])


@pytest.mark.full
def test_the_batched_solver_has_the_voltages_of_opendss_and_the_slopes_of_differences(measured: ThreePhaseCase) -> None:
    with jax.enable_x64(True):
        factors, s = prepare_threephase(measured, dtype="float64"), jnp.asarray(nominal_phase_load(measured))

        def solve(factor: Array) -> tuple[Array, ThreePhaseResult]:
            result = solve_threephase(factors, factor * s.real, factor * s.imag)
            return jax.lax.complex(result.v_re, result.v_im), result

        def with_slope(factor: Array) -> tuple[Array, Array, ThreePhaseResult]:
            return jax.jvp(solve, (factor,), (jnp.ones_like(factor),), has_aux=True)

        volts, slope, result = jax.device_get(jax.jit(jax.vmap(with_slope))(jnp.asarray([1.0, HEAVY])))
    assert (result.status == Status.CONVERGED).all()
    engine, base = recorded()[MEASURED], 1e3 * measured.node.base_kv
    expected = np.array([engine[name] for name in measured.node_names]) / base
    assert np.abs(volts[0] - expected).max() <= tolerance("opendss_element_v_pu", "float64")
    up, down = (solve_threephase_on_host(measured, load_factor=HEAVY + step) for step in (STEP, -STEP))
    np.testing.assert_allclose(slope[1], (up - down) / (2 * STEP), atol=tolerance("gradient_relative", "float64"))


def test_exponents_of_zero_one_and_two_are_constant_power_current_and_impedance() -> None:
    case = stripped(load_feeder(13))
    rows, zero, one = np.arange(len(case.load)), np.zeros(len(case.load)), np.ones(len(case.load))
    for p, q in ((0, 0), (1, 2), (2, 1)):
        by_exponent = replace(case, exponent=ExponentTable(load=rows, p_exponent=p * one, q_exponent=q * one))
        share = {f"{kind}_{name}": one if a == k else zero for name, a in (("p", p), ("q", q)) for kind, k in SHARES}
        by_share = replace(case, load=replace(case.load, **share))
        np.testing.assert_allclose(
            *map(solve_threephase_on_host, (by_exponent, by_share)), atol=tolerance("v_pu", "float64")
        )


def test_a_feeder_without_exponents_has_none_in_its_factors(measured: ThreePhaseCase) -> None:
    plain = prepare_threephase(replace(measured, exponent=empty_table(ExponentTable))).core.law
    law = prepare_threephase(measured).core.law
    assert len(jax.tree.leaves(plain)) + 2 == len(jax.tree.leaves(law))
