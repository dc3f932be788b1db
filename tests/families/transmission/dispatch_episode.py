"""Least-cost dispatch of every step of a transmission episode under the ratings, with dual bounds.

The plan is for the environment's own choices: whoever keeps the ratings is bounded by it. The package's own solver:
`plan/test_episode.py` compares it with HiGHS step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.plan.episode import episode_load
from powerzoo_jax.families.transmission.units_types import TransmissionParams
from powerzoo_jax.opf.qp import Qp, QpResult, dual_bound, solve_qp
from powerzoo_jax.opf.result import OpfStatus

UNIT_MW = 100.0  # of the variables of a program: the solver's tolerances are absolute


@dataclass(frozen=True, eq=False)
class DispatchPlan:
    """Least-cost dispatch of every step under the ratings.

    p_mw:       (T, G)  [MW]
    cost_usd:   (T,)    [USD] of the step
    bound_usd:  (T,)    [USD] no dispatch without overload costs less: weak duality, recomputed in NumPy
    """

    p_mw: np.ndarray
    cost_usd: np.ndarray
    bound_usd: np.ndarray


def solve_dispatch(sim: Sim, drawn: Draw, window_mw: tuple[np.ndarray, np.ndarray] | None = None) -> DispatchPlan:
    """Dispatch one drawn episode of a task without commitment; units with one block of offers each.

    window_mw:  lower and upper limits (T, G) [MW] inside those of the units; None leaves the units' own. A step that
                nothing in its window can serve under the ratings costs inf

    Raises ValueError for a task with commitment or several blocks, SolverError when a step is not solved.
    """
    params = sim.params
    if sim.env.commitment or params.offers.width_mw.shape[1] != 1:
        raise ValueError(f"{sim.spec.id}: a dispatch plan needs units that always run, with one block of offers each.")
    loads = episode_load(sim, drawn)
    with jax.enable_x64(True):
        # float32 parameters are widened, not rebuilt: the plan is for the numbers that the environment has
        wide = jax.tree.map(_widened, params)
        low, high = (jnp.where(wide.rules.available, x, 0) for x in (wide.rules.p_min_mw, wide.rules.p_max_mw))
        whole = window_mw is None
        if window_mw is None:
            window_mw = tuple(np.tile(np.asarray(x), (len(loads), 1)) for x in (low, high))  # type: ignore[assignment]
        programs, found = _solve_steps(wide, jnp.asarray(loads), *(jnp.asarray(x) for x in window_mw))  # type: ignore[union-attr]
        solved = np.asarray(found.status) == OpfStatus.OPTIMAL
        if whole and not solved.all():
            raise SolverError(f"{sim.spec.id}: a step was not solved (status {np.unique(found.status)}).")
    running = np.asarray(params.rules.available, np.float64)
    fixed = float(np.sum(running * np.asarray(params.offers.base_cost, np.float64)))
    n_unit, dt = sim.env.dims.unit, sim.env.dt_hours
    bounds = [dual_bound(_step_of(programs, t), np.asarray(found.row_price)[t]) for t in range(len(loads))]
    return DispatchPlan(
        p_mw=running * np.asarray(params.offers.base_mw, np.float64) + UNIT_MW * np.asarray(found.x)[:, :n_unit],
        cost_usd=np.where(solved, dt * (np.asarray(found.objective) + fixed), np.inf),
        bound_usd=np.where(solved, dt * (np.array(bounds) + fixed), np.inf),
    )


def _widened(leaf: Array) -> Array:
    return jnp.asarray(leaf, "float64") if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _program(params: TransmissionParams, load_mw: Array, low_mw: Array, high_mw: Array) -> Qp:
    """Output above the base of the offers; load is shed in proportion, surplus is taken at the reference bus."""
    offers, factors = params.offers, params.factors
    base = params.rules.available.astype(load_mw.dtype) * offers.base_mw
    rated = params.rate_mw > 0
    limit = jnp.where(rated, params.rate_mw, jnp.inf)
    served = load_mw - params.shunt_mw
    flow = matmul(factors.of_unit, base) - factors.of_load * served + factors.fixed
    none = jnp.zeros_like(factors.of_load)
    balance = jnp.concatenate([jnp.ones_like(base), jnp.array([1.0, -1.0], base.dtype)])
    lines = jnp.concatenate([factors.of_unit, factors.of_load[:, None], none[:, None]], axis=1)
    need = (load_mw - jnp.sum(base))[None]
    zero = jnp.zeros(2, base.dtype)
    return Qp(
        a=jnp.concatenate([balance[None], lines]),
        q=UNIT_MW**2 * jnp.concatenate([offers.slope[:, 0], zero]),
        c=UNIT_MW * jnp.concatenate([offers.price[:, 0], params.voll[None], params.surplus_price[None]]),
        lo=jnp.concatenate([low_mw - base, zero]) / UNIT_MW,
        hi=jnp.concatenate([high_mw - base, served[None], jnp.sum(low_mw)[None]]) / UNIT_MW,
        row_lo=jnp.concatenate([need, -limit - flow]) / UNIT_MW,
        row_hi=jnp.concatenate([need, limit - flow]) / UNIT_MW,
    )


@jax.jit
def _solve_steps(params: TransmissionParams, loads_mw: Array, low_mw: Array, high_mw: Array) -> tuple[Qp, QpResult]:
    programs = jax.vmap(lambda *step: _program(params, *step))(loads_mw, low_mw, high_mw)
    return programs, jax.vmap(lambda *step: unchecked(solve_qp)(_program(params, *step)))(loads_mw, low_mw, high_mw)


def _step_of(programs: Qp, t: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf[t]), programs)
