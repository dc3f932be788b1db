"""Power flow of unbalanced feeders: Z-form chord over load and generator ports, batched, exact, differentiable.

Every single-phase load or generator is a row between two nodes, so wye and delta differ only in the constant matrix:
v = w + Z i(v) over the rows. A regulator whose ratio moves from t0 to t adds, for each unit, the voltage and the
current (1 / t - 1 / t0) times the secondary voltage and current: two more rows with a proportional law.
"""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import safe_divide
from powerzoo_jax.base.ranges import FINITE, POSITIVE, WHOLE, Count, Positive, axes, checks_ranges
from powerzoo_jax.base.solver_mode import AUTO, told
from powerzoo_jax.powerflow.chord import MAX_STEPS, chord_state
from powerzoo_jax.powerflow.result import Status
from powerzoo_jax.powerflow.rows import TOL, affine, finite
from powerzoo_jax.powerflow.threephase.factors import PHASES, ZIP, ThreePhaseFactors


@struct.dataclass(kw_only=True)
class ThreePhaseResult:
    """Solved state of one unbalanced feeder. Powers are per unit on the three-phase base, voltages on line to neutral.

    v_re, v_im:     (N,)    [pu]  node voltages, rectangular
    i_re, i_im:     (L, 3)  [pu]  currents entering line conductors at their from ends, on a third of the power base
    p_from, q_from: (L, 3)  [pu]  powers entering there
    i_unit_re, i_unit_im: (T,) [pu] currents of transformer units, from -> to, per unit of their rated turns
    p_loss, q_loss: ()      [pu]  series losses of lines and transformers, mutual impedances included
    p_source, q_source: (3,) [pu] what the source delivers at its terminals, by phase
    residual:       ()      [pu]  bound on the largest power mismatch over the rows
    iterations:     ()      int32
    status:         ()      int32 `Status`
    """

    v_re: Array
    v_im: Array
    i_re: Array
    i_im: Array
    p_from: Array
    q_from: Array
    i_unit_re: Array
    i_unit_im: Array
    p_loss: Array
    q_loss: Array
    p_source: Array
    q_source: Array
    residual: Array
    iterations: Array
    status: Array

    @property
    def v_pu(self) -> Array:
        """(N,) voltage magnitudes."""
        return jnp.sqrt(self.v_re * self.v_re + self.v_im * self.v_im)

    @property
    def converged(self) -> Array:
        """() bool."""
        return self.status == Status.CONVERGED


