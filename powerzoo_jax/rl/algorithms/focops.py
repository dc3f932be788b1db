"""Trust region state by state, under budgets: first-order constrained optimisation in policy space.

The best policy within a mean divergence of the acting one, pi_k, is  pi* ~ pi_k exp(A / lambda)  with the advantage
A = A_r - sum_c price_c A_c. The policy that learns is brought to it by the gradient of its divergence from pi*:

minimise  E_{s, a ~ pi_k} [ 1{D(s) <= delta} (lambda D(s) - rho(s, a) A(s, a)) ],  D(s) = KL(pi(. | s) || pi_k(. | s))

with the probability ratio rho of the new policy to the acting one. A state on which the policy has left the trust
region delta counts no more; nothing is clipped. Prices follow the budgets as in `lagrangian`; all else is PPO.

Source: Zhang, Vuong and Ross 2020, First order constrained optimization in policy space, arXiv:2002.06506.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.rl.algorithms.onpolicy import Metrics, standardise


def trust_region_surrogate(
    log_ratio: Array, divergence: Array, advantage: Array, weight: float, trust: float
) -> tuple[Array, Metrics]:
    """Policy loss on standardised advantages, and diagnostics: divergence, share of the states left out.

    divergence:  (..., N) [nat]  of the new policy from the acting one, state by state
    weight:      lambda, the price of it;  trust: delta [nat], beyond which a state counts no more
    """
    ratio = jnp.exp(log_ratio)
    inside = lax.stop_gradient(divergence <= trust)
    each = jnp.where(inside, weight * divergence - ratio * standardise(advantage), 0.0)
    return jnp.mean(each), {
        "kl": jnp.mean(divergence),
        "clip_fraction": 1.0 - jnp.mean(inside.astype(ratio.dtype)),
        "ratio_error": jnp.max(jnp.abs(ratio - 1.0)),
    }
