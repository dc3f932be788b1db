"""Three-phase feeders with devices: the balanced family on phases of buses, with the unbalance of voltages beside.

What a balanced feeder calls a bus is here a place: one phase of one bus, phase a of all buses first, then b, then c.
Every bus has three; where it lacks a phase, the place is masked, at 1.0 pu, without load and without limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.cases.grid import Grid
from powerzoo_jax.families.feeder.env import DistributionEnv
from powerzoo_jax.families.feeder.types import DistributionParams
from powerzoo_jax.powerflow import solve_threephase, voltage_unbalance

PERCENT = 100.0


@struct.dataclass(kw_only=True)
class PhaseGrid(Grid):
    """A `Grid` whose buses are places and whose branches are conductors of lines, phase after phase.

    node:         (N,)    int32  node of the power flow at each place, the number of nodes where there is none
    whole_buses:  (T, 3)  int32  nodes of the buses that have all phases
    vuf_max:      ()      [%]    largest voltage unbalance that breaks nothing
    """

    node: Array
    whole_buses: Array
    vuf_max: Array


@struct.dataclass(kw_only=True)
class PhaseFlow:
    """A solved three-phase feeder as the balanced family reads it; fields as in `powerflow.PowerFlowResult`.

    v_pu:            (N,)  [pu]  by place
    p_from, q_from:  (L,)  [pu]  by conductor
    vuf_percent:     (T,)  [%]   100 |V2| / |V1| of the buses that have all phases
    """

    v_pu: Array
    p_from: Array
    q_from: Array
    p_loss: Array
    p_slack: Array
    q_slack: Array
    vuf_percent: Array
    residual: Array
    iterations: Array
    status: Array


@dataclass(frozen=True)
class UnbalancedEnv(DistributionEnv):
    """A fleet of devices on an unbalanced feeder: wye and delta loads, one- to three-phase lines, fixed taps.

    Everything is as in `DistributionEnv` but for the power flow and for one more channel, `vuf_violation`: the sum over
    the buses with all phases of the voltage unbalance beyond `vuf_max`, in percentage points.
    """

    padded: bool = True  # the places that a bus lacks are masked

    def flow(self, injection: tuple[Array, Array], params: DistributionParams, *, stragglers: bool = False) -> Any:
        """Exact three-phase power flow at the taps of the case."""
        grid = params.grid
        out = unchecked(solve_threephase)(params.factors, *injection, solver=self.solver, stragglers=stragglers)
        return PhaseFlow(
            v_pu=jnp.take(out.v_pu, grid.node, mode="fill", fill_value=1),
            p_from=out.p_from.T.reshape(-1),
            q_from=out.q_from.T.reshape(-1),
            p_loss=out.p_loss,
            p_slack=jnp.sum(out.p_source),
            q_slack=jnp.sum(out.q_source),
            vuf_percent=PERCENT * unchecked(voltage_unbalance)(out.v_re, out.v_im, grid.whole_buses),
            residual=out.residual,
            iterations=out.iterations,
            status=out.status,
        )

    def limit_costs(self, v: Array, flow: Any, failed: Array, params: DistributionParams) -> dict[str, Array]:
        """Channels of the network itself, () each."""
        excess = jnp.sum(jnp.maximum(flow.vuf_percent - params.grid.vuf_max, 0))
        return {**super().limit_costs(v, flow, failed, params), "vuf_violation": jnp.where(failed, 0, excess)}

    def reported(self, flow: Any) -> dict[str, Array]:
        """The largest voltage unbalance of a bus."""
        return {"vuf_percent": jnp.max(flow.vuf_percent, initial=0)}
