"""Couplers of almost no impedance: the two buses act as one down to the limit, and below it a meshed solver refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.powerflow import (
    MeshedFactors,
    nominal_injection,
    prepare_feeder,
    prepare_meshed,
    prepare_outages,
    solve_feeder,
    solve_meshed,
    with_branches,
)
from powerzoo_jax.powerflow.meshed.base_case import LEAST_Z_PU
from tests.references.meshed import MeshedStates, base_state, branch_flows, build_meshed, solve_base_state, solve_states
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

MODES = [("float32", "adaptive"), ("float32", "fixed"), ("float64", "adaptive"), ("float64", "fixed")]
WHOLE = load_case("9")
SPLIT, FED = 8, 5  # bus in two halves, one of them with line 8-9; bus whose load hangs on a coupler
AT = np.r_[np.arange(WHOLE.n_bus), SPLIT - 1, FED - 1]  # positions in the whole case of the buses of the coupled one
STEP = 1e-4  # [pu]


def extended(table: Any, like: list[int], **new: Any) -> Any:
    """A table with copies of the rows `like`, in which the columns `new` differ."""
    rows = {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}
    columns = {name: np.append(values, values[like]) for name, values in rows.items()}
    for name, values in new.items():
        columns[name][-len(like) :] = values
    return dataclasses.replace(table, **columns)


def coupled(z_pu: float) -> Case:
    """case9 with bus 8 in two halves (8, 10) and the load of bus 5 at a bus of its own (11), on couplers r = x.

    A third coupler is out of service, where any impedance will do.
    """
    b, part = WHOLE.branch, z_pu / np.sqrt(2)
    moved = (b.from_id == SPLIT) & (b.to_id == 9)
    assert moved.any()
    branch = extended(
        dataclasses.replace(b, from_id=np.where(moved, 10, b.from_id)),
        [0, 0, 0],
        from_id=[4, SPLIT, FED],
        to_id=[6, 10, 11],
        r_pu=[0.0, part, part],
        x_pu=[1e-12, part, part],
        b_pu=0.0,
        in_service=[False, True, True],
    )
    load = dataclasses.replace(WHOLE.load, bus_id=np.where(WHOLE.load.bus_id == FED, 11, WHOLE.load.bus_id))
    bus = extended(WHOLE.bus, [SPLIT - 1, FED - 1], id=[10, 11])
    return dataclasses.replace(WHOLE, bus=bus, branch=branch, load=load)


def slopes_of_the_whole() -> np.ndarray:
    """Losses and slack power of the whole case by p and q of its buses, (2, 2, N): differences of the reference."""
    net, base, n = build_meshed(WHOLE), base_state(WHOLE), WHOLE.n_bus
    steps = STEP * np.concatenate([np.eye(n), -np.eye(n), 1j * np.eye(n), -1j * np.eye(n)])
    states = MeshedStates(base.s + steps, np.repeat(base.v_set, len(steps), 0))
    found = branch_flows(net, solve_states(net, states, solve_base_state(WHOLE, net), tol=1e-13).v)
    values = np.stack([found.loss.real, found.slack.real]).reshape(2, 2, 2, n)
    slopes: np.ndarray = (values[:, :, 0] - values[:, :, 1]) / (2 * STEP)
    return slopes


def sent(factors: MeshedFactors, p: Array, q: Array, mode: str) -> Array:
    out = solve_meshed(factors, p, q, solver=mode)
    return jnp.stack([out.p_loss, out.p_slack])


@pytest.mark.tiers("long", full=["float32-adaptive"])
@pytest.mark.parametrize(("dtype", "mode"), MODES)
def test_injections_move_losses_and_slack_as_where_the_two_buses_are_one(dtype: str, mode: str) -> None:
    expected = slopes_of_the_whole()[:, :, AT]
    slopes = jax.jit(jax.jacrev(lambda f, p, q: sent(f, p, q, mode), (1, 2)))
    with jax.enable_x64(dtype == "float64"):
        case = coupled(LEAST_Z_PU[dtype])
        s = nominal_injection(case)
        found = slopes(prepare_meshed(case, dtype=dtype), s.real.astype(dtype), s.imag.astype(dtype))
    limit = tolerance("busbar_gradient_relative", dtype) * np.abs(expected).max()
    np.testing.assert_allclose(np.stack(found, 1), expected, rtol=0, atol=limit)


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "mode"), MODES)
def test_a_couplers_impedance_moves_losses_as_its_current_says(dtype: str, mode: str) -> None:
    """What it takes, |I|^2 (dr + j dx), acts on the grid as load at its bus: dP/dr = |I|^2 (1 - dP/dp)."""
    net = build_meshed(WHOLE)
    v, s = solve_base_state(WHOLE, net)[FED - 1], base_state(WHOLE).s[0, FED - 1]
    by_p, by_q = slopes_of_the_whole()[0, :, FED - 1]
    expected = abs(s / v) ** 2 * np.array([1 - by_p, -by_q])

    def lost(given: Array, factors: MeshedFactors, p: Array, q: Array) -> Array:
        own = with_branches(
            factors,
            r_pu=factors.branch.r_pu.at[-1].set(given[0]),
            x_pu=factors.branch.x_pu.at[-1].set(given[1]),
        )
        return sent(own, p, q, mode)[0]

    with jax.enable_x64(dtype == "float64"):
        case = coupled(LEAST_Z_PU[dtype])
        s_pu, z = nominal_injection(case), np.full(2, case.branch.r_pu[-1], dtype)
        factors = prepare_meshed(case, dtype=dtype)
        found = jax.jit(jax.grad(lost))(z, factors, s_pu.real.astype(dtype), s_pu.imag.astype(dtype))
    limit = tolerance("busbar_impedance_relative", dtype) * expected.max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


@pytest.mark.long
def test_a_feeder_has_its_derivatives_at_any_impedance() -> None:
    """The load of the last bus of case33bw behind a coupler: the same slopes as without."""
    case = load_case("33bw")
    last = case.n_bus
    behind = dataclasses.replace(
        case,
        bus=extended(case.bus, [last - 1], id=[last + 1]),
        branch=extended(case.branch, [0], from_id=[last], to_id=[last + 1], r_pu=1e-12, x_pu=1e-12, in_service=True),
        load=dataclasses.replace(case.load, bus_id=np.where(case.load.bus_id == last, last + 1, case.load.bus_id)),
    )

    def slopes(case: Case) -> np.ndarray:
        s, factors = nominal_injection(case), prepare_feeder(case)
        lost = jax.jit(jax.grad(lambda p, q: solve_feeder(factors, p, q).p_loss, (0, 1)))
        return np.stack(lost(np.float32(s.real), np.float32(s.imag)))

    expected = slopes(case)
    limit = tolerance("gradient_relative", "float32") * np.abs(expected).max()
    np.testing.assert_allclose(slopes(behind)[:, -1], expected[:, -1], rtol=0, atol=limit)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_coupler_below_the_limit_is_refused_by_name(dtype: str) -> None:
    least = LEAST_Z_PU[dtype]
    told = rf"case9: branch 8 -> 10 \(9e-0. pu\), 5 -> 11 .* below {least:g} pu.*Merge its two buses, or raise its imp"
    for prepare in (prepare_meshed, prepare_outages):
        with jax.enable_x64(dtype == "float64"), pytest.raises(SolverError, match=told):
            prepare(coupled(0.9 * least), dtype=dtype)
