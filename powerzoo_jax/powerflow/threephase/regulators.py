"""Automatic voltage regulators: tap positions at which their controls, line-drop compensation included, come to rest.

A control measures u = |v / n_pt - (r + j x) i / i_ct| on the secondary of its unit, in volts of the potential
transformer. Outside of the dead band around the set-point it moves by a share of (v_set - u) n_pt / v_rated / step,
whole positions and one at least; then the feeder is solved anew (Kersting, Distribution System Modeling and Analysis,
ch. 7).
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import FINITE, MOST, WHOLE, Count, Range, axes, checks_ranges, unchecked
from powerzoo_jax.base.solver_mode import AUTO
from powerzoo_jax.cases.threephase.case import GROUND, ThreePhaseCase
from powerzoo_jax.powerflow.result import Status
from powerzoo_jax.powerflow.threephase.factors import ThreePhaseFactors
from powerzoo_jax.powerflow.threephase.network import phase_base_mva, secondary_turns
from powerzoo_jax.powerflow.threephase.solve import ThreePhaseResult, solve_threephase

ROUNDS = 20
# Share of what is missing that a control takes per round. The whole would overshoot: loads and compensated drops
# answer, and so do regulators upstream. With this share the ends are those of OpenDSS's controls.
APPROACH = 0.7


@struct.dataclass(kw_only=True)
class RegulatorControl:
    """Settings of the controls of one feeder; leaves, to be shared or mapped between lanes.

    tap:             (R,)    int32 positions of the case
    step:            (R,)    [-]   ratio per position
    tap_max:         (R,)    int32 the range is -tap_max .. tap_max
    v_set, band:     (R,)    [V]   set-point and full width of the dead band, secondary of the potential transformer
    volt:            (R,)    [V]   what it shows for 1 pu at the secondary of the unit
    drop_r, drop_x:  (R,)    [V]   line-drop compensation for 1 pu of current
    per_volt:        (R,)    [1/V] positions per volt
    unit:            (R,)    int32 transformer unit that is measured
    node, end:       (R,)    int32 its secondary nodes, N for the ground
    turns:           (R,)    [-]   unit current over that of the secondary at ratio 1
    """

    tap: Array
    step: Array
    tap_max: Array
    v_set: Array
    band: Array
    volt: Array
    drop_r: Array
    drop_x: Array
    per_volt: Array
    unit: Array
    node: Array
    end: Array
    turns: Array

    AXES: ClassVar = {"R": "tap"}


class RegulatedResult(NamedTuple):
    """A power flow at the taps where the controls came to rest.

    flow:    ThreePhaseResult; `status` is CONVERGED only where the taps settled too, `iterations` sums the rounds
    tap:     (R,)  int32  positions
    u_volt:  (R,)  [V]    what the controls measure at the end
    rounds:  ()    int32  power flows until no control moved; one more gives the result
    """

    flow: ThreePhaseResult
    tap: Array
    u_volt: Array
    rounds: Array


@on_host
def prepare_regulators(case: ThreePhaseCase, *, dtype: Any = None) -> RegulatorControl:
    """Collect the settings that `solve_regulated` needs; dtype as in `prepare_threephase`.

    Raises SolverError for a feeder without regulators.
    """
    dtype = resolve_dtype(dtype)
    r, t = case.regulator, case.transformer
    if len(r) == 0:
        raise SolverError(f"{case.name} has no regulators. Use solve_threephase.")
    unit = r.unit.reshape(-1, 3)[:, 0]
    node, end = t.to_node[unit], t.to_end[unit]
    kv = case.node.base_kv[np.where(node == GROUND, end, node)]
    amp = phase_base_mva(case) * 1e3 / kv  # of 1 pu
    whole = dict(tap=r.tap, tap_max=r.tap_max, unit=unit)
    whole |= {name: np.where(at == GROUND, case.n_node, at) for name, at in (("node", node), ("end", end))}
    numbers = dict(
        step=r.step,
        v_set=r.v_set_volt,
        band=r.band_volt,
        volt=kv * 1e3 / r.pt_ratio,
        drop_r=r.drop_r_volt * amp / r.ct_primary_amp,
        drop_x=r.drop_x_volt * amp / r.ct_primary_amp,
        per_volt=r.pt_ratio / (t.to_kv[unit] * 1e3) / r.step,
        turns=secondary_turns(case)[unit],
    )
    return RegulatorControl(
        **{name: jnp.asarray(x, jnp.int32) for name, x in whole.items()},
        **{name: jnp.asarray(x, dtype) for name, x in numbers.items()},
    )


@checks_ranges("solve_regulated")
def solve_regulated(
    factors: ThreePhaseFactors,
    control: RegulatorControl,
    p_pu: Annotated[Array, FINITE, axes("P", told=True)],
    q_pu: Annotated[Array, FINITE, axes("P", told=True)],
    tap: Annotated[Array, Range(-MOST, MOST), axes("R", kind=WHOLE)] | None = None,
    *,
    rounds: Count = ROUNDS,
    solver: str = AUTO,
) -> RegulatedResult:
    """Solve the power flow of one scenario with automatic regulators; vmap it for many.

    factors:    from `prepare_threephase` with movable taps      control:  from `prepare_regulators`
    p_pu, q_pu: (D + G,) [pu] as `solve_threephase` takes them
    tap:        (R,) int32 positions to begin from; None takes those of the case. Within a dead band the end depends
                on the beginning, as it does in the field.
    rounds:     power flows at most
    solver:     mode of every power flow, as in `solve_threephase`; rounds end in every mode when no control moves

    All controls that are out of their band move in a round, none beyond its last position. Returns a RegulatedResult;
    a lane whose controls hunt is OUT_OF_STEPS, its flow is that of its last taps.
    Differentiable forward and reverse in injections and factors at the taps that are found, as they are whole numbers.
    """
    begin = control.tap if tap is None else jnp.asarray(tap, jnp.int32)
    fixed = lax.stop_gradient((factors, p_pu, q_pu))

    def ratio(tap: Array) -> Array:
        return 1 + control.step * tap.astype(control.step.dtype)

    def settle(carry: RegulatorIteration) -> RegulatorIteration:
        flow = unchecked(solve_threephase)(*fixed, ratio(carry.tap), solver=solver)
        u = _measured(control, flow, carry.tap)
        tap = jnp.clip(carry.tap + _change(control, u), -control.tap_max, control.tap_max)
        moves = jnp.any(tap != carry.tap) & (flow.status == Status.CONVERGED)
        return RegulatorIteration(
            carry.rounds + 1, carry.iterations + flow.iterations, jnp.where(moves, tap, carry.tap), moves
        )

    start = RegulatorIteration(jnp.int32(0), jnp.int32(0), begin, jnp.bool_(True))
    end = lax.while_loop(lambda c: (c.rounds < rounds) & c.moves, settle, start)
    flow = unchecked(solve_threephase)(factors, p_pu, q_pu, ratio(end.tap), solver=solver)
    hunting = end.moves & (flow.status == Status.CONVERGED)
    status = jnp.where(hunting, jnp.int32(Status.OUT_OF_STEPS), flow.status)
    flow = dataclasses.replace(flow, status=status, iterations=end.iterations + flow.iterations)
    return RegulatedResult(flow, end.tap, _measured(control, flow, end.tap), end.rounds)


class RegulatorIteration(NamedTuple):
    """State of the loop: rounds, iterations (), positions (R,), and whether a control moved in the last round."""

    rounds: Array
    iterations: Array
    tap: Array
    moves: Array


def _measured(control: RegulatorControl, flow: ThreePhaseResult, tap: Array) -> Array:
    """u (R,) [V]."""

    def across(v: Array) -> Array:
        return jnp.take(v, control.node, mode="fill", fill_value=0) - jnp.take(
            v, control.end, mode="fill", fill_value=0
        )

    ratio = 1 + control.step * tap.astype(control.step.dtype)
    re, im = ((x[control.unit] / (control.turns * ratio)) for x in (flow.i_unit_re, flow.i_unit_im))
    e = control.volt * across(flow.v_re) - (control.drop_r * re - control.drop_x * im)
    f = control.volt * across(flow.v_im) - (control.drop_r * im + control.drop_x * re)
    return jnp.sqrt(e * e + f * f)


def _change(control: RegulatorControl, u_volt: Array) -> Array:
    """Positions (R,) that the controls ask for; 0 within the band."""
    missing = control.v_set - u_volt
    wanted = jnp.trunc(APPROACH * missing * control.per_volt)
    wanted = jnp.where(wanted == 0, jnp.sign(missing), wanted)
    return jnp.where(jnp.abs(missing) > 0.5 * control.band, wanted, 0).astype(jnp.int32)
