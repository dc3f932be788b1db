"""Automatic regulators against the taps at which OpenDSS's own controls come to rest."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.powerflow import (
    RegulatedResult,
    Status,
    nominal_phase_load,
    prepare_regulators,
    prepare_threephase,
    solve_regulated,
)
from tests.recorders.record_opendss import DATA
from tests.references.threephase_feeders import TAPS, case_of
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

# Row of the recorded taps at which OpenDSS ends when its controls begin at neutral, and when they begin at row 0.
FROM_NEUTRAL = {"ieee13": 0, "ieee34": 0, "ieee123": 1}
SPREAD = (0.6, 1.3)  # multiples of the nominal load


@cache
def _program() -> Any:
    def solve(factors: Any, control: Any, p: Any, q: Any, tap: Any, rounds: Any) -> RegulatedResult:
        return solve_regulated(factors, control, p, q, tap, rounds=rounds)

    return jax.jit(jax.vmap(solve, in_axes=(None, None, 0, 0, 0, None)))


@cache
def solved(folder: str, rounds: int = 20) -> RegulatedResult:
    """From neutral and from the taps of the case at nominal load, then from neutral at random loads."""
    case = case_of(folder)
    rng = np.random.default_rng(1)
    scale = np.vstack([np.ones((2, len(case.load))), rng.uniform(*SPREAD, (6, len(case.load)))])
    s = scale * nominal_phase_load(case)
    tap = np.zeros((len(scale), len(case.regulator)), np.int32)
    tap[1] = TAPS[folder][0]
    with jax.enable_x64(True):
        factors, control = prepare_threephase(case, dtype="float64"), prepare_regulators(case, dtype="float64")
        return jax.tree.map(np.asarray, _program()(factors, control, s.real, s.imag, tap, np.int32(rounds)))


@pytest.mark.parametrize("folder", TAPS)
def test_controls_come_to_rest_where_those_of_opendss_do(folder: str) -> None:
    result, row = solved(folder), FROM_NEUTRAL[folder]
    assert np.all(result.flow.status == Status.CONVERGED)
    np.testing.assert_array_equal(result.tap[0], TAPS[folder][row])
    np.testing.assert_array_equal(result.tap[1], TAPS[folder][0])
    assert result.rounds[1] == 1 and result.rounds[0] > 2
    expected = read_npz(DATA / folder / "expected.npz")
    error = np.hypot(result.flow.v_re[0] - expected["v_re"][row], result.flow.v_im[0] - expected["v_im"][row])
    quantity = "opendss_shunt_v_pu" if folder == "ieee34" else "opendss_v_pu"
    assert error.max() <= tolerance(quantity, "float64")


@pytest.mark.parametrize("folder", TAPS)
def test_every_control_ends_in_its_band_or_at_its_last_position(folder: str) -> None:
    result, r = solved(folder), case_of(folder).regulator
    off = r.v_set_volt - result.u_volt
    stuck = (np.abs(result.tap) == r.tap_max) & (np.sign(result.tap) == np.sign(off))
    assert np.all((np.abs(off) <= 0.5 * r.band_volt) | stuck)
    assert len(np.unique(result.tap, axis=0)) > 3


def test_a_lane_without_rounds_left_says_so() -> None:
    short, whole = solved("ieee13", 2), solved("ieee13")
    np.testing.assert_array_equal(short.flow.status == Status.CONVERGED, whole.rounds <= 2)
    assert (whole.rounds > 2).any() and (whole.rounds <= 2).any()


def test_the_derivative_is_that_at_the_taps_found() -> None:
    case = case_of("ieee13")
    s, h = nominal_phase_load(case), 1e-5
    by = np.random.default_rng(2).normal(size=s.size) * np.abs(s.real)
    with jax.enable_x64(True):
        factors, control = prepare_threephase(case, dtype="float64"), prepare_regulators(case, dtype="float64")

        def loss(p: jax.Array) -> jax.Array:
            return solve_regulated(factors, control, p, jnp.asarray(s.imag)).flow.p_loss

        value = jax.jit(jax.value_and_grad(loss))
        slope = float(np.sum(np.asarray(value(s.real)[1]) * by))
        numeric = (value(s.real + h * by)[0] - value(s.real - h * by)[0]) / (2 * h)
    assert slope == pytest.approx(float(numeric), rel=tolerance("gradient_relative", "float64"))


def test_a_feeder_without_regulators_is_refused() -> None:
    case = case_of("ieee13")
    table = type(case.regulator)
    rows = {field.name: getattr(case.regulator, field.name)[:0] for field in dataclasses.fields(table)}
    with pytest.raises(SolverError, match="no regulators"):
        prepare_regulators(dataclasses.replace(case, regulator=table(**rows)))
