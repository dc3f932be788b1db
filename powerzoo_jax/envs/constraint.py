"""Cost channels and reward terms of a step, by name.

Cost channels are non-negative, in physical units, 0 when satisfied, and never mix units; security of a DC flow against
the loss of one branch is one of them. Reward terms are money of one step in $, positive when earned. No term is a
penalty in disguise.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.devices.storage import settlement as settlement
from powerzoo_jax.powerflow.result import loading_excess, range_excess

N_MINUS_1 = "n_minus_1"
"""Name of the cost channel."""

OUTAGE = "unserved_energy"
CONSTRAINTS = "cost_sum"  # less the sum of all channels, whatever their units: the reward of the validation presets
VOLTAGE = "voltage_shaping"  # less the channel voltage_violation [pu]
SHAPING = ("pue_bonus", "soc_shaping", CONSTRAINTS, VOLTAGE)
"""Reward terms that are no money."""


def outage_excess(move: Array, rate_mw: Array, flow_mw: Array) -> Array:
    """Largest total overload of the network with all branches and after the loss of any one, () [MW].

    max_k sum_l [|f_l + move_kl f_k| - rate_l]+,   move_kl = LODF_lk, and 0 for an outage that is not screened

    move:     (L, L)  [-]   row k: what each flow takes over of the flow of the lost branch k
    rate_mw:  (L,)    [MW]  0 = unlimited
    flow_mw:  (L,)    [MW]
    """
    limit = jnp.where(rate_mw > 0, rate_mw, jnp.inf)

    # line by line, for all outages at once: the sums then lie side by side, and nothing of size L^2 is stored
    def add(excess: Array, line: tuple[Array, Array, Array]) -> tuple[Array, None]:
        flow, moved, most = line
        return excess + jnp.maximum(jnp.abs(flow + moved * flow_mw) - most, 0), None

    worst, _ = lax.scan(add, jnp.zeros_like(flow_mw), (flow_mw, move.T, limit))
    return jnp.maximum(jnp.max(worst, initial=0), jnp.sum(jnp.maximum(jnp.abs(flow_mw) - limit, 0)))


def energy_sales(price_per_mwh: Array, p_mw: Array, dt_hours: float) -> Array:
    """Revenue of injected and cost of consumed energy, price * P * dt; () (G,) -> (G,) [$]."""
    return price_per_mwh * p_mw * dt_hours


def unserved(voll_per_mwh: Array, energy_mwh: Array) -> Array:
    """Value of lost load, -VOLL * energy not served, () [$]."""
    return -voll_per_mwh * energy_mwh


def replacement(soc: Array, soc_start: Array, capacity_mwh: Array, price_per_mwh: Array, eta_discharge: Array) -> Array:
    """Value of the energy left in store against the start at the price of making it anew, (G,) [$].

    price * (soc - soc_0) C / eta_d, the same for a rise and a fall.
    """
    return price_per_mwh * (soc - soc_start) * capacity_mwh / eta_discharge


UNITS = {
    "voltage_violation": "pu",
    "thermal_overload": "MVA",
    "unserved_energy": "MWh",
    "resource": "MW",
    "power_balance": "MW",
    "reserve_shortfall": "MW",
    "reactive_shortfall": "Mvar",
    "n_minus_1": "MW",
    "departure_shortfall": "MWh",
    "unmet_energy": "MWh",
    "vuf_violation": "percent",
    "sla": "jobs",
    "overtemp": "degC",
    "power_deficit": "MW",
    "dropped_gpu_h": "GPU h",
}

LEAST_BUDGET = 1e-3  # a thousandth of a MW, MWh or pu, also of a channel of one's own
LEAST_BUDGETS = {
    **dict.fromkeys(UNITS, LEAST_BUDGET),
    **dict.fromkeys(("vuf_violation", "sla", "overtemp", "dropped_gpu_h"), 0.1),
}
"""What stands for a budget of zero where a cost is divided by its budget, in the unit of its channel."""


def budget_scales(names: Sequence[str], budgets: Sequence[float] | np.ndarray) -> np.ndarray:
    """Divisors that turn costs into shares of their budgets, (C,) [unit of each channel]; inf for a channel without.

    scale_c = max(budget_c, least_c),   scalar cost = sum_c cost_c / scale_c

    A scalar cost of at most 1 keeps every budget above zero, and one of zero to its least. It is stricter than the
    budgets: channels that use half of theirs each already add up to more than 1 where there are three.
    """
    return np.maximum(np.asarray(budgets, float), [LEAST_BUDGETS.get(name, LEAST_BUDGET) for name in names])


def voltage_violation(v_pu: Array, v_min: Array, v_max: Array, failed: Array) -> Array:
    """Sum over buses of the distance outside the band, () [pu]; the sum of v_min after a failed solve."""
    return jnp.where(failed, jnp.sum(v_min), jnp.sum(range_excess(v_pu, v_min, v_max)))


def thermal_overload(p_from: Array, q_from: Array, rate: Array, base_mva: Array, failed: Array) -> Array:
    """Sum over branches of apparent power beyond the rating, () [MVA]; 0 after a failed solve."""
    limited = rate > 0
    square = jnp.where(limited, p_from * p_from + q_from * q_from, 1)  # the root of an unused 0 has no gradient
    excess = jnp.sum(loading_excess(jnp.sqrt(square), rate)) * base_mva
    return jnp.where(failed, 0, excess)


def undelivered(undelivered_mw: Array) -> Array:
    """Commanded less delivered device power over the fleet, () [MW]."""
    return jnp.sum(undelivered_mw)
