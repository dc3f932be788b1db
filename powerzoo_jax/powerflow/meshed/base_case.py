"""The base state of a meshed network: sparse Newton in float64 on the host, once per grid."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from powerzoo_jax.base.errors import BaseLoadError, SolverError, listing
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import PV
from powerzoo_jax.cases.topology import branch_positions, live_buses

STEPS = 30
TOL = 1e-11  # [pu] power mismatch; the state need not be exact: it is what deviations are counted from
PROBE, PROBES = 0.2, 8  # spread and number of load states that show how fast a chord contracts
VOLTAGE_TOL = {"float32": 4e-7, "float64": 4e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
SPAN, WINDOW, STATES = (0.5, 1.5), 0.02, 64  # of each load; of set-points [pu]; states that steps are counted on
MARGIN = 1  # steps beyond what the slowest of these states needs
MOST_STEPS = 20  # beyond, a state near collapse would set the number for all
POLISH = 2e-4  # share of the last error that flows may keep
COLLAPSED = 0.5  # [pu] a bus below stands on the low-voltage branch, which no grid is run on
ENOUGH = 1e-7  # [pu] accepted where rounding of a very stiff branch keeps the mismatch from falling further

# [pu] least |z| in service: there a float32 derivative is 1 % off, at a tenth of it 13 %; a branch below is a bus-bar
LEAST_Z_PU = {"float32": 1e-6, "float64": 1e-7}


def refuse_busbars(case: Case, dtype: np.dtype) -> None:
    """SolverError for branches in service across which the dtype does not resolve the voltage."""
    b, least = case.branch, LEAST_Z_PU[dtype.name]
    z = np.hypot(b.r_pu, b.x_pu)
    at = np.flatnonzero(b.in_service & (z < least))
    if at.size:
        named = listing(f"{b.from_id[k]} -> {b.to_id[k]} ({z[k]:.3g} pu)" for k in at)
        raise SolverError(
            f"{case.name}: branch {named} has |z| below {least:g} pu, across which {dtype.name} resolves neither flows "
            "nor derivatives. Merge its two buses, or raise its impedance."
        )


def refuse_references(case: Case) -> None:
    """SolverError for a case with several reference buses."""
    if len(case.slack_bus) != 1:
        ids = listing(case.bus.id[case.slack_bus])
        raise SolverError(f"{case.name} has the reference buses {ids}; the solver takes one. Give the others kind 2.")


def admittance(case: Case) -> sp.csr_matrix:
    """Bus admittance matrix (N, N) complex [pu] of the branches in service, shunts included."""
    f, t = branch_positions(case)
    b, n = case.branch, case.n_bus
    on = b.in_service
    series = np.where(on, 1.0 / np.where(on, b.r_pu + 1j * b.x_pu, 1.0), 0.0)
    charging = series + 0.5j * on * b.b_pu
    a = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    shunt = (case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva
    own = np.arange(n)
    values = np.r_[charging / b.tap**2, -series / np.conj(a), -series / a, charging, shunt]
    at = (np.r_[f, f, t, t, own], np.r_[f, t, f, t, own])
    return sp.csr_matrix((values, at), (n, n))


def voltage_setpoints(case: Case) -> np.ndarray:
    """|V| that each bus is held at by its unit in service, (N,) [pu]; the initial magnitude elsewhere."""
    v = case.bus.v_init_pu.copy()
    on = case.unit.in_service
    # reversed, so that the first unit of a bus has the last word
    v[case.positions(case.unit.bus_id[on])[::-1]] = case.unit.v_set_pu[on][::-1]
    return v


def held_buses(case: Case) -> np.ndarray:
    """Buses that hold their magnitude, (N,) bool: PV buses with a unit in service, and the slack."""
    held = (case.bus.kind == PV) & case.bus_has_unit
    held[case.slack_bus] = True
    return held


def solve_base(case: Case, s: np.ndarray, v_set: np.ndarray) -> np.ndarray:
    """Voltages (N,) complex [pu] at injections s (N,), held buses at v_set; 1 at buses that are not supplied.

    Every reference keeps its magnitude and the angle of the case, several in one island too.
    Starts from the voltages of `_starts` until one leads to a state with no bus below `least_voltage`; where none does
    the highest state is taken.
    Raises BaseLoadError when no start converges.
    """
    y, live = admittance(case), live_buses(case)
    rows, best, lowest, least = unknown_rows(case), None, 0.0, least_voltage(case, v_set)
    for start in _starts(case, s, v_set):
        v = _newton(y, s, np.where(live, start, 1.0), *rows)
        if v is not None and np.abs(v[live]).min() > lowest:
            best, lowest = v, float(np.abs(v[live]).min())
        if lowest > least:
            break
    if best is not None:
        return best
    raise BaseLoadError(
        f"{case.name}: the base load has no power-flow solution near the flat start, the voltages of the case, the DC "
        "power flow or its state without load. Lower load_factor, or check the units and impedances."
    )


def least_voltage(case: Case, v_set: np.ndarray) -> float:
    """Magnitude [pu] below which a bus stands on the low-voltage branch: 0.5, or the lowest set-point if it is less."""
    return float(min(COLLAPSED, v_set[held_buses(case) & live_buses(case)].min()))


def _starts(case: Case, s: np.ndarray, v_set: np.ndarray) -> list[np.ndarray]:
    """Voltages (N,) to start from, the likeliest first; held buses at v_set.

    Those of the case, where it has any. Then the angles of its DC power flow, at magnitudes between those that are
    held: from a flat start, the next, a large network ends on the low-voltage branch, or nowhere, as one does behind
    transformers that turn it. The last one is the state without load.
    """
    held, slack, bus = held_buses(case), case.slack_bus, case.bus
    angle = np.deg2rad(bus.angle_init_deg)
    level = np.full(case.n_bus, angle[slack[0]])
    level[slack] = angle[slack]
    turn = no_load_angles(case)

    def at(angles: np.ndarray, size: np.ndarray | float = 1.0) -> np.ndarray:
        return np.where(held, v_set, size) * np.exp(1j * angles)

    starts = [at(angle[slack[0]] + dc_angles(case, s.real), _between(case, v_set)), at(level)]
    if turn.any():
        starts.append(at(angle[slack[0]] + turn))
    free = live_buses(case)
    free[slack] = False
    missing = np.all(bus.v_init_pu[free & ~held] == 1) and np.unique(bus.angle_init_deg[free]).size <= 1
    return starts if missing else [at(angle, bus.v_init_pu), *starts]


def unknown_rows(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Buses whose angle is unknown, and those whose magnitude is: supplied, not the slack, and not held."""
    live = live_buses(case)
    q_rows = np.flatnonzero(live & ~held_buses(case))
    live[case.slack_bus] = False
    return np.flatnonzero(live), q_rows