@checks_ranges("solve_threephase")
def solve_threephase(
    factors: ThreePhaseFactors,
    p_pu: Annotated[Array, FINITE, axes("P", told=True)],
    q_pu: Annotated[Array, FINITE, axes("P", told=True)],
    taps: Annotated[Array, POSITIVE, axes("R")] | None = None,
    *,
    tol: Positive | None = None,
    max_steps: Count = MAX_STEPS,
    solver: str = AUTO,
    stragglers: bool = True,
) -> ThreePhaseResult:
    """Solve the power flow of one scenario; vmap it for many (the core is batched).

    factors:    from `prepare_threephase`; share them (in_axes=None) or map them
    p_pu, q_pu: (D + G,) [pu] injections of loads (negative, at their rated voltage) and DERs, on the three-phase base
    taps:       (R,) [-] ratios of the regulators; None = those of the base, also where they may not move
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 8e-10 (float64)
    max_steps:  chord iterations before a lane goes to Newton-Raphson
    solver, stragglers: as in `solve_feeder_active`; the fixed iterations are those that `prepare_threephase` found, and
                a lane of the fixed form that no chord solves is OUT_OF_STEPS, as it has no Newton-Raphson

    Returns a ThreePhaseResult; compiled, nothing raises or is NaN: `status` and `residual` tell.
    Differentiable forward and reverse in injections, taps and factors (implicit function theorem).
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    p, q = _with_taps(factors, p_pu, q_pu, taps)
    r, residual, steps, status = chord_state(ZIP, limit, max_steps, told(solver), stragglers)(factors.core, p, q)
    return _expand(factors, r, *finite(p, q), residual, steps, status)


def _with_taps(factors: ThreePhaseFactors, p: Array, q: Array, taps: Array | None) -> tuple[Array, Array]:
    """Append the rows of moved units: their `p` is proportional to 1 / t - 1 / t0."""
    if factors.moved.shape[-1] == 0:
        return p, q
    ratio = factors.taps if taps is None else taps
    moved = (1 / ratio - 1 / factors.taps)[factors.row_regulator] * factors.moved
    return jnp.concatenate([p, moved]), jnp.concatenate([q, jnp.zeros_like(moved)])


def _expand(
    factors: ThreePhaseFactors, r: Array, p: Array, q: Array, residual: Array, steps: Array, status: Array
) -> ThreePhaseResult:
    """From the converged r to all nodes and branches; currents follow from injections, not from voltage differences."""
    core, n = factors.core, factors.n_node
    a = p.shape[0]
    x = affine(core.m, core.w, r)
    i = jnp.concatenate(ZIP.current(core.law, x[:a], x[a:], p, q))
    v = affine(factors.m_node, factors.w_node, r)

    def currents(matrix: Array, constant: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        j = affine(matrix, constant, i)
        half = j.shape[0] // 2
        return j[:half].reshape(shape), j[half:].reshape(shape)

    lines, units = factors.from_node.shape, factors.r_unit.shape
    line_re, line_im = currents(factors.m_line, factors.w_line, lines)
    from_re, from_im = currents(factors.m_from, factors.w_from, lines)
    unit_re, unit_im = currents(factors.m_unit, factors.w_unit, units)
    source_re, source_im = currents(factors.m_source, factors.w_source, (3,))

    def power(node: Array, re: Array, im: Array) -> tuple[Array, Array]:
        e, f = (jnp.take(part, node, mode="fill", fill_value=0) for part in (v[:n], v[n:]))
        return (e * re + f * im) / PHASES, (f * re - e * im) / PHASES

    # sum over i, j of z_ij conj(i_i) i_j; z is symmetric, so only the real part of the product of currents counts
    product = line_re[:, :, None] * line_re[:, None, :] + line_im[:, :, None] * line_im[:, None, :]
    square = unit_re * unit_re + unit_im * unit_im
    p_from, q_from = power(factors.from_node, from_re, from_im)
    p_source, q_source = power(factors.source_node, source_re, source_im)
    return ThreePhaseResult(
        v_re=v[:n],
        v_im=v[n:],
        i_re=from_re,
        i_im=from_im,
        p_from=p_from,
        q_from=q_from,
        i_unit_re=unit_re,
        i_unit_im=unit_im,
        p_loss=(jnp.sum(factors.r_line * product) + jnp.sum(factors.r_unit * square)) / PHASES,
        q_loss=(jnp.sum(factors.x_line * product) + jnp.sum(factors.x_unit * square)) / PHASES,
        p_source=p_source,
        q_source=q_source,
        residual=residual,
        iterations=steps,
        status=status,
    )


ROTATION = np.exp(2j * np.pi / 3)


@checks_ranges("voltage_unbalance")
def voltage_unbalance(
    v_re: Annotated[Array, FINITE, axes("N")],
    v_im: Annotated[Array, FINITE, axes("N")],
    buses: Annotated[Array, axes("T", 3, kind=WHOLE, below="N")],
) -> Array:
    """Voltage unbalance factor |V2| / |V1| of three-phase buses, (T,) [-]; 0 where V1 is zero.

    v_re, v_im: (N,) [pu] node voltages
    buses:      (T, 3) int32 positions of the nodes of phases 1, 2, 3, as in `ThreePhaseCase.three_phase_nodes`
    """
    e, f = v_re[buses], v_im[buses]

    def sequence(turn: float) -> Array:
        c, s = (jnp.asarray(part, e.dtype) for part in (ROTATION.real, turn * ROTATION.imag))
        re = e[:, 0] + c * (e[:, 1] + e[:, 2]) - s * (f[:, 1] - f[:, 2])
        im = f[:, 0] + c * (f[:, 1] + f[:, 2]) + s * (e[:, 1] - e[:, 2])
        return jnp.sqrt(re * re + im * im)

    return safe_divide(sequence(-1.0), sequence(1.0))
