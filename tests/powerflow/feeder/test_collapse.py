"""Around voltage collapse the status must tell the truth: the nose comes from the reference's continuation."""

from __future__ import annotations

import numpy as np
import pytest

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import Status, nominal_injection
from tests.references.feeders import FORMS, solve_all
from tests.references.newton import build_network, collapse_factor
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

NOSE = {"33bw": 3.62, "69": 3.21, "118zh": 2.47, "141": 4.21}  # as published with the task definition
COUNT, SPAN = 200, (0.95, 1.3)  # states, multiples of the nose


@pytest.mark.parametrize("name", NOSE)
def test_the_reference_finds_the_known_collapse_factor(name: str) -> None:
    case = load_case(name)
    nose = collapse_factor(build_network(case), nominal_injection(case))
    assert nose == pytest.approx(NOSE[name], rel=tolerance("collapse_relative", "float64"))


@pytest.mark.tiers("long", full=["33bw-float32"])
@pytest.mark.parametrize(("dtype", "mode"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("name", NOSE)
def test_status_agrees_with_the_reference_on_both_sides_of_collapse(name: str, dtype: str, mode: str) -> None:
    case = load_case(name)
    s = nominal_injection(case)
    nose = collapse_factor(build_network(case), s)
    ratio = np.random.default_rng(11).uniform(*SPAN, COUNT)
    result = solve_all(case, (ratio * nose)[:, None] * s, dtype, mode)
    decidable = np.abs(ratio - 1) > tolerance("collapse_relative", dtype)
    solvable = ratio < 1
    assert solvable.any() and (~solvable).any()
    wrong = decidable & ((result.status == Status.CONVERGED) != solvable)
    assert not wrong.any(), f"ratios to the nose: {ratio[wrong]}"


@pytest.mark.tiers("full", long=["fixed"])
@pytest.mark.parametrize("mode", ["adaptive", "fixed"])
def test_three_times_the_load_of_118zh_fails_and_stays_finite(mode: str) -> None:
    case = load_case("118zh")
    result = solve_all(case, 3 * nominal_injection(case)[None], "float32", mode)
    assert result.status[0] in (Status.OUT_OF_STEPS, Status.SINGULAR)
    assert np.isfinite(result.v_re).all() and np.isfinite(result.p_from).all()


@pytest.mark.long
def test_close_to_collapse_the_fixed_form_finds_what_float64_does() -> None:
    """Lanes that only Newton solves: pairs of floats lose no digit that the constants of a float32 program have."""
    case = load_case("33bw")
    s = np.linspace(0.93, 0.997, 30)[:, None] * NOSE["33bw"] * nominal_injection(case)
    found = {mode: solve_all(case, s, "float32", mode) for mode in ("adaptive", "fixed")}
    assert all((result.status == Status.CONVERGED).all() for result in found.values())
    assert (found["fixed"].iterations > 30).any()
    for part in ("v_re", "v_im"):
        a, b = (getattr(found[mode], part) for mode in ("adaptive", "fixed"))
        np.testing.assert_allclose(b, a, rtol=0, atol=tolerance("v_pu", "float32"))