def no_load_angles(case: Case) -> np.ndarray:
    """Angles (N,) [rad] from the first slack that phase shifts and references put there; 0 at buses not supplied.

    Exact where the shifts around every loop cancel.
    """
    return dc_angles(case, np.zeros(case.n_bus))


def dc_angles(case: Case, p: np.ndarray) -> np.ndarray:
    """Angles (N,) [rad] from the first slack at active injections p (N,) [pu]; 0 at buses not supplied.

    Flows of (theta_f - theta_t - shift) / |z| balance: the DC power flow where lines have no resistance, and never
    singular. Every reference keeps its own angle.
    """
    angle, slack = np.zeros(case.n_bus), case.slack_bus
    angle[slack] = np.deg2rad(case.bus.angle_init_deg[slack] - case.bus.angle_init_deg[slack[0]])
    f, t, weight = _conductors(case)
    pushed = weight * np.deg2rad(case.branch.shift_deg)
    right = p + np.bincount(f, pushed, case.n_bus) - np.bincount(t, pushed, case.n_bus)
    return _potential(case, right, angle, unknown_rows(case)[0])


def _between(case: Case, v_set: np.ndarray) -> np.ndarray:
    """Magnitudes (N,) [pu] of a network of resistances |z| whose held buses are at v_set."""
    return _potential(case, np.zeros(case.n_bus), v_set, unknown_rows(case)[1])


