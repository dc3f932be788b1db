"""DC power flow: constant factors of a network and one matrix product per batch of injections.

Textbook symbols: theta bus angle, b branch susceptance, phi phase shift, A incidence (+1 from, -1 to),
flow f = b (A theta - phi), balance A^T f = p - g with g the shunt conductance (a load at 1 pu).
Two conventions exist for b, and neither is a rounding of the other:

MATPOWER: b = 1 / (x tap), phase shifts count.      PGLIB: b = x / (r^2 + x^2), no taps, no phase shifts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import matvec, resolve_dtype
from powerzoo_jax.base.ranges import FINITE, Count, Whole, axes, checks_ranges
from powerzoo_jax.base.tree import pad_axis
from powerzoo_jax.cases import Case
from powerzoo_jax.powerflow.dc.network import DcNetwork, build_dc_network
from powerzoo_jax.powerflow.result import Status


class DcConvention(IntEnum):
    """Convention by which a branch becomes a susceptance."""

    MATPOWER = 0
    PGLIB = 1


@struct.dataclass(kw_only=True)
class DcFactors:
    """Prepared data of one network for `solve_dc`. Leaves only; map or share them between lanes.

    ptdf:      (L, N)  [-]    flow per injection, what the slack does included
    x_bus:     (N, N)  [rad/pu]  angle per injection, likewise
    flow_0:    (L,)    [pu]   flow that phase shifts and shunts cause
    angle_0:   (N,)    [rad]  angle that they cause, plus that of the reference bus
    incidence: (L, N)  [-]    +1 at the from bus, -1 at the to bus, 0 out of service
    shunt:     (N,)    [pu]   consumption of the shunts
    share:     (N,)    [-]    share of each bus in balancing its island; sums to 1 over an island
    island:    (I, N)  [-]    1 where a bus belongs to an island
    live:      (N,)    bool   buses that may inject: False for isolated ones

    Angles, flows and the residual have products of their own: a program that reads one does not pay for the others.
    """

    ptdf: Array
    x_bus: Array
    flow_0: Array
    angle_0: Array
    incidence: Array
    shunt: Array
    share: Array
    island: Array
    live: Array

    AXES: ClassVar = {"N": "n_bus", "L": "n_branch"}

    @property
    def n_bus(self) -> int:
        return self.live.shape[-1]

    @property
    def n_branch(self) -> int:
        return self.flow_0.shape[-1]


@struct.dataclass(kw_only=True)
class DcResult:
    """Solved DC state of one network in per unit on its base power.

    angle_rad:  (N,)  [rad]  bus angles
    p_from:     (L,)  [pu]   branch flows, from -> to; what enters leaves
    p_added:    (N,)  [pu]   what the slack adds to the given injections so that every island balances
    residual:   ()    [pu]   largest power mismatch over the buses, computed from the flows
    status:     ()    int32 `Status`: CONVERGED or BAD_INPUT
    """

    angle_rad: Array
    p_from: Array
    p_added: Array
    residual: Array
    status: Array

    @property
    def converged(self) -> Array:
        """() bool."""
        return self.status == Status.CONVERGED


@on_host
@checks_ranges("prepare_dc")
def prepare_dc(
    case: Case,
    *,
    convention: DcConvention = DcConvention.MATPOWER,
    slack_share: Annotated[np.ndarray, axes("...")] | None = None,
    dtype: Any = None,
) -> DcFactors:
    """Factor a network for `solve_dc`, in float64 on the host.

    case:         network; every island has one reference bus
    convention:   DcConvention, see the module
    slack_share:  (N,) [-] non-negative weights: the imbalance of an island is spread over its buses in proportion
                  (distributed slack); None leaves it to the reference bus
    dtype:        float32 (None) or float64

    Raises CaseError naming the buses of an island without a reference or with several, the branches without
    reactance, and a share that does not fit.
    """
    dtype = resolve_dtype(dtype)
    return dc_factors(build_dc_network(case, pglib=convention == DcConvention.PGLIB, slack_share=slack_share), dtype)


def dc_factors(network: DcNetwork, dtype: Any) -> DcFactors:
    """Move a prepared host network to the device."""

    def door(values: np.ndarray) -> Array:
        return jnp.asarray(values, dtype)

    return DcFactors(
        ptdf=door(network.ptdf),
        x_bus=door(network.x_bus),
        flow_0=door(network.flow_0),
        angle_0=door(network.angle_0),
        incidence=door(network.incidence),
        shunt=door(network.shunt),
        share=door(network.share),
        island=door(network.island),
        live=jnp.asarray(network.live),
    )


@checks_ranges("solve_dc")
def solve_dc(
    factors: DcFactors, p_pu: Annotated[Array, FINITE, axes("N", told=True), axes("B", "N", lanes=True)]
) -> DcResult:
    """Solve the DC power flow of one scenario or of a batch; vmap it where factors differ.

    f = PTDF p + f_0,  theta = X p + theta_0

    factors:  from `prepare_dc`
    p_pu:     (N,) or (B, N) [pu] net injections on the case's base power; an imbalance goes to the slack

    Returns a DcResult whose leaves carry the batch axis of p_pu. Compiled, nothing raises or is NaN: a lane with an
    injection that is not finite, or at an isolated bus, is solved without it and says BAD_INPUT.
    Linear, so derivatives in both modes are exact; with respect to p the flows' Jacobian is `factors.ptdf`.
    """
    usable = jnp.isfinite(p_pu) & _as_row(factors.live, p_pu)
    p = jnp.where(usable, p_pu, 0)
    flow = matvec(factors.ptdf, p) + _as_row(factors.flow_0, p)
    net = p - _as_row(factors.shunt, p)
    surplus = matvec(factors.island, net)
    added = -matvec(factors.island.T, surplus) * _as_row(factors.share, p)
    mismatch = matvec(factors.incidence.T, flow) - (net + added)
    clean = jnp.all(usable | (p_pu == 0), axis=-1)
    return DcResult(
        angle_rad=matvec(factors.x_bus, p) + _as_row(factors.angle_0, p),
        p_from=flow,
        p_added=added,
        residual=jnp.max(jnp.abs(mismatch), axis=-1),
        status=jnp.where(clean, jnp.int32(Status.CONVERGED), jnp.int32(Status.BAD_INPUT)),
    )


@checks_ranges("pad_dc")
def pad_dc(factors: DcFactors, n_bus: Count, n_branch: Whole, n_island: Count) -> DcFactors:
    """Widen DC factors to common sizes: a padded bus injects nothing, a padded branch carries nothing."""

    def pad(x: Array, *sizes: int) -> Array:
        for axis, size in enumerate(sizes):
            x = pad_axis(x, size, axis)
        return x

    return DcFactors(
        ptdf=pad(factors.ptdf, n_branch, n_bus),
        x_bus=pad(factors.x_bus, n_bus, n_bus),
        flow_0=pad(factors.flow_0, n_branch),
        angle_0=pad(factors.angle_0, n_bus),
        incidence=pad(factors.incidence, n_branch, n_bus),
        shunt=pad(factors.shunt, n_bus),
        share=pad(factors.share, n_bus),
        island=pad(factors.island, n_island, n_bus),
        live=pad_axis(factors.live, n_bus, 0, False),
    )


def _as_row(constant: Array, like: Array) -> Array:
    """A constant (n,) against values (n,) or (B, n)."""
    return constant[None] if like.ndim == 2 else constant
