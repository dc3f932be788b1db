"""Implicit derivatives of meshed solves against central differences of the independent reference, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.cases import Case
from powerzoo_jax.powerflow import MeshedResult, solve_meshed, with_branches
from tests.references.meshed import MeshedNetwork, MeshedStates, branch_flows, build_meshed, solve_states
from tests.references.meshed_cases import factors_of, meshed_case
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

STEP = 1e-4
LANE_COUNT = 3
BRANCH_FIELDS = ("r_pu", "x_pu", "b_pu", "tap", "shift_rad")


class Given(NamedTuple):
    """What the quantities are differentiated by: p, q, v_set (N,), branch fields (L,) or nothing."""

    p: Any
    q: Any
    v_set: Any
    branch: dict[str, Any]


def weights(size: int) -> np.ndarray:
    return np.linspace(0.5, 1.5, size)


def of_result(r: MeshedResult) -> Array:
    """Losses, flows, q of the buses, slack power and voltages, one number each, (5,)."""
    lines, buses = jnp.asarray(weights(r.p_from.shape[0])), jnp.asarray(weights(r.v_re.shape[0]))
    return jnp.stack(
        [
            r.p_loss + 0.5 * r.q_loss,
            jnp.sum(lines * (r.p_from + 0.7 * r.q_from + 0.3 * r.p_to - 0.4 * r.q_to)),
            jnp.sum(buses * r.q_bus),
            r.p_slack - 0.3 * r.q_slack,
            jnp.sum(buses * (r.v_re + 0.5 * r.v_im)),
        ]
    )


def of_reference(net: MeshedNetwork, given: Given, start: np.ndarray) -> np.ndarray:
    """The same from the reference, by two more Newton steps than it needs: differences divide the error by STEP."""
    states = MeshedStates((given.p + 1j * given.q)[None], given.v_set[None])
    found = solve_states(net, states, start, tol=1e-13)
    assert found.converged[0]
    flow, v = branch_flows(net, found.v), found.v[0]
    lines, buses = weights(flow.s_from.shape[1]), weights(v.size)
    at_from, at_to = flow.s_from[0], flow.s_to[0]
    q_bus = np.where(net.mag, given.q, flow.injection[0].imag)
    return np.array(
        [
            flow.loss[0].real + 0.5 * flow.loss[0].imag,
            np.sum(lines * (at_from.real + 0.7 * at_from.imag + 0.3 * at_to.real - 0.4 * at_to.imag)),
            np.sum(buses * q_bus),
            flow.slack[0].real - 0.3 * flow.slack[0].imag,
            np.sum(buses * (v.real + 0.5 * v.imag)),
        ]
    )


def network_of(case: Case, branch: dict[str, np.ndarray]) -> MeshedNetwork:
    if not branch:
        return build_meshed(case)
    fields = {key: value for key, value in branch.items() if key != "shift_rad"}
    table = dataclasses.replace(case.branch, shift_deg=np.rad2deg(branch["shift_rad"]), **fields)
    return build_meshed(dataclasses.replace(case, branch=table))


def direction(case: Case, rng: np.random.Generator, *, branches: bool) -> Given:
    n, m = case.n_bus, case.n_branch
    b = case.branch
    scale = {"r_pu": b.r_pu, "x_pu": b.x_pu, "b_pu": b.b_pu, "tap": 0.1 * b.tap, "shift_rad": np.full(m, 0.1)}
    branch = {key: scale[key] * rng.normal(size=m) for key in BRANCH_FIELDS} if branches else {}
    return Given(0.1 * rng.normal(size=n), 0.1 * rng.normal(size=n), 0.1 * rng.normal(size=n), branch)


def moved(given: Given, by: Given, h: float) -> Given:
    return jax.tree.map(lambda x, u: x + h * u, given, by)


# 33bw also by branch parameters, 118 and 300 by injections and set-points; the fixed form has sweeps of its own
CASES = {
    "33bw": ("33bw", True, "adaptive"),
    "118": ("118", False, "adaptive"),
    "300": ("300", False, "adaptive"),
    "33bw-fixed": ("33bw", True, "fixed"),
    "118-fixed": ("118", False, "fixed"),
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "branches", "mode"), CASES.values(), ids=list(CASES))
def test_forward_and_reverse_derivatives_match_central_differences_under_vmap(
    name: str, branches: bool, mode: str
) -> None:
    known = meshed_case(name, 0)
    case, b = known.case, known.case.branch
    rng = np.random.default_rng(8)
    table = dict(zip(BRANCH_FIELDS, (b.r_pu, b.x_pu, b.b_pu, b.tap, np.deg2rad(b.shift_deg)), strict=True))
    load = rng.uniform(0.9, 1.1, (LANE_COUNT, case.n_bus))
    lanes = [
        Given(known.states.s[0].real * k, known.states.s[0].imag * k, known.states.v_set[0], table if branches else {})
        for k in load
    ]
    by = [direction(case, rng, branches=branches) for _ in lanes]
    with jax.enable_x64(True):
        factors = factors_of(name, "float64")

        def quantities(given: Given) -> Array:
            own = with_branches(factors, **given.branch) if branches else factors
            return of_result(solve_meshed(own, given.p, given.q, given.v_set, solver=mode))

        def derivatives(given: Given, along: Given) -> tuple[Array, Array, Given]:
            value, slope = jax.jvp(quantities, (given,), (along,))
            return value, slope, jax.jacrev(quantities)(given)

        def stack(items: list[Given]) -> Given:
            return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *items)

        found = jax.jit(jax.vmap(derivatives))(stack(lanes), stack(by))
        value, slope, rows = jax.tree.map(np.asarray, found)
    for k, (given, along) in enumerate(zip(lanes, by, strict=True)):
        up, down = (
            of_reference(network_of(case, x.branch), x, known.v_base)
            for x in (moved(given, along, STEP), moved(given, along, -STEP))
        )
        numeric = (up - down) / (2 * STEP)
        parts = jax.tree.map(lambda row, u, k=k: np.sum(row[k] * u, -1), rows, along)
        reverse = sum(jax.tree.leaves(parts))
        limit = tolerance("gradient_relative", "float64") * np.abs(numeric).max()
        assert np.abs(slope[k] - numeric).max() <= limit
        assert np.abs(reverse - numeric).max() <= limit
        middle = of_reference(network_of(case, given.branch), given, known.v_base)
        np.testing.assert_allclose(value[k], middle, rtol=0, atol=1e-6 * np.abs(middle).max())


@pytest.mark.tiers(long=["adaptive"])
@pytest.mark.parametrize("mode", ["adaptive", "fixed"])
def test_a_float32_program_has_the_gradient_by_branch_parameters_in_both_modes(mode: str) -> None:
    """Factors are made in float64 inside, which reverse mode of a float32 program never enters."""
    known = meshed_case("14", 0)
    case, b, states = known.case, known.case.branch, known.states
    table = dict(zip(BRANCH_FIELDS, (b.r_pu, b.x_pu, b.b_pu, b.tap, np.deg2rad(b.shift_deg)), strict=True))
    along = direction(case, np.random.default_rng(5), branches=True)
    given = Given(states.s[0].real, states.s[0].imag, states.v_set[0], table)
    factors = factors_of("14", "float32")
    p, q, v_set = (jnp.asarray(x, jnp.float32) for x in given[:3])

    def loss(branch: dict[str, Array]) -> Array:
        return of_result(solve_meshed(with_branches(factors, **branch), p, q, v_set, solver=mode))[0]

    values, tangents = (
        {key: jnp.asarray(x, jnp.float32) for key, x in table.items()} for table in (given.branch, along.branch)
    )
    found = jax.jit(lambda x, u: (jax.grad(loss)(x), jax.jvp(loss, (x,), (u,))[1]))(values, tangents)
    gradient, forward = jax.tree.map(lambda x: np.asarray(x, float), found)
    still = along._replace(p=0 * along.p, q=0 * along.q, v_set=0 * along.v_set)
    up, down = (
        of_reference(network_of(case, x.branch), x, known.v_base)[0]
        for x in (moved(given, still, STEP), moved(given, still, -STEP))
    )
    numeric = (up - down) / (2 * STEP)
    reverse = sum(np.sum(gradient[key] * along.branch[key]) for key in gradient)
    # float32 knows the solution, and what branches carry there, to some 1e-6
    assert abs(reverse - numeric) <= tolerance("gradient_relative", "float32") * abs(numeric)
    assert abs(forward - numeric) <= tolerance("gradient_relative", "float32") * abs(numeric)
