"""Reward terms and cost channels of a feeder step by name: what a task lists is computed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.numerics import safe_divide
from powerzoo_jax.devices import datacenter, flexload
from powerzoo_jax.envs import constraint as objective
from powerzoo_jax.envs.feeder.fleet import STORING, FleetResult, Layout, charge_of
from powerzoo_jax.envs.feeder.types import DistributionParams, DistributionState

BACKLOG_USD_PER_GPU_H = 1.0  # of work left at the horizon


class StepAccounts(NamedTuple):
    """Accounts of an executed step, from which its reward terms and costs follow.

    state, new:      before the step, and the stacks after it by kind
    price_per_mwh:   ()  of the step;  mean_per_mwh: ()  mean over the episode
    p_loss_mw:       ()
    last:            ()  bool  the step ends the episode
    """

    layout: Layout
    params: DistributionParams
    state: DistributionState
    new: dict[str, Any]
    delivered: FleetResult
    price_per_mwh: Array
    mean_per_mwh: Array
    p_loss_mw: Array
    last: Array
    dt_hours: float


def _storing(ledger: StepAccounts, column: Callable[[str], Array]) -> Array:
    """A column of storage, then of vehicles, (S,)."""
    parts = [column(kind) for kind in STORING if kind in ledger.layout.kinds]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _sales(ledger: StepAccounts) -> Array:
    p_mw = _storing(ledger, lambda kind: ledger.delivered.reports[kind].p_mw)
    return objective.energy_sales(ledger.price_per_mwh, p_mw, ledger.dt_hours)


def _degradation(ledger: StepAccounts) -> Array:
    def wear(kind: str) -> Array:
        p_mw = ledger.delivered.reports[kind].p_mw
        return getattr(ledger.params, kind).degradation_per_mwh * jnp.abs(p_mw) * ledger.dt_hours

    return -_storing(ledger, wear)


def _settlement(ledger: StepAccounts) -> Array:
    def cell(name: str) -> Array:
        return _storing(ledger, lambda kind: getattr(getattr(ledger.params, kind), name))

    left = objective.settlement(
        charge_of(ledger.new, ledger.price_per_mwh),
        ledger.state.soc_start,
        cell("capacity_mwh"),
        ledger.mean_per_mwh,
        cell("eta_charge"),
        cell("eta_discharge"),
    )
    return jnp.where(ledger.last, jnp.where(cell("mask"), left, 0), 0)


def _terminal_buffer(ledger: StepAccounts) -> Array:
    left = flexload.terminal_usd(ledger.params.flexload, ledger.new["flexload"], ledger.dt_hours)  # type: ignore[arg-type]
    return -jnp.where(ledger.last, left, 0)


def _backlog(ledger: StepAccounts) -> Array:
    left = datacenter.backlog_gpu_h(ledger.params.datacenter, ledger.new["datacenter"], ledger.dt_hours)  # type: ignore[arg-type]
    return -jnp.where(ledger.last, BACKLOG_USD_PER_GPU_H * left, 0)


def _unmet(ledger: StepAccounts) -> Array:
    price = ledger.params.vehicle.unmet_usd_per_mwh  # type: ignore[union-attr]
    return -price * ledger.delivered.reports["vehicle"].unmet_mwh


def _site_energy(ledger: StepAccounts) -> Array:
    used = ledger.delivered.reports["datacenter"].p_mw
    return objective.energy_sales(ledger.price_per_mwh, used, ledger.dt_hours)


def _misses(ledger: StepAccounts) -> Array:
    return -ledger.params.miss_usd * ledger.delivered.reports["datacenter"].missed_jobs  # type: ignore[operator]


def _pue_bonus(ledger: StepAccounts) -> Array:
    site = ledger.new["datacenter"]
    pue = safe_divide(-ledger.delivered.reports["datacenter"].p_mw, site.it_mw)
    return jnp.where(site.it_mw > 0, jnp.maximum(ledger.params.target_pue - pue, 0), 0)  # type: ignore[operator]


TERMS: dict[str, Callable[[StepAccounts], Array]] = {
    "energy_sales": _sales,
    "degradation": _degradation,
    "settlement": _settlement,
    "network_loss": lambda x: -(x.price_per_mwh * x.p_loss_mw * x.dt_hours)[None],
    "curtailed_energy": lambda x: -jnp.maximum(x.price_per_mwh, 0) * x.delivered.reports["renewable"].curtailed_mwh,
    "comfort": lambda x: -x.delivered.reports["flexload"].comfort_usd,
    "deferral": lambda x: -x.delivered.reports["flexload"].deferral_usd,
    "terminal_buffer": _terminal_buffer,
    "unmet_energy": _unmet,
    "site_energy": _site_energy,
    "job_misses": _misses,
    "backlog": _backlog,
    "pue_bonus": _pue_bonus,
    "soc_shaping": lambda x: -jnp.abs(charge_of(x.new, x.price_per_mwh) - x.params.target_soc),  # type: ignore[operator]
}
"""Money of a step [$], one entry a unit (or one for the feeder), positive when earned.

