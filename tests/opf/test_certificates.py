"""Certificates in NumPy: computed in float64 whatever the float type of JAX is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from powerzoo_jax.opf import Qp, dual_bound, infeasibility

# two offers and one balance: a cheap one that is taken whole, and lost load at a price near its own
CHEAP, VOLL, MOST, LOAD, PRICE = 20.000000123, 1e4, 1.2345678901, 12.3456789012, 9999.87654321
BALANCE = Qp(
    a=np.array([[1.0, 1.0]]),
    q=np.zeros(2),
    c=np.array([CHEAP, VOLL]),
    lo=np.zeros(2),
    hi=np.array([MOST, 100.0]),
    row_lo=np.array([LOAD]),
    row_hi=np.array([LOAD]),
)


def test_a_bound_is_that_of_exact_arithmetic_without_x64():
    """g(price) = price LOAD + min over the boxes; the second offer costs more than the price and is not taken."""
    exact = Fraction(PRICE) * Fraction(LOAD) + (Fraction(CHEAP) - Fraction(PRICE)) * Fraction(MOST)
    assert dual_bound(BALANCE, np.array([PRICE])) == pytest.approx(float(exact), rel=1e-14)


def test_a_proof_of_infeasibility_is_that_of_exact_arithmetic_without_x64():
    """Load beyond all offers by a billionth of itself, which float32 rounds away."""
    short = LOAD * (1 + 1e-9)
    case = BALANCE.replace(hi=np.array([0.0, LOAD]), row_lo=np.array([short]), row_hi=np.array([short]))
    assert infeasibility(case, np.array([1.0])) == pytest.approx(float(Fraction(short) - Fraction(LOAD)), rel=1e-6)
