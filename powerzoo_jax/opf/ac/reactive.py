"""Reactive output of units in the AC-OPF beyond its limits: what it costs, constant power factors, capability curves.

A power factor q = r p makes the blocks of a unit inject r times their power as reactive power. A capability curve is
two lines a_p P + a_q Q <= room over the whole output of a unit; with the weights mu / z of the lines, W = sum w a a',
the moves of a unit follow from those without them, s, by

    (P, Q) = (1 + C W)^-1 s,   C = diag(sum of 1 / curvature of the blocks, of active and of reactive output)

Source of both rules: Zimmerman and Murillo-Sanchez, MATPOWER User's Manual, sections 6.4.2 and 6.4.3.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases.case import Case, unit_rows
from powerzoo_jax.opf.offers import PIECEWISE, Offers, reactive_costs


@struct.dataclass(kw_only=True)
class ReactiveRules:
    """Rules of reactive output; a group that no unit has is None.

    ratio:               (G,)       [-]  of reactive to active output, 0 = free
    tied_cost:           (G, 2)     [USD/MWh], [USD/MWh per MW]  what the reactive output of those adds to active power
    low, high:           (G, J)     [Mvar]  blocks of reactive output, the first one from the lower limit
    price, slope:        (G, J)     [USD/Mvarh], [USD/Mvarh per Mvar]
    base_cost:           (G,)       [USD/h] while on
    unit:                (M,)       int32  units with a capability curve
    line:                (M, 2, 2)  [-]    its upper and lower line over active and reactive output
    room:                (M, 2)     [MVA]  right-hand side, infinite for none
    """

    ratio: Array | None = None
    tied_cost: Array | None = None
    low: Array | None = None
    high: Array | None = None
    price: Array | None = None
    slope: Array | None = None
    base_cost: Array | None = None
    unit: Array | None = None
    line: Array | None = None
    room: Array | None = None


def reactive_rules(case: Case, dtype: Any) -> ReactiveRules | None:
    """Rules of a case, None where no unit has any; CaseError naming units whose rules MATPOWER refuses too."""
    found = _tied_and_priced(case) | _capability(case)
    if not found:
        return None
    whole = {"unit": jnp.asarray(found.pop("unit"), jnp.int32)} if "unit" in found else {}
    return ReactiveRules(**{name: jnp.asarray(value, dtype) for name, value in found.items()}, **whole)


def _tied_and_priced(case: Case) -> dict[str, np.ndarray]:
    """Fields of the power factors and of the costs, in float64 on the host."""
    ratio, costs = case.unit.q_per_p, reactive_costs(case)
    tied = ratio != 0
    fields = {"ratio": ratio} if tied.any() else {}
    if costs is None:
        return fields
    curved = tied & (case.unit.q_cost_model == PIECEWISE)
    if curved.any():
        raise CaseError(
            f"{case.name}: unit {unit_rows(case, curved)} has a constant power factor and a piecewise linear cost of "
            "reactive power. Give a quadratic cost (model 2), or add it to the cost of active power."
        )
    if tied.any():
        linear, slope = ratio * costs.price[:, 0], ratio**2 * costs.slope[:, 0]
        fields["tied_cost"] = np.where(tied[:, None], np.stack([linear, slope], 1), 0.0)
    free = {
        name: np.where(tied[:, None], 0.0, value)
        for name, value in zip(costs._fields, costs, strict=True)
        if name != "base_cost"
    }
    return fields | free | {"base_cost": costs.base_cost}


def _capability(case: Case) -> dict[str, np.ndarray]:
    """Fields of the capability curves: lines that leave all of the box as it is are left out, as in MATPOWER."""
    u = case.unit
    p1, p2, q1_min, q1_max, q2_min, q2_max = u.capability.T
    fixed = (u.q_min_mvar == u.q_max_mvar) & (u.capability[:, 2:] == u.q_min_mvar[:, None]).all(1)
    given = ((p1 != 0) | (p2 != 0)) & ~fixed & u.in_service
    wrong = given & ((p1 >= p2) | ((q2_max <= q2_min) & (q1_max <= q1_min)))
    if wrong.any():
        raise CaseError(
            f"{case.name}: the capability curve of unit {unit_rows(case, wrong)} leaves nothing. Give Pc1 < Pc2 and "
            "Qcmin < Qcmax at one of them at least, or Pc1 = Pc2 = 0 for no curve."
        )
    width = np.where(given, p2 - p1, 1.0)
    ends = (np.stack([u.p_min_mw, u.p_max_mw]) - p1) / width
    upper = given & (q1_max + ends * (q2_max - q1_max) < u.q_max_mvar).any(0)
    lower = given & (q1_min + ends * (q2_min - q1_min) > u.q_min_mvar).any(0)
    at = np.flatnonzero(upper | lower)
    if not at.size:
        return {}
    lines = np.stack([np.stack([q1_max - q2_max, width], 1), np.stack([q2_min - q1_min, -width], 1)], 1)[at]
    room = np.stack([q1_max * p2 - q2_max * p1, q2_min * p1 - q1_min * p2], 1)[at]
    size = np.linalg.norm(lines, axis=2)
    lines, room = lines / size[:, :, None], room / size
    ratio = u.q_per_p[at][:, None]
    tied = np.stack([lines[:, :, 0] + ratio * lines[:, :, 1], np.zeros_like(room)], 2)
    return {
        "unit": at,
        "line": np.where((ratio != 0)[:, :, None], tied, lines),
        "room": np.where(np.stack([upper, lower], 1)[at], room, np.inf),
    }


def with_tied_costs(rules: ReactiveRules | None, offers: Offers) -> Offers:
    """Offers with what the reactive output of constant power factors costs, block by block from their start."""
    if rules is None or rules.base_cost is None:
        return offers
    base_cost = offers.base_cost + rules.base_cost
    if rules.tied_cost is None:
        return dataclasses.replace(offers, base_cost=base_cost)
    linear, slope = rules.tied_cost[:, :1], rules.tied_cost[:, 1:]
    start = offers.base_mw[:, None] + jnp.cumsum(offers.width_mw, axis=1) - offers.width_mw
    base = offers.base_mw
    return dataclasses.replace(
        offers,
        base_cost=base_cost + (linear[:, 0] + 0.5 * slope[:, 0] * base) * base,
        price=offers.price + linear + slope * start,
        slope=offers.slope + slope,
    )


class CapabilityLines(NamedTuple):
    """Capability curves of one tile of lanes: unit (M,), slope (M, 2, 2, 1) [-] over (P, Q), room (M, 2, B) [pu]."""

    unit: Array
    slope: Array
    room: Array


def of_units(values: Array, units: int) -> Array:
    """Sum (G k, B) of blocks over those of a unit, (G, B)."""
    return values.reshape(units, values.shape[0] // max(units, 1), values.shape[-1]).sum(1)


def to_blocks(values: Array, blocks: int) -> Array:
    """The value (G, B) of each unit at all its blocks, (G k, B)."""
    return jnp.repeat(values, blocks // max(values.shape[0], 1), axis=0)


def along(lines: CapabilityLines, p: Array, q: Array, units: int) -> Array:
    """a_p P + a_q Q (2 M, B) of outputs, or of moves, of blocks."""
    both = jnp.stack([of_units(p, units)[lines.unit], of_units(q, units)[lines.unit]], 1)
    return jnp.sum(lines.slope * both[:, None], 2).reshape(-1, p.shape[-1])


def against(lines: CapabilityLines, weight: Array, units: int) -> tuple[Array, Array]:
    """Gradient (G, B), (G, B) of the lines, weighted (2 M, B), over the active and the reactive output of units."""
    w = weight.reshape(-1, 2, 1, weight.shape[-1])
    pull = jnp.sum(lines.slope * w, 1)
    zero = jnp.zeros((units, weight.shape[-1]), weight.dtype)
    return zero.at[lines.unit].add(pull[:, 0]), zero.at[lines.unit].add(pull[:, 1])


class _Coupling(NamedTuple):
    """Terms of 1 + C W for units with a curve: weights w (M, 2, B) of the lines; a, b (M, 2, B or 1) their slopes;
    c_p, c_q (M, B); own (M, 2, B) and mixed (M, B) a' C a of lines with themselves and each other; its determinant."""

    w: Array
    a: Array
    b: Array
    c_p: Array
    c_q: Array
    own: Array
    mixed: Array
    det: Array


