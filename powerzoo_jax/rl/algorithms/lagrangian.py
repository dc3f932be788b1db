"""Multipliers of cost budgets: dual ascent with a proportional and a damping term (Stooke, Achiam and Abbeel 2020).

minimise over lambda >= 0, maximise over the policy:  E[return] - sum_c lambda_c (E[cost_c] - budget_c) / size_c

error  e_c = clip((mean cost of the episodes that ended - budget_c) / budget_c, -1, 1)
sum    I_c = max(I_c + k_i e_c, 0)
price  lambda_c = max(I_c + k_p e_c + k_d (e_c - e_c'), 0)

so a price falls as soon as its budget is kept, and is never negative. The learner's advantage is
A_r - sum_c lambda_c A_c.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.envs.constraint import budget_scales
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.training.config import Priced


@struct.dataclass(kw_only=True)
class LagrangeMultipliers:
    """Prices of the constrained channels (c), those with a finite budget.

    price:     (c,)  lambda, >= 0
    integral:  (c,)  its slow part, >= 0
    error:     (c,)  relative excess of the last update that ended an episode
    """

    price: Array
    integral: Array
    error: Array


def constrained(sim: Sim) -> tuple[int, ...]:
    """Cost channels with a finite budget; raises ValueError where there is none."""
    found = tuple(i for i, budget in enumerate(sim.spec.cost_budget) if np.isfinite(budget))
    if not found:
        raise ValueError(f"task {sim.spec.id!r} has no finite cost budget. Train it with ppo, ippo or mappo.")
    return found


def budgets_of(cfg: Priced, sim: Sim) -> Array:
    """Targets of the learner: the share `budget_share` of each finite budget, (c,), the least one for one of zero."""
    chosen, dtype = np.asarray(constrained(sim)), sim.spaces()[0].low.dtype
    given = np.asarray(sim.spec.cost_budget)[chosen]
    least = budget_scales(sim.spec.cost_names, sim.spec.cost_budget)[chosen].astype(dtype)
    # the share may be traced: settings are tuned side by side
    return jnp.where(given > 0, cfg.budget_share * given.astype(dtype), least).astype(dtype)


def start_multipliers(cfg: Priced, sim: Sim) -> LagrangeMultipliers:
    """Prices before the first update."""
    zero = jnp.zeros_like(budgets_of(cfg, sim))
    return LagrangeMultipliers(price=zero + cfg.price, integral=zero + cfg.price, error=zero)


def adjust(cfg: Priced, old: LagrangeMultipliers, cost: Array, budget: Array, episodes: Array) -> LagrangeMultipliers:
    """Move the prices after an update.

    cost:      (c,)  mean cost of the episodes that ended;  budget: (c,)
    episodes:  ()    how many ended; with none, nothing is known and nothing moves
    """
    error = jnp.clip((cost - budget) / budget, -1.0, 1.0)
    integral = jnp.maximum(old.integral + cfg.price_rate * error, 0.0)
    price = jnp.maximum(integral + cfg.price_gain * error + cfg.price_damping * (error - old.error), 0.0)
    known = episodes > 0
    return LagrangeMultipliers(
        price=jnp.where(known, price, old.price),
        integral=jnp.where(known, integral, old.integral),
        error=jnp.where(known, error, old.error),
    )


def named_prices(multipliers: LagrangeMultipliers, sim: Sim) -> dict[str, Array]:
    """Price of each constrained channel by name, for the metrics of an update."""
    return {f"price_{sim.spec.cost_names[c]}": multipliers.price[i] for i, c in enumerate(constrained(sim))}