def _conductors(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of both ends (L,) and 1 / |z| (L,) [pu] of all branches, 0 where one is not in service and supplied."""
    f, t = branch_positions(case)
    b, live = case.branch, live_buses(case)
    on = b.in_service & live[f] & live[t]
    return f, t, np.where(on, 1 / np.where(on, np.hypot(b.r_pu, b.x_pu), 1), 0.0)


def _potential(case: Case, right: np.ndarray, given: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Potentials (N,) of a network of resistances |z| with injections `right` at `rows`, and as given elsewhere."""
    f, t, weight = _conductors(case)
    at = (np.r_[f, t, f, t], np.r_[f, t, t, f])
    matrix = sp.csr_matrix((np.r_[weight, weight, -weight, -weight], at), (case.n_bus, case.n_bus))
    x = given.copy()
    x[rows] = 0.0
    if rows.size:
        x[rows] = spl.splu(matrix[rows][:, rows].tocsc()).solve((right - matrix @ x)[rows])
    return x


def chord_rate(case: Case, s: np.ndarray, v: np.ndarray) -> float:
    """Typical convergence rate of the chord, error left by a step, at loads up to a fifth from the base state v."""
    y, (p_rows, q_rows) = admittance(case), unknown_rows(case)
    factor = factored(case, power_slope(y, v, p_rows, q_rows)[0])
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    rates = []
    for draw in np.random.default_rng(0).uniform(-PROBE, PROBE, (PROBES, case.n_bus)):
        x, sizes = v, []
        for _ in range(4):
            left = s - load * draw - x * np.conj(y @ x)
            x, size = _turn(x, factor.solve(np.r_[left.real[p_rows], left.imag[q_rows]]), p_rows, q_rows)
            sizes.append(size)
        rates.append((sizes[3] / sizes[1]) ** 0.5 if sizes[1] > 0 else 0.0)
    return float(np.median(rates))


class StepCounts(NamedTuple):
    """Numbers of steps of solvers that take a number of them fixed beforehand.

    chord:   from the base state to the tolerance
    polish:  from there to what flows may keep of the error
    sweeps:  of a linear system with the Jacobian at a solution
    """

    chord: int
    polish: int
    sweeps: int


def count_steps(
    case: Case, s: np.ndarray, v: np.ndarray, tol: float, sweep_tol: float, *, mixed: bool, schedules: bool
) -> StepCounts:
    """Steps that states around the base state v (N,) at injections s (N,) need.

    tol:        [pu] voltage error          sweep_tol: share of the solution that a linear system may leave
    mixed:      whether each step is combined with the last (Anderson)
    schedules:  whether every unit also runs anywhere in its range; else units other than the slack's stay as they are

    Every load is drawn from half to one and a half of its size, set-points within 0.02 pu; one state is half the base
    load, one 1.2 times that. States that a chord does not solve are not counted: no number of steps would do.
    """
    plain = _chord_sizes(case, s, v, mixed=False, schedules=schedules)
    solved = plain[-1] < tol
    # the last steps above rounding tell the pace that all later ones have
    last = np.maximum((plain > ROUNDED).sum(0) - 1, PACE_STEPS)
    far = np.take_along_axis(plain, last[None], 0)[0]
    near = np.take_along_axis(plain, last[None] - PACE_STEPS, 0)[0]
    pace = (far / np.where(near > 0, near, 1)) ** (1 / PACE_STEPS)
    slowest = float(np.clip(np.max(pace[solved], initial=0), *PACES))
    sizes = _chord_sizes(case, s, v, mixed=True, schedules=schedules) if mixed else plain
    rate = sizes[1:] / np.where(sizes[:-1] > 0, sizes[:-1], 1)
    slow = np.clip(np.maximum(rate[1:], rate[:-1]), 0.5 if mixed else PACES[0], 0.9)
    done = sizes[2:] * slow / (1 - slow) <= tol
    needed = np.where(done.any(0), 3 + done.argmax(0), 0)
    digits = [int(np.ceil(np.log(share) / np.log(slowest))) for share in (POLISH, sweep_tol)]
    return StepCounts(
        chord=int(min(needed.max() + MARGIN, MOST_STEPS)),
        polish=min(max(digits[0] - MARGIN, 2), MOST_STEPS),
        sweeps=min(digits[1], 2 * MOST_STEPS),
    )


ROUNDED = 1e-13  # [-] size of a step that is rounding
PACE_STEPS = 3  # over which the pace is averaged
PACES = (0.05, 0.7)  # believed at least and at most


def _chord_sizes(case: Case, s: np.ndarray, v: np.ndarray, *, mixed: bool, schedules: bool) -> np.ndarray:
    """Largest entry of every chord step (steps, K) of the states of `count_steps`."""
    y, (p_rows, q_rows) = admittance(case), unknown_rows(case)
    factor = factored(case, power_slope(y, v, p_rows, q_rows)[0])
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    rng = np.random.default_rng(0)
    wanted = np.concatenate([s - load * (rng.uniform(*SPAN, (STATES, case.n_bus)) - 1), s * np.array([[0.5], [1.2]])])
    if schedules:
        wanted[:STATES] += _schedules(case, rng) / case.base_mva
    moved = rng.uniform(-WINDOW, WINDOW, wanted.shape) * held_buses(case)
    moved[STATES:] = 0
    x = (v * (1 + moved)).T
    step = before = None
    sizes = []
    with np.errstate(all="ignore"):  # states beyond collapse leave the finite numbers
        for _ in range(MOST_STEPS + 2):
            left = wanted.T - x * np.conj(y @ x)
            move = new = factor.solve(np.nan_to_num(np.concatenate([left.real[p_rows], left.imag[q_rows]])))
            if mixed and step is not None:
                change = new - step
                share = (change * new).sum(0) / np.maximum((change * change).sum(0), np.finfo(float).tiny)
                move = new - np.clip(share, -1.0, 0.5) * (before + change)
            step, before = new, move
            turned = np.zeros(x.shape, complex)
            turned[p_rows] += 1j * move[: len(p_rows)]
            turned[q_rows] += move[len(p_rows) :]
            x = x * np.exp(turned)
            sizes.append(np.abs(new).max(0, initial=0.0))
    return np.nan_to_num(np.array(sizes), nan=np.inf)


def _schedules(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Changes of injection (STATES, N) [MW] where every unit in service runs anywhere in its range."""
    unit, runs = case.unit, np.flatnonzero(case.unit.in_service)
    p_mw = rng.uniform(unit.p_min_mw[runs], unit.p_max_mw[runs], (STATES, len(runs)))
    at_bus: np.ndarray = np.eye(case.n_bus)[case.positions(unit.bus_id[runs])]
    return (p_mw - unit.p_mw[runs]) @ at_bus


def dense_inverse(case: Case, v: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Inverse (2N, 2N) of the Jacobian at voltages v (N,), with zeros at what is not unknown.

    place:  (N,) position of each bus in the result, of which 2 i is the angle and 2 i + 1 the logarithmic magnitude
    """
    rows = unknown_rows(case)
    slope = power_slope(admittance(case), v, *rows)[0]
    at = np.concatenate([2 * place[rows[0]], 2 * place[rows[1]] + 1])
    whole = np.zeros((2 * case.n_bus, 2 * case.n_bus))
    whole[np.ix_(at, at)] = factored(case, slope).solve(np.eye(len(at)))
    return whole


def factored(case: Case, slope: sp.csc_matrix) -> Any:
    """LU factors of a Jacobian at the base state; SolverError where it is singular, which SciPy words for itself."""
    try:
        return spl.splu(slope)
    except RuntimeError as err:
        raise SolverError(
            f"{case.name}: the Jacobian at the base state is singular, the load lies at the collapse point. Lower "
            "load_factor, or check the units and impedances."
        ) from err


def _turn(v: np.ndarray, move: np.ndarray, p_rows: np.ndarray, q_rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Voltages after a step in angles and logarithmic magnitudes, and its largest entry."""
    change = np.zeros(len(v), complex)
    change[p_rows] += 1j * move[: len(p_rows)]
    change[q_rows] += move[len(p_rows) :]
    return v * np.exp(change), float(np.abs(move).max(initial=0.0))


def power_slope(
    y: sp.csr_matrix, v: np.ndarray, p_rows: np.ndarray, q_rows: np.ndarray
) -> tuple[sp.csc_matrix, np.ndarray]:
    """Jacobian of the injections in angles and logarithmic magnitudes, and the injections."""
    a = sp.diags(v) @ np.conj(y) @ sp.diags(np.conj(v))
    power = np.asarray(a.sum(1)).ravel()
    angle, grow = (1j * (sp.diags(power) - a)).tocsr(), (sp.diags(power) + a).tocsr()
    blocks = [
        [angle[p_rows][:, p_rows].real, grow[p_rows][:, q_rows].real],
        [angle[q_rows][:, p_rows].imag, grow[q_rows][:, q_rows].imag],
    ]
    return sp.bmat(blocks, format="csc"), power


def _newton(
    y: sp.csr_matrix, s: np.ndarray, v: np.ndarray, p_rows: np.ndarray, q_rows: np.ndarray
) -> np.ndarray | None:
    """Polar Newton with logarithmic magnitudes; None when it does not converge."""
    best, state = np.inf, v
    with np.errstate(all="ignore"):  # it leaves the finite numbers where there is no solution
        for _ in range(STEPS):
            slope, power = power_slope(y, v, p_rows, q_rows)
            left = s - power
            right = np.r_[left.real[p_rows], left.imag[q_rows]]
            size = np.abs(right).max(initial=0.0)
            if not np.isfinite(size):
                break
            if size < best:
                best, state = size, v
            if size < TOL or (best < ENOUGH and size > best):
                break
            try:
                factor = spl.splu(slope)
            except RuntimeError:  # exactly singular: this start leads nowhere
                break
            v = _turn(v, factor.solve(right), p_rows, q_rows)[0]
    return state if best < ENOUGH else None


class BaseState(NamedTuple):
    """Base state with its factored Jacobian, which outages and open switches correct (host).

    y:        (N, N)    bus admittances [pu]          v, s:  (N,) complex [pu] voltages and injections
    slope:    (2N, 2N)  Jacobian of all buses, angles then logarithmic magnitudes
    unknown:  positions of the unknowns among those   factor: LU factors of their part of it
    """

    y: sp.csr_matrix
    v: np.ndarray
    s: np.ndarray
    slope: sp.csc_matrix
    unknown: np.ndarray
    factor: Any

    @classmethod
    def of(cls, case: Case, s: np.ndarray, v: np.ndarray) -> Self:
        """Jacobian at voltages v (N,), which `solve_base` finds for injections s (N,).

        Raises SolverError where it is singular.
        """
        n, y = case.n_bus, admittance(case)
        angles, sizes = unknown_rows(case)
        unknown = np.r_[angles, n + sizes]
        slope = power_slope(y, v, np.arange(n), np.arange(n))[0]
        return cls(y, v, s, slope, unknown, factored(case, slope[unknown][:, unknown].tocsc()))

    def solve(self, right: np.ndarray, trans: str = "N") -> np.ndarray:
        """J^-1 right or its transpose, (K, N, 2) -> (K, N, 2), 0 off the unknowns."""
        flat = right.swapaxes(1, 2).reshape(len(right), 2 * len(self.v))
        found = np.zeros_like(flat)
        if len(right):
            found[:, self.unknown] = self.factor.solve(np.ascontiguousarray(flat[:, self.unknown].T), trans).T
        return found.reshape(len(right), 2, len(self.v)).swapaxes(1, 2)

    def left(self, e: np.ndarray) -> np.ndarray:
        """Injections left at deviations e from the base voltage, (K, N) complex."""
        v = self.v * (1 + e)
        return self.s - v * np.conj((self.y @ v.T).T)
