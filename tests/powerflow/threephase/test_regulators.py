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
from powerzoo_jax.cases import read_opendss
from powerzoo_jax.powerflow import (
    RegulatedResult,
    Status,
    nominal_phase_load,
    prepare_regulators,
    prepare_threephase,
    solve_regulated,
    solve_threephase,
)
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host
from tests.recorders.record_opendss import DATA
from tests.references.threephase_feeders import TAPS, case_of
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.full]

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


@pytest.mark.long
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


@pytest.mark.tiers("long", full=["ieee123"])
@pytest.mark.parametrize("folder", TAPS)
def test_every_control_ends_in_its_band_or_at_its_last_position(folder: str) -> None:
    result, r = solved(folder), case_of(folder).regulator
    off = r.v_set_volt - result.u_volt
    stuck = (np.abs(result.tap) == r.tap_max) & (np.sign(result.tap) == np.sign(off))
    assert np.all((np.abs(off) <= 0.5 * r.band_volt) | stuck)
    assert len(np.unique(result.tap, axis=0)) > 3


@pytest.mark.long
def test_a_lane_without_rounds_left_says_so() -> None:
    short, whole = solved("ieee13", 2), solved("ieee13")
    np.testing.assert_array_equal(short.flow.status == Status.CONVERGED, whole.rounds <= 2)
    assert (whole.rounds > 2).any() and (whole.rounds <= 2).any()


@pytest.mark.long
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


SUBSTATION = """Clear
New Circuit.r bus1=a basekv=69 pu=1.0 MVAsc3=800 MVAsc1=700
{transformer} %noloadloss=0.5 %imag=1.5
New RegControl.s transformer=s winding=2 vreg=126 band=2 ptratio=60 ctprim=600
New Capacitor.k bus1=b phases=3 kv=12.47 kvar=600
New Line.l bus1=b bus2=c length=2 units=km r1=0.3 x1=0.4 r0=0.6 x0=1.1 c1=0 c0=0
New Load.l bus1=c phases=3 kv=12.47 kw=7000 pf=0.9 {load}
Set VoltageBases=[69 12.47 4.16]
CalcVoltageBases
"""
TWO = "New Transformer.s phases=3 windings=2 buses=[a b] kvs=[69 12.47] kvas=[12000 12000] %rs=[0.35 0.35] xhl=7 "
THREE = (
    "New Transformer.s phases=3 windings=3 buses=[a b d] conns=[delta wye wye] kvs=[69 12.47 4.16] %rs=[0.35 0.35 0.4] "
    "kvas=[12000 12000 4000] xhl=7 xht=9 xlt=5 "
)
# windings -> transformer, more of the script, voltage [V] at c.1 by tap as the engine has it (dss_python 0.15.7,
# tolerance 1e-12); the first tap is the one at which its control comes to rest
IDLE = {
    "wye": (
        TWO + "conns=[delta wye]",
        "",
        {13: 5977.22606 - 4050.10193j, -10: 5208.00268 - 3480.17493j, 16: 6095.76184 - 4123.0527j},
    ),
    "delta": (
        TWO + "conns=[wye delta]",
        "conn=delta",
        {-16: 5023.03832 - 3331.74169j, -10: 5208.00272 - 3480.17497j, 16: 6095.76194 - 4123.05277j},
    ),
    "three windings": (
        THREE,
        "\nNew Load.d bus1=d phases=3 kv=4.16 kw=1500 pf=0.95",
        {13: 5909.55615 - 4083.72132j, -10: 5156.74272 - 3509.30758j, 16: 6026.99459 - 4157.39671j},
    ),
}


@cache
def _regulated() -> Any:
    return jax.jit(solve_regulated)


@cache
def _at_ratio() -> Any:
    return jax.jit(solve_threephase)


@pytest.mark.parametrize("name", IDLE)
def test_the_losses_of_an_idle_transformer_follow_the_tap_of_its_regulator(name: str) -> None:
    transformer, load, volts = IDLE[name]
    text = SUBSTATION.format(transformer=transformer, load=load)
    case = read_opendss("feeder.dss", read=lambda _: text)
    s, at = nominal_phase_load(case), case.position("c.1")
    limit = tolerance("opendss_v_pu", "float64")
    with jax.enable_x64(True):
        factors, control = prepare_threephase(case, dtype="float64"), prepare_regulators(case, dtype="float64")
        rest = _regulated()(factors, control, s.real, s.imag)
    assert bool(rest.flow.converged) and rest.tap.tolist() == [next(iter(volts))]
    for tap, volt in volts.items():
        expected = volt / (1e3 * case.node.base_kv[at])
        with jax.enable_x64(True):
            flow = _at_ratio()(factors, s.real, s.imag, jnp.asarray([1 + 0.00625 * tap]))
        assert abs(complex(flow.v_re[at], flow.v_im[at]) - expected) <= limit
        moved = dataclasses.replace(case, regulator=dataclasses.replace(case.regulator, tap=np.array([tap])))
        assert abs(solve_threephase_on_host(moved)[at] - expected) <= limit
