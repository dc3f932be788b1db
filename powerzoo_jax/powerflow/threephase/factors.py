"""Host-side preparation of unbalanced feeders: everything that depends on the network alone, made once in float64.

The rows are ZIP loads, generators, and taps away from their base position; the current of a row at its voltage v is

    i = conj(S / v) = (p h_p - j q h_q) v

with h the admittance per unit of power: with s = |v|^2,
h = P0 / s + I0 / |v| + Z0 where the ZIP law holds, I1 / |v| + Z1 below that range, and constant outside of both.
A load with a voltage exponent a has P0 (|v| / rated)^a instead of P0 where the ZIP law holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import BaseLoadError, SolverError
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Finite, checks_ranges
from powerzoo_jax.cases.threephase.case import GROUND, ExponentTable, PhaseLoadTable, ThreePhaseCase
from powerzoo_jax.powerflow.rows import (
    ChordCore,
    calibrated,
    chord_factors,
    local_slope,
    residual_current,
    slope_matrix,
    stamp,
)
from powerzoo_jax.powerflow.threephase.network import Network, base_ohm, build_network, phase_base_mva
from powerzoo_jax.powerflow.wide import clip, inverse_root, where

PHASES = 3.0  # powers are per unit on the three-phase base, currents on a third of it
V_BOUND = 1.5 * np.sqrt(3)  # [pu] no feeder runs above, also between two phases
CLEAR = (0.5, 1.5)  # [pu] generators hold their power in this range of voltage
WIDE = (1e-6, 1e6)  # a range that nothing leaves


@struct.dataclass(kw_only=True)
class RowLaw:
    """Coefficients of the voltage law of a loads (ZIP or exponential); the axis of 2 is (active, reactive) power.

    power, current, impedance:    (2, a)  P0, I0, Z0
    low_current, low_impedance:   (2, a)  I1, Z1
    s_low, s_min, s_max:          (a,)    [pu] squares of the voltages where the pieces meet
    half_exponent:                (2, a)  [-]  half of the voltage exponents; None where no row has one, at no cost
    s_rated:                      (a,)    [pu] square of the rated voltage, likewise
    """

    power: Array
    current: Array
    impedance: Array
    low_current: Array
    low_impedance: Array
    s_low: Array
    s_min: Array
    s_max: Array
    half_exponent: Array | None = None
    s_rated: Array | None = None


class ZipLaw:
    """Current law of ZIP rows, as the iteration of `chord` asks for it."""

    power_per_current = float(V_BOUND / PHASES)
    takes_pairs = False

    def current(self, law: RowLaw, e: Any, f: Any, p: Any, q: Any) -> tuple[Any, Any]:
        """Real and imaginary part of the injected current, shaped as e, f, p and q (..., a)."""
        square = e * e + f * f
        s = clip(square, law.s_low, law.s_max)
        root = inverse_root(s)
        inverse = root * root
        below = s < law.s_min

        def admittance(k: int) -> Any:
            low = law.low_current[k] * root + law.low_impedance[k]
            held = law.power[k]
            if law.half_exponent is not None:
                held = held * where(square > law.s_max, 1.0, (s / law.s_rated) ** law.half_exponent[k])
            return where(below, low, held * inverse + law.current[k] * root + law.impedance[k])

        g, b = p * admittance(0), q * admittance(1)
        return g * e + b * f, g * f - b * e


ZIP = ZipLaw()


def load_law(load: PhaseLoadTable, v_rated: np.ndarray) -> dict[str, Any]:
    """Fields of the `RowLaw` of load rows whose rated voltage is `v_rated` (D,) [pu], in float64 on the host.

    The current below `v_min_pu` runs linearly to that of the impedance which draws the nominal power at the rated
    voltage, reached at `v_low_pu`.
    """
    z, i = np.stack([load.z_p, load.z_q]), np.stack([load.i_p, load.i_q])
    power, current, impedance = PHASES * (1 - z - i), PHASES * i / v_rated, PHASES * z / v_rated**2
    low, least, most = load.v_low_pu * v_rated, load.v_min_pu * v_rated, load.v_max_pu * v_rated
    at_low, at_least = PHASES / v_rated**2 * low, power / least + current + impedance * least
    span = least - low
    slope = np.where(span > 0, (at_least - at_low) / np.where(span > 0, span, 1.0), 0.0)
    return {
        "power": power,
        "current": current,
        "impedance": impedance,
        "low_current": at_low - slope * low,
        "low_impedance": slope,
        "s_low": low**2,
        "s_min": least**2,
        "s_max": most**2,
    }


def exponent_law(exponent: ExponentTable, v_rated: np.ndarray, rows: int) -> dict[str, Any]:
    """Fields of the `RowLaw` of loads with voltage exponents: none without such loads.

    v_rated:  (D,) [pu] of the loads        rows:  of the law, the loads first
    """
    if len(exponent) == 0:
        return {}
    half, square = np.zeros((2, rows)), np.ones(rows)
    half[:, exponent.load] = 0.5 * np.stack([exponent.p_exponent, exponent.q_exponent])
    square[: v_rated.size] = v_rated**2
    return {"half_exponent": half, "s_rated": square}


def generator_law(v_rated: np.ndarray) -> dict[str, Any]:
    """Fields of the `RowLaw` of generators and storage, which hold their power whatever the voltage."""
    low, high = ((limit * v_rated) ** 2 for limit in CLEAR)
    return _plain(v_rated.size, "power", PHASES) | {"s_low": low, "s_min": low, "s_max": high}


def proportional_law(n: int) -> dict[str, Any]:
    """Fields of the `RowLaw` of what a moved tap adds: its `p` times the measured quantity itself."""
    low, high = (np.full(n, limit) for limit in WIDE)
    return _plain(n, "impedance", 1.0) | {"s_low": low, "s_min": low, "s_max": high}


def _plain(n: int, term: str, value: float) -> dict[str, Any]:
    names = ("power", "current", "impedance", "low_current", "low_impedance")
    return {name: np.full((2, n), value if name == term else 0.0) for name in names}


BASE_STEPS, BASE_TOL = 30, 1e-12


@struct.dataclass(kw_only=True)
class ThreePhaseFactors:
    """Prepared data of one feeder for `solve_threephase`: leaves, to be shared or mapped between lanes.

    Rows are the loads, then the DERs, then two for every transformer unit whose tap may move.

    core:            ChordCore of the rows
    m_node, w_node:  (2N, 2a)   [pu]  from r to the node voltages
    m_line, w_line:  (6L, 2a)   [pu]  from injected currents to the series currents of line conductors (L, 3)
    m_from, w_from:  (6L, 2a)   [pu]  the same for the currents that enter at the from ends
    m_unit, w_unit:  (2T, 2a)   [pu]  the same for transformer units
    m_source, w_source: (6, 2a) [pu]  the same for the source
    r_line, x_line:  (L, 3, 3)  [pu]  series impedance
    r_unit, x_unit:  (T,)       [pu]
    from_node:       (L, 3)     int32 position of the from ends, N where there is no conductor
    source_node:     (3,)       int32
    taps:            (R,)       [-]   ratio of every regulator at the base
    row_regulator:   (2U,)      int32 regulator of every row of a unit that may move
    moved:           (2U,)      [-]   `p` of such a row per change of 1 / ratio
    """

    core: ChordCore
    m_node: Array
    w_node: Array
    m_line: Array
    w_line: Array
    m_from: Array
    w_from: Array
    m_unit: Array
    w_unit: Array
    m_source: Array
    w_source: Array
    r_line: Array
    x_line: Array
    r_unit: Array
    x_unit: Array
    from_node: Array
    source_node: Array
    taps: Array
    row_regulator: Array
    moved: Array

    AXES: ClassVar = {"N": "n_node", "P": "n_input", "R": "taps"}

    @property
    def n_node(self) -> int:
        return self.w_node.shape[-1] // 2

    @property
    def n_input(self) -> int:
        """Rows that take an injection: loads, then DERs."""
        return self.core.x_base.shape[-1] // 2 - self.moved.shape[-1]


@on_host
@checks_ranges("prepare_threephase")
def prepare_threephase(
    case: ThreePhaseCase,
    *,
    ders: Sequence[str | tuple[str, str]] = (),
    movable_taps: bool = True,
    load_factor: Finite = 1.0,
    dtype: Any = None,
) -> ThreePhaseFactors:
    """Factor an unbalanced feeder for `solve_threephase`.

    case:          network; its taps are the base position
    ders:          where generators or storage stand: a node "83.1", or a pair of nodes ("76.1", "76.2")
    movable_taps:  take the regulators' ratios as an input of the solver; without them it has fewer rows
    load_factor:   base point as a multiple of the nominal load; choose the middle of the range you will solve
    dtype:         float32 (None) or float64

    Raises CaseError for an unknown node, SolverError for a part without supply, BaseLoadError (a SolverError) when
    the base load has no solution.
    """
    dtype = resolve_dtype(dtype)
    ports = list(zip(case.load.node.tolist(), case.load.end.tolist(), strict=True)) + [_port(case, d) for d in ders]
    if not ports:
        raise SolverError(f"{case.name} has no load and no DER: nothing could inject. Name nodes in ders.")
    moving, regulator = _moving_units(case) if movable_taps else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    network = build_network(case, ports, moving)
    law = _law(case, ports, moving.size)
    s = np.zeros(network.at_rows[0].size, complex)
    s[: len(case.load)] = load_factor * nominal_phase_load(case)
    with jax.enable_x64(True):
        core = _base_state(network, law, s)
    return _assemble(case, network, law, core, regulator, s, dtype)


def nominal_phase_load(case: ThreePhaseCase) -> np.ndarray:
    """Nominal injection of every load row at its rated voltage, (D,) complex [pu] on the three-phase base: negative."""
    return -(case.load.p_kw + 1j * case.load.q_kvar) / 1e3 / case.base_mva


def _port(case: ThreePhaseCase, place: str | tuple[str, str]) -> tuple[int, int]:
    if isinstance(place, str):
        return case.position(place), GROUND
    first, second = (case.position(name) for name in place)
    return first, second


def _moving_units(case: ThreePhaseCase) -> tuple[np.ndarray, np.ndarray]:
    """Units with a regulator, and which one."""
    units = case.regulator.unit.reshape(-1, 3)
    at = np.nonzero(units >= 0)
    return units[at], at[0]


def _law(case: ThreePhaseCase, ports: list[tuple[int, int]], moving: int) -> dict[str, np.ndarray]:
    kv, load = case.node.base_kv, len(case.load)
    ends = np.array(ports)
    base = np.array([kv[max(pair)] for pair in ports])
    between = (ends != GROUND).all(axis=1)
    v_rated = case.load.kv / base[:load]
    parts = [
        load_law(case.load, v_rated),
        generator_law(np.where(between, np.sqrt(3), 1.0)[load:]),
        proportional_law(2 * moving),
    ]
    law = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    return law | exponent_law(case.exponent, v_rated, law["s_max"].size)


def _split(z: np.ndarray) -> np.ndarray:
    return np.concatenate([z.real, z.imag])


def _base_state(network: Network, law: dict[str, np.ndarray], s: np.ndarray) -> dict[str, Any]:
    """Newton from the state without load; returns the fields of `ChordCore` around the base state but its law."""
    z, w = stamp(network.at_rows[1]), _split(network.at_rows[0])
    one, zero = np.eye(2 * s.size), np.zeros((4, s.size))
    # with D0 = 0 the residual current is the injected current itself
    fields: dict[str, Any] = {"m": z, "w": w, "d_base": zero, "x_base": w, "r_base": w, "gain": 1.0}
    plain = jax.tree.map(jnp.asarray, ChordCore(**fields, law=RowLaw(**{k: jnp.asarray(v) for k, v in law.items()})))
    p, q = jnp.asarray(s.real), jnp.asarray(s.imag)

    def injected(x: np.ndarray) -> np.ndarray:
        return np.asarray(residual_current(ZIP, plain, jnp.asarray(x), p, q))

    def slope(x: np.ndarray) -> np.ndarray:
        return np.asarray(local_slope(ZIP, plain, jnp.asarray(x), p, q))

    x, move = w, np.full(1, np.inf)
    for _ in range(BASE_STEPS):
        move = np.linalg.solve(one - z @ slope_matrix(slope(x)), x - w - z @ injected(x))
        x = x - move
        if not np.abs(move).max() > BASE_TOL:
            break
    if not np.abs(move).max() < 1e-9:
        raise BaseLoadError(
            "The base load has no power-flow solution near the state without load. Lower load_factor, or check units."
        )
    return chord_factors(z, w, slope(x), x, injected(x))


def _assemble(
    case: ThreePhaseCase,
    network: Network,
    law: dict[str, np.ndarray],
    core: dict[str, Any],
    regulator: np.ndarray,
    s: np.ndarray,
    dtype: np.dtype,
) -> ThreePhaseFactors:
    def door(value: Any) -> Array:
        return jnp.asarray(value, dtype)

    def pair(name: str, quantity: tuple[np.ndarray, np.ndarray]) -> dict[str, Array]:
        constant, matrix = quantity[0].reshape(-1), quantity[1].reshape(-1, quantity[1].shape[-1])
        return {f"m_{name}": door(stamp(matrix)), f"w_{name}": door(_split(constant))}

    # the injected current is i = D0 x + r with x = M r + w, and node voltages are linear in i
    blocks, to_nodes = slope_matrix(core["d_base"]), stamp(network.at_nodes[1])
    line, t = case.line, case.transformer
    per_unit = 1 / base_ohm(case)[line.from_node[:, 0]][:, None, None]
    on_base = phase_base_mva(case) * 1e3 / t.rating_kva
    return ThreePhaseFactors(
        core=calibrated(ZIP, ChordCore(**core, law=RowLaw(**law)), s, dtype),  # type: ignore[arg-type]
        m_node=door(to_nodes @ (blocks @ core["m"] + np.eye(core["m"].shape[0]))),
        w_node=door(_split(network.at_nodes[0]) + to_nodes @ (blocks @ core["w"])),
        **pair("line", network.in_lines),
        **pair("from", network.into_lines),
        **pair("unit", network.in_units),
        **pair("source", network.from_source),
        r_line=door(line.r_ohm * per_unit),
        x_line=door(line.x_ohm * per_unit),
        r_unit=door(t.r_pu * on_base),
        x_unit=door(t.x_pu * on_base),
        from_node=jnp.asarray(np.where(line.from_node >= 0, line.from_node, case.n_node), jnp.int32),
        source_node=jnp.asarray(case.source.node, jnp.int32),
        taps=door(case.taps),
        row_regulator=jnp.asarray(np.repeat(regulator, 2), jnp.int32),
        moved=door(network.moved),
    )
