"""Random states of meshed cases, solved by the package and by the reference, and how far the two are apart."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import MeshedFactors, MeshedResult, Status, prepare_meshed, solve_meshed
from tests.references.meshed import (
    MeshedFlows,
    MeshedNetwork,
    MeshedSolution,
    MeshedStates,
    base_state,
    branch_flows,
    build_meshed,
    draw_states,
    solve_base_state,
    solve_states,
)

CASES = ("9", "14", "24_ieee_rts", "30", "39", "57", "118", "300", "1354pegase", "2383wp")
DTYPES = ("float32", "float64")
TABLE = Path(__file__).resolve().parents[1] / "recorded" / "meshed" / "accuracy.tsv"  # by measure_meshed.py --write
LANES = 50  # scenarios per call: one program serves any number of states and every test of a case
TRACED: list[tuple[int, str]] = []  # one entry per trace: number of buses, dtype
FLOW_FLOOR = 0.01  # [pu] flows are compared relative to at least this


class MeshedCase(NamedTuple):
    """A case, the reference's view of it, its base voltage (N,), the states and their reference solution."""

    case: Case
    net: MeshedNetwork
    v_base: np.ndarray
    states: MeshedStates
    solution: MeshedSolution
    flows: MeshedFlows


class Accuracy(NamedTuple):
    """How the package did on the states of one case; errors over the states that both solved.

    solvable:     states that the reference solves from the base voltage
    found:        of those, states that the package reports converged
    elsewhere:    of those, states where the package found another solution of the same equations
    extra:        states that the package solved and the reference did not
    false:        states reported converged of which the reference says that they are no solution
    mag, angle:   [pu], [rad]   largest error of a voltage
    loss, flow:   relative, a flow to at least FLOW_FLOOR
    stiff:        [pu] error of a flow beyond 1e-5 of it, over the admittance of its branch: a voltage
    steps:        mean and largest number of iterations
    """

    solvable: int
    found: int
    elsewhere: int
    extra: int
    false: int
    mag: float
    angle: float
    loss: float
    flow: float
    stiff: float
    steps: tuple[float, int]


@cache
def meshed_case(name: str, count: int) -> MeshedCase:
    """The base state and `count` states off it, in numbers that float32 holds: both precisions get the same input."""
    case = load_case(name)
    net = build_meshed(case)
    v_base = solve_base_state(case, net)
    both = (np.vstack(pair) for pair in zip(base_state(case), draw_states(case, count), strict=True))
    s, v_set = both
    states = MeshedStates(s.astype(np.complex64).astype(complex), v_set.astype(np.float32).astype(float))
    solution = solve_states(net, states, v_base)
    return MeshedCase(case, net, v_base, states, solution, branch_flows(net, solution.v))


@cache
def factors_of(name: str, dtype: str) -> MeshedFactors:
    with jax.enable_x64(dtype == "float64"):
        return prepare_meshed(load_case(name), dtype=dtype)


@cache
def _solver(dtype: str) -> Any:
    def solve(factors: MeshedFactors, p: jax.Array, q: jax.Array, v_set: jax.Array) -> MeshedResult:
        TRACED.append((factors.n_bus, dtype))
        return solve_meshed(factors, p, q, v_set)

    return jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0)))


def solve_all(factors: MeshedFactors, states: MeshedStates) -> MeshedResult:
    """Solve (B, N) states with the package, LANES at a time; host arrays come back."""
    dtype = factors.v_base.dtype.name
    with jax.enable_x64(dtype == "float64"):
        count = len(states.s)
        whole = np.resize(np.arange(count), -(-count // LANES) * LANES).reshape(-1, LANES)
        given = [x.astype(dtype) for x in (states.s.real, states.s.imag, states.v_set)]
        parts = [jax.tree.map(np.asarray, _solver(dtype)(factors, *(x[rows] for x in given))) for rows in whole]
        return jax.tree.map(lambda *x: np.concatenate(x)[:count], *parts)


def lane(result: MeshedResult, k: int) -> MeshedResult:
    """Scenario k of a batch."""
    return jax.tree.map(lambda x: x[k], result)


def voltages(result: MeshedResult) -> np.ndarray:
    """(B, N) complex128 [pu]."""
    return np.asarray(result.v_re, float) + 1j * np.asarray(result.v_im, float)


def read_table() -> dict[tuple[str, str], dict[str, str]]:
    """The committed measurements by case and dtype, a dict of columns each."""
    if not TABLE.is_file():
        return {}
    head, *rows = (line.split("\t") for line in TABLE.read_text().splitlines())
    return {(row[0], row[1]): dict(zip(head, row, strict=True)) for row in rows}


def accuracy(known: MeshedCase, result: MeshedResult) -> Accuracy:
    """Compare the package's solution of the states with the reference's."""
    v, expected = voltages(result), known.solution.v
    converged, solvable = result.status == Status.CONVERGED, known.solution.converged
    both = converged & solvable
    near = both & (np.abs(v - expected).max(1) < 1e-3)  # a step between two solutions, not of accuracy
    doubtful = np.flatnonzero(converged & ~near)
    again = solve_states(known.net, MeshedStates(*(x[doubtful] for x in known.states)), v[doubtful])
    true = again.converged & (np.abs(again.v - v[doubtful]).max(1, initial=0.0) < 1e-4)
    turn = np.angle(v[near] * np.conj(expected[near]))
    exact = MeshedFlows(*(x[near] for x in known.flows))
    ends = ((result.p_from, result.q_from, exact.s_from), (result.p_to, result.q_to, exact.s_to))
    floor = [np.maximum(np.abs(s), FLOW_FLOOR) for *_, s in ends]
    error = [np.abs(p[near] + 1j * q[near] - s) for p, q, s in ends]
    z = np.abs(known.case.branch.r_pu + 1j * known.case.branch.x_pu)[None]
    loss = np.abs(result.p_loss[near] / exact.loss.real - 1)
    return Accuracy(
        solvable=int(solvable.sum()),
        found=int(both.sum()),
        elsewhere=int((both & ~near).sum()),
        extra=int((converged & ~solvable).sum()),
        false=int((~true).sum()),
        mag=float(np.abs(np.abs(v[near]) - np.abs(expected[near])).max()),
        angle=float(np.abs(turn).max()),
        loss=float(loss.max()),
        flow=float(max((x / size).max() for x, size in zip(error, floor, strict=True))),
        stiff=float(max(((x - 1e-5 * size) * z).max() for x, size in zip(error, floor, strict=True))),
        steps=(float(result.iterations.mean()), int(result.iterations.max())),
    )
