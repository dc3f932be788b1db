"""Networks of units with rules of reactive output, as MATPOWER files, and their optimum by SLSQP of SciPy.

Rules as in MATPOWER: costs of reactive output, constant power factors of dispatchable loads, capability curves. The
programme is written anew from the columns of the file: nothing of the reader's rules or of the solver enters.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from scipy.optimize import minimize

from powerzoo_jax.cases import Case
from tests.references.opf_ac import admittances

BUS = """function mpc = reactive
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
  1 3 0  0  0 0 1 1 0 110 1 1.06 0.94;
  2 1 80 50 0 0 1 1 0 110 1 1.06 0.94;
  3 2 0  0  0 0 1 1 0 110 1 1.06 0.94;
];
mpc.branch = [
  1 2 0.02 0.08 0.02 0 0 0 0 0 1 -360 360;
  2 3 0.03 0.10 0.02 0 0 0 0 0 1 -360 360;
  1 3 0.03 0.09 0.02 0 0 0 0 0 1 -360 360;
];
"""


def network(gen: list[list[float]], cost: list[list[float]]) -> str:
    """File of three buses with these rows of units, of 10 or 21 columns, and of their costs."""

    def rows(table: list[list[float]]) -> str:
        width = max(map(len, table))
        return "".join("  " + " ".join(f"{x:g}" for x in [*row, *[0.0] * (width - len(row))]) + ";\n" for row in table)

    return f"{BUS}mpc.gen = [\n{rows(gen)}];\nmpc.gencost = [\n{rows(cost)}];\n"


LARGE = [1, 50, 0, 80, -80, 1.02, 100, 1, 150, 0]
SECOND = [3, 40, 0, 60, -60, 1.0, 100, 1, 100, 0]
LOAD = [3, -30, -15, 0, -15, 1.0, 100, 1, 0, -30]
CHEAP, DEAR = [2, 0, 0, 3, 0.02, 20, 0], [2, 0, 0, 3, 0.02, 25, 0]
WORTH = [2, 0, 0, 2, 24.5, 0]  # of the dispatchable load: it is served in part
FREE = [2, 0, 0, 3, 0, 0, 0]
NARROW = [0, 100, -30, 30, -10, 10, 0, 0, 0, 0, 0]
POINTS = [1, 0, 0, 4, -60, 90, 0, 0, 10, 1, 60, 101]  # of reactive power

# name -> file
NETWORKS = {
    "quadratic cost": network([LARGE, SECOND], [CHEAP, DEAR, [2, 0, 0, 3, 0.1, 0, 0], [2, 0, 0, 3, 2, 0, 7]]),
    "cost of points": network([LARGE, SECOND], [CHEAP, DEAR, FREE, POINTS]),
    "power factor": network([LARGE, LOAD], [CHEAP, WORTH]),
    "leading power factor": network([LARGE, [*LOAD[:2], 12, 12, 0, *LOAD[5:]]], [CHEAP, WORTH]),
    "power factor and cost": network([LARGE, LOAD], [CHEAP, WORTH, FREE, [2, 0, 0, 3, 0.05, -0.5, 3]]),
    "capability curve": network([[*LARGE[:8], 150, 40, *NARROW], SECOND], [CHEAP, [2, 0, 0, 3, 0.02, 40, 0]]),
    "curve of a unit of blocks": network(
        [[*LARGE, *NARROW], SECOND], [[1, 0, 0, 3, 0, 0, 60, 1200, 150, 3270], DEAR, FREE, [2, 0, 0, 3, 0.5, 0, 0]]
    ),
    "all of them": network(
        [[*LARGE, *NARROW], SECOND, LOAD],
        [CHEAP, DEAR, [2, 0, 0, 2, 25.5, 0], [2, 0, 0, 3, 0.01, 0.02, 0], POINTS, FREE],
    ),
}


def table(text: str, name: str) -> np.ndarray:
    """Numbers of a table of a file of `network`."""
    body = re.search(rf"mpc\.{name} = \[\n(.*?)\];", text, re.DOTALL)
    assert body
    return np.array([[float(x) for x in row.rstrip(";").split()] for row in body[1].strip().splitlines()])


def _curves(gen: np.ndarray) -> list[tuple[int, float, float, float]]:
    """Unit, a, b, c of every line a P + b Q <= c of a capability curve."""
    found = []
    for k, row in enumerate(gen):
        p1, p2, low_1, high_1, low_2, high_2 = row[10:16] if len(row) > 10 else np.zeros(6)
        if p1 != p2:
            found.append((k, high_1 - high_2, p2 - p1, high_1 * p2 - high_2 * p1))
            found.append((k, low_2 - low_1, p1 - p2, low_2 * p1 - low_1 * p2))
    return found


def _points(rows: np.ndarray) -> list[tuple[int, float, float, float]]:
    """Row, slope, output and cost at a point of every segment of costs given by points."""
    found = []
    for k, row in enumerate(rows):
        if row[0] == 1:
            points = row[4 : 4 + 2 * int(row[3])].reshape(-1, 2)
            slopes = np.diff(points, axis=0)
            found += [(k, dy / dx, x, y) for (dx, dy), (x, y) in zip(slopes, points[:-1], strict=True)]
    return found


def optimum(case: Case, gen: np.ndarray, cost: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Least cost [USD/h] with active and reactive outputs [MW], [Mvar]; RuntimeError where SLSQP does not end.

    gen, cost: tables of the file. A cost of points is one more unknown above each of its segments.
    """
    n, g, base = case.n_bus, len(gen), case.base_mva
    y = admittances(case)[0].toarray()
    at = case.positions(gen[:, 0].astype(int))
    load = (case.p_load_mw + 1j * case.q_load_mvar) / base
    rows = np.pad(cost, ((0, 2 * g - len(cost)), (0, 0)))
    rows[len(cost) :, 0], rows[len(cost) :, 3] = 2, 1
    tied = [k for k in range(g) if gen[k, 9] < 0 == gen[k, 8] and (gen[k, 3] == 0) != (gen[k, 4] == 0)]
    ratio = np.array([(gen[k, 3] + gen[k, 4]) / gen[k, 9] for k in tied])
    kilo = 1e3  # costs in thousands: of the size of the other unknowns

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Voltages, outputs (active, then reactive) and costs of points."""
        return x[n : 2 * n] * np.exp(1j * x[:n]), x[2 * n : 2 * n + 2 * g], x[2 * n + 2 * g :]

    def mismatch(x: np.ndarray) -> np.ndarray:
        v, out, _ = parts(x)
        s = v * np.conj(y @ v) + load
        np.add.at(s, at, -(out[:g] + 1j * out[g:]))
        return np.r_[s.real, s.imag, x[0], out[g:][tied] - ratio * out[:g][tied]]

    def room(x: np.ndarray) -> np.ndarray:
        _, out, costs = parts(x)
        lines = [c / base - a * out[k] - b * out[g + k] for k, a, b, c in _curves(gen)]
        above = [costs[k] - (y + slope * (base * out[k] - x)) / kilo for k, slope, x, y in _points(rows)]
        return np.array([*lines, *above, 1.0])

    def total(x: np.ndarray) -> float:
        _, out, costs = parts(x)
        smooth = [
            np.polyval(row[4 : 4 + int(row[3])], base * z) for row, z in zip(rows, out, strict=True) if row[0] == 2
        ]
        return float(sum(smooth) / kilo + costs[rows[:, 0] == 1].sum())

    limits = np.concatenate([gen[:, [9, 8]], gen[:, [4, 3]]]) / base
    bands = np.stack([case.bus.v_min_pu, case.bus.v_max_pu], 1)
    bounds = np.concatenate([np.tile([-1.0, 1.0], (n, 1)), bands, limits, np.tile([-kilo, kilo], (2 * g, 1))])
    start = np.r_[np.zeros(n), np.ones(n), gen[:, 1] / base, gen[:, 2] / base, np.full(2 * g, 2.0)]
    given: Any = ({"type": "eq", "fun": mismatch}, {"type": "ineq", "fun": room})
    options: Any = {"ftol": 1e-13, "maxiter": 800}
    found = minimize(total, start, bounds=bounds, constraints=given, method="SLSQP", options=options)
    if not found.success or np.abs(mismatch(found.x)).max() > 1e-9:
        raise RuntimeError(found.message)
    out = base * parts(found.x)[1]
    return kilo * float(found.fun), out[:g], out[g:]
