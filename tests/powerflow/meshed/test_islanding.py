"""Outages that cut the network in two, as lanes of one batch: never a solution, never a NaN, no harm to neighbours."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import load_case
from powerzoo_jax.cases.topology import branch_positions, islands
from powerzoo_jax.powerflow import MeshedResult, Status, nominal_injection, prepare_meshed, solve_meshed, with_branches

pytestmark = [pytest.mark.property, pytest.mark.long]

COPIES = 12  # so many lanes that the reductions of the program are vectorised, which passes over NaN


@pytest.fixture(scope="module")
def outages() -> tuple[np.ndarray, MeshedResult]:
    """Every branch of case118 whose outage islands something and as many that do not, impedances off the table."""
    case = load_case("case118")
    f, t = branch_positions(case)
    on = ~np.eye(case.n_branch, dtype=bool)
    apart = np.array([np.unique(islands(case.n_bus, f, t, row)).size > 1 for row in on])
    rows = np.r_[np.flatnonzero(apart), np.flatnonzero(~apart)[: apart.sum()]]
    lanes = np.tile(rows, COPIES)
    scale = np.random.default_rng(0).uniform(0.8, 1.2, (2, lanes.size, case.n_branch))
    base, s = prepare_meshed(case), nominal_injection(case)
    p, q = (jnp.asarray(x, jnp.float32) for x in (s.real, s.imag))

    def variant(in_service: jax.Array, r: jax.Array, x: jax.Array) -> MeshedResult:
        return solve_meshed(with_branches(base, in_service=in_service, r_pu=r, x_pu=x), p, q)

    given = on[lanes], scale[0] * case.branch.r_pu, scale[1] * case.branch.x_pu
    result = jax.jit(jax.vmap(variant))(*(jnp.asarray(x, jnp.float32) for x in given))
    return apart[lanes], jax.device_get(result)


def test_a_grid_is_solved_where_and_only_where_nothing_is_islanded(outages: tuple[np.ndarray, MeshedResult]) -> None:
    apart, result = outages
    np.testing.assert_array_equal(result.status == Status.CONVERGED, ~apart)


def test_an_islanded_grid_reports_finite_numbers(outages: tuple[np.ndarray, MeshedResult]) -> None:
    _, result = outages
    for leaf in jax.tree.leaves(result):
        assert np.isfinite(leaf).all()
