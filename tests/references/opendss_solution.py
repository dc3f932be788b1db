"""Node voltages of a three-phase case by a fixed point in complex numbers, after the case's own documentation alone.

It shares no solver with the package: admittances of every element are added up, and the loads' currents iterated.
"""

from __future__ import annotations

import numpy as np

from powerzoo_jax.cases.threephase.case import ThreePhaseCase

# a floating winding is held by a millionth of its rating: rounding moves it by 1e-10 kV
STEPS, STOP_KV = 400, 1e-9


def node_volts(case: ThreePhaseCase) -> np.ndarray:
    """(N,) complex [V]; raises RuntimeError when the iteration does not settle."""
    n, source = case.n_node, case.source
    y = np.zeros((n + 1, n + 1), complex)  # the last row is the ground
    _add_lines(case, y)
    _add_transformers(case, y)
    for k in range(len(case.capacitor)):
        c = case.capacitor
        _between(y, c.node[k], c.end[k], 1j * c.q_kvar[k] * 1e-3 / c.kv[k] ** 2)
    turns = np.append(_ratios(case) * case.transformer.to_tap, 1.0)
    for k in range(len(case.shunt)):
        s = case.shunt
        _between(y, s.node[k], s.end[k], 1e-6 * (s.g_us[k] + 1j * s.b_us[k]) / turns[s.unit[k]] ** 2)
    inner = np.linalg.inv(source.r_ohm + 1j * source.x_ohm)
    y[np.ix_(source.node, source.node)] += inner
    kv = source.v_pu * case.node.base_kv[source.node] * np.exp(1j * np.deg2rad(source.angle_deg))
    fixed = np.zeros(n, complex)
    fixed[source.node] = inner @ kv
    z = np.linalg.inv(y[:n, :n])
    v = z @ fixed
    for _ in range(STEPS):
        new = z @ (fixed - _load_current(case, v))
        if np.abs(new - v).max() < STOP_KV:
            return 1e3 * new
        v = new
    raise RuntimeError(f"{case.name}: the voltages do not settle.")


def _add_lines(case: ThreePhaseCase, y: np.ndarray) -> None:
    line = case.line
    for k in np.flatnonzero(line.in_service):
        on = line.from_node[k] >= 0
        pick = np.ix_(on, on)
        series = np.linalg.inv(line.r_ohm[k][pick] + 1j * line.x_ohm[k][pick])
        half, f, t = 0.5e-6j * line.b_us[k][pick], line.from_node[k][on], line.to_node[k][on]
        for a, b, value in ((f, f, series + half), (t, t, series + half), (f, t, -series), (t, f, -series)):
            y[np.ix_(a, b)] += value


def _ratios(case: ThreePhaseCase) -> np.ndarray:
    ratio = np.ones(len(case.transformer))
    for units, tap in zip(case.regulator.unit.reshape(-1, 3), case.taps, strict=True):
        ratio[units[units >= 0]] = tap
    return ratio


def _add_transformers(case: ThreePhaseCase, y: np.ndarray) -> None:
    t, ratio = case.transformer, _ratios(case)
    for k in range(len(t)):
        ends = np.array([t.from_node[k], t.from_end[k], t.to_node[k], t.to_end[k]])
        # ends at the ground are -1, the last row
        first, second = t.from_kv[k] * t.from_tap[k], t.to_kv[k] * t.to_tap[k] * ratio[k]
        turns = np.array([1 / first, -1 / first, -1 / second, 1 / second])
        admittance = t.rating_kva[k] * 1e-3 / (t.r_pu[k] + 1j * t.x_pu[k])
        np.add.at(y, np.ix_(ends, ends), admittance * np.outer(turns, turns))


def _between(y: np.ndarray, node: int, end: int, value: complex) -> None:
    ends, sign = np.array([node, end]), np.array([1.0, -1.0])
    np.add.at(y, np.ix_(ends, ends), value * np.outer(sign, sign))


def _load_current(case: ThreePhaseCase, v: np.ndarray) -> np.ndarray:
    """Currents [kA] that the loads take from the nodes."""
    load, padded = case.load, np.append(v, 0.0)
    across = padded[load.node] - padded[load.end]
    u = np.abs(across) / load.kv

    exponents = np.zeros((2, len(load)))
    exponents[:, case.exponent.load] = [case.exponent.p_exponent, case.exponent.q_exponent]

    def power(nominal: np.ndarray, z: np.ndarray, i: np.ndarray, a: np.ndarray) -> np.ndarray:
        def law(x: np.ndarray) -> np.ndarray:
            return z * x * x + i * x + 1 - z - i

        least, low, most = load.v_min_pu, load.v_low_pu, load.v_max_pu
        span = np.where(least > low, least - low, 1.0)
        current = low + (law(least) / least - low) * (u - low) / span  # linear in u between low and least
        inside = z * u * u + i * u + (1 - z - i) * u**a
        value = np.where(u < low, u * u, np.where(u < least, u * current, inside))
        return nominal * np.where(u > most, law(most) * (u / most) ** 2, value)

    p = power(load.p_kw, load.z_p, load.i_p, exponents[0])
    s = p + 1j * power(load.q_kvar, load.z_q, load.i_q, exponents[1])
    current = np.conj(1e-3 * s / across)
    taken = np.zeros(len(v) + 1, complex)
    np.add.at(taken, load.node, current)
    np.add.at(taken, load.end, -current)
    return taken[:-1]
