"""Around voltage collapse the status must tell the truth: the nose comes from the reference's continuation."""

from __future__ import annotations

import numpy as np
import pytest

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import Status, nominal_injection
from tests.references.feeders import solve_all
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NOSE)
def test_status_agrees_with_the_reference_on_both_sides_of_collapse(name: str, dtype: str) -> None:
    case = load_case(name)
    s = nominal_injection(case)
    nose = collapse_factor(build_network(case), s)
    ratio = np.random.default_rng(11).uniform(*SPAN, COUNT)
    result = solve_all(case, (ratio * nose)[:, None] * s, dtype)
    decidable = np.abs(ratio - 1) > tolerance("collapse_relative", dtype)
    solvable = ratio < 1
    assert solvable.any() and (~solvable).any()
    wrong = decidable & ((result.status == Status.CONVERGED) != solvable)
    assert not wrong.any(), f"ratios to the nose: {ratio[wrong]}"


def test_three_times_the_load_of_118zh_fails_and_stays_finite() -> None:
    case = load_case("118zh")
    result = solve_all(case, 3 * nominal_injection(case)[None], "float32")
    assert result.status[0] in (Status.OUT_OF_STEPS, Status.SINGULAR)
    assert np.isfinite(result.v_re).all() and np.isfinite(result.p_from).all()
