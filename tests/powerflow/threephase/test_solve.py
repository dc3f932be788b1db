"""The three-phase solver against OpenDSS's recorded solutions: known and random states of IEEE 13, 34 and 123."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.threephase.case import stripped
from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.threephase.solve import ThreePhaseResult
from tests.recorders.record_opendss import COUNT, DATA
from tests.references.threephase_feeders import DERS, TAPS, case_of, draw_states, nominal_states, solve_states
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

# float type and mode of the solver: adaptive in both types, and the fixed form in the type of accelerators
FORMS = {"float32": ("float32", "adaptive"), "float64": ("float64", "adaptive"), "fixed": ("float32", "fixed")}
every_form = pytest.mark.parametrize(("dtype", "mode"), FORMS.values(), ids=FORMS)


class Golden(NamedTuple):
    """Figures of the first row of taps: source and losses [kW, kvar], smallest and largest voltage [pu] and where."""

    source_kw: float
    source_kvar: float
    loss_kw: float
    v_min_pu: float
    v_max_pu: float
    v_min_node: str | None = None
    v_max_node: str | None = None


GOLDEN = {
    "ieee13": Golden(3567.05, 1736.77, 112.40, 0.9608, 1.056),
    "ieee34": Golden(2047.04, 283.28, 273.51, 0.9231, 1.05),
    "ieee123": Golden(3621.94, 1325.51, 96.56, 0.98525, 1.04374, "65.1", "150r.2"),
}
POWER_KW, VOLTAGE_PU = 0.5, 1e-3  # printed with the figures above
STRIPPED_LOSS_KW, STRIPPED_V_MIN = 111.55, (0.9576, "114.1")


@cache
def recorded(folder: str) -> dict[str, np.ndarray]:
    return read_npz(DATA / folder / "expected.npz")


@cache
def solved(folder: str, dtype: str, mode: str) -> ThreePhaseResult:
    case = case_of(folder)
    return solve_states(case, nominal_states(case, TAPS[folder]), dtype, mode)


def voltage_error(result: ThreePhaseResult, expected: dict[str, np.ndarray], prefix: str = "") -> float:
    return float(np.hypot(result.v_re - expected[f"{prefix}v_re"], result.v_im - expected[f"{prefix}v_im"]).max())


@pytest.mark.tiers("long", full=["ieee13-float64"])
@every_form
@pytest.mark.parametrize("folder", TAPS)
def test_node_voltages_are_those_of_opendss_at_every_tap_setting(folder: str, dtype: str, mode: str) -> None:
    result = solved(folder, dtype, mode)
    assert (result.status == Status.CONVERGED).all()
    # OpenDSS adds a millionth of its rating to every transformer: six regulators of 20 MVA make that visible
    quantity = "opendss_shunt_v_pu" if folder == "ieee34" else "opendss_v_pu"
    assert voltage_error(result, recorded(folder)) <= tolerance(quantity, dtype)


@pytest.mark.tiers("long", full=["ieee13-float64", "ieee13-fixed"])
@every_form
@pytest.mark.parametrize("folder", TAPS)
def test_losses_and_source_power_are_those_of_opendss(folder: str, dtype: str, mode: str) -> None:
    result, expected, kw = solved(folder, dtype, mode), recorded(folder), 1e3 * case_of(folder).base_mva
    np.testing.assert_allclose(result.p_loss * kw, expected["loss"][:, 0], rtol=tolerance("opendss_loss", dtype))
    source = np.stack([result.p_source.sum(-1), result.q_source.sum(-1)], axis=-1) * kw
    apparent = np.hypot(*expected["source"].T)[:, None]
    assert (np.abs(source - expected["source"]) <= tolerance("opendss_source", dtype) * apparent).all()


@pytest.mark.tiers("long", quick=["ieee13-float32"], full=["ieee13-float64", "ieee13-fixed", "ieee123-float64"])
@every_form
@pytest.mark.parametrize("folder", GOLDEN)
def test_the_package_reproduces_the_golden_numbers(folder: str, dtype: str, mode: str) -> None:
    case, golden, result = case_of(folder), GOLDEN[folder], solved(folder, dtype, mode)
    kw, v = 1e3 * case.base_mva, np.hypot(result.v_re[0], result.v_im[0])
    assert result.p_source[0].sum() * kw == pytest.approx(golden.source_kw, abs=POWER_KW)
    assert result.q_source[0].sum() * kw == pytest.approx(golden.source_kvar, abs=POWER_KW)
    assert result.p_loss[0] * kw == pytest.approx(golden.loss_kw, abs=POWER_KW)
    assert (v.min(), v.max()) == pytest.approx((golden.v_min_pu, golden.v_max_pu), abs=VOLTAGE_PU)
    for at, name in ((v.argmin(), golden.v_min_node), (v.argmax(), golden.v_max_node)):
        assert name in (None, case.node_names[at])


@pytest.mark.tiers("long", full=["fixed"])
@every_form
def test_the_stripped_feeder_is_that_of_opendss(dtype: str, mode: str) -> None:
    case, expected = stripped(case_of("ieee123")), recorded("ieee123")
    result = solve_states(case, nominal_states(case, (tuple(case.regulator.tap),) * 2), dtype, mode)
    assert voltage_error(result, expected, "stripped_") <= tolerance("opendss_v_pu", dtype)
    v = np.hypot(result.v_re[0], result.v_im[0])
    assert (v.min(), case.node_names[v.argmin()]) == (pytest.approx(STRIPPED_V_MIN[0], abs=1e-4), STRIPPED_V_MIN[1])
    # phase powers over the three-phase base would give a third of this
    assert result.p_loss[0] * 1e3 * case.base_mva == pytest.approx(STRIPPED_LOSS_KW, abs=POWER_KW)


@pytest.mark.tiers("long", full=["fixed"])
@every_form
def test_random_load_generator_and_tap_states_are_those_of_opendss(dtype: str, mode: str) -> None:
    case, expected = case_of("ieee123"), recorded("ieee123")
    states = draw_states(case, COUNT)
    assert len(np.unique(states.taps, axis=0)) > COUNT // 2
    result = solve_states(case, states, dtype, mode, ders=DERS)
    assert (result.status == Status.CONVERGED).all()
    assert voltage_error(result, expected, "random_") <= tolerance("opendss_v_pu", dtype)
    loss = result.p_loss * 1e3 * case.base_mva
    np.testing.assert_allclose(loss, expected["random_loss"][:, 0], rtol=tolerance("opendss_loss", dtype))
    # both sides of the range in which loads keep their law are among the states
    v = np.hypot(result.v_re, result.v_im)
    assert v.min() < 0.93 and v.max() > 1.07