def _coupling(lines: CapabilityLines, weight: Array, c_p: Array, c_q: Array) -> _Coupling:
    """weight (2 M, B) = mu / z of the lines; c_p, c_q (G, B). The determinant sums terms of one sign: none cancel."""
    w = weight.reshape(-1, 2, weight.shape[-1])
    a, b = lines.slope[:, :, 0], lines.slope[:, :, 1]
    c_p, c_q = c_p[lines.unit], c_q[lines.unit]
    own = a * a * c_p[:, None] + b * b * c_q[:, None]
    mixed = a[:, 0] * a[:, 1] * c_p + b[:, 0] * b[:, 1] * c_q
    cross = w[:, 0] * w[:, 1] * c_p * c_q * jnp.square(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
    return _Coupling(w, a, b, c_p, c_q, own, mixed, 1 + jnp.sum(w * own, 1) + cross)


def compliance(lines: CapabilityLines, weight: Array, c_p: Array, c_q: Array) -> tuple[Array, Array, Array]:
    """(1 + C W)^-1 C of all units, (G, B) each: active, mixed, reactive."""
    k, at = _coupling(lines, weight, c_p, c_q), lines.unit
    pp, pq, qq = (jnp.sum(k.w * x * y, 1) for x, y in ((k.a, k.a), (k.a, k.b), (k.b, k.b)))
    return (
        c_p.at[at].set(k.c_p * (1 + k.c_q * qq) / k.det),
        jnp.zeros_like(c_p).at[at].set(-k.c_p * k.c_q * pq / k.det),
        c_q.at[at].set(k.c_q * (1 + k.c_p * pp) / k.det),
    )


def coupled(
    lines: CapabilityLines, weight: Array, p: Array, q: Array, per_p: Array, per_q: Array, units: int
) -> tuple[Array, Array, Array]:
    """Moves of blocks p, q, and of the lines (2 M, B), from what the blocks do without lines.

    per_p, per_q: 1 / curvature of the blocks. A stiff line hardly moves: that is worked out by itself, for the
    difference of the moves of the blocks would keep none of its digits.
    """
    k = _coupling(lines, weight, of_units(per_p, units), of_units(per_q, units))
    s_p, s_q = of_units(p, units)[lines.unit], of_units(q, units)[lines.unit]
    free = k.a * s_p[:, None] + k.b * s_q[:, None]
    other = k.w[:, ::-1]
    moved = (free * (1 + other * k.own[:, ::-1]) - other * k.mixed[:, None] * free[:, ::-1]) / k.det[:, None]
    zero = jnp.zeros((units, p.shape[-1]), p.dtype)
    u_p, u_q = (zero.at[lines.unit].add(jnp.sum(k.w * slope * moved, 1)) for slope in (k.a, k.b))
    return (
        p - per_p * to_blocks(u_p, p.shape[0]),
        q - per_q * to_blocks(u_q, q.shape[0]),
        moved.reshape(-1, p.shape[-1]),
    )