The exceptions are pue_bonus, [target - PUE]+, and soc_shaping, -|soc - target|, without a unit: the weight of their
term turns them into money.
"""

OUTAGE = "unserved_energy"
CONSTRAINTS = "cost_sum"  # less the sum of all channels, whatever their units: the reward of the validation presets
VOLTAGE = "voltage_shaping"  # less the channel voltage_violation [pu]
SHAPING = ("pue_bonus", "soc_shaping", CONSTRAINTS, VOLTAGE)  # terms that are no money


class Pooling(NamedTuple):
    """Pooling of the money of units into that of agents: "sum" and "mean" (over agents) are shared, or "individual"."""

    how: str
    n_agent: int

    def __call__(self, money: Array) -> Array:
        """(units,) [$] -> (A,) [$]."""
        if self.how == "individual":
            return money
        total = jnp.sum(money)
        return jnp.broadcast_to(total / self.n_agent if self.how == "mean" else total, (self.n_agent,))


def earned(ledger: StepAccounts, names: tuple[str, ...], pooling: Pooling, failed: Array, outage_usd: Array) -> Array:
    """(A, K) [$] in the order of `names`; a blackout replaces everything else, and every agent bears all of it."""
    columns = []
    for name in names:
        if name == OUTAGE:
            columns.append(jnp.broadcast_to(outage_usd, (pooling.n_agent,)))
        elif name in (CONSTRAINTS, VOLTAGE):
            columns.append(jnp.zeros((pooling.n_agent,), outage_usd.dtype))  # known once the channels are
        else:
            columns.append(jnp.where(failed, 0, pooling(TERMS[name](ledger))))
    return jnp.stack(columns, axis=1)


def shaped(terms: Array, names: tuple[str, ...], cost: Array, cost_names: tuple[str, ...]) -> Array:
    """The terms (A, K) with those filled in that follow from the cost channels (C,)."""
    if CONSTRAINTS in names:
        terms = terms.at[:, names.index(CONSTRAINTS)].set(-jnp.sum(cost))
    if VOLTAGE in names:
        terms = terms.at[:, names.index(VOLTAGE)].set(-cost[cost_names.index("voltage_violation")])
    return terms


DEVICE_COSTS: dict[str, Callable[[dict[str, Any]], Array]] = {
    "departure_shortfall": lambda reports: jnp.sum(reports["vehicle"].shortfall_mwh),
    "unmet_energy": lambda reports: jnp.sum(reports["vehicle"].unmet_mwh),
    "sla": lambda reports: jnp.sum(reports["datacenter"].missed_jobs),
    "overtemp": lambda reports: jnp.sum(reports["datacenter"].overtemp_c),
}
"""Channels that a device reports, () each."""
