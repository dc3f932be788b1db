"""Support of voltages by batteries: the least joint injection that keeps a feeder in its band, by load factor."""

from __future__ import annotations

import jax
import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import FACTOR
from powerzoo_jax.families.feeder.plan.episode import build_feeder_problems
from powerzoo_jax.families.feeder.plan.network import solve_steps
from powerzoo_jax.tasks.score import all_starts, episode_keys

LEVELS, SHARES = 60, 81  # of the load factor, and of the ratings from -1 to 1


def needed_support(sim: Sim) -> tuple[np.ndarray, np.ndarray]:
    """Load factors (K,) and the least share of all ratings, in [-1, 1], at which no voltage is below its limit; 1 where
    even that is too little.

    Batteries share alike. Raises SolverError for a feeder with several load shapes.
    """
    if sim.params.shape_bus is not None:
        raise SolverError(
            f"task {sim.spec.id!r} has several load shapes; the support of one load factor is not defined."
        )
    first = jax.tree.map(lambda x: x[:1], all_starts(sim))
    (problem,) = build_feeder_problems(sim, first, episode_keys(0, 1))
    factor = float(sim.params.bank.load_rows[int(first.load_row[0]), FACTOR])
    p, q = (load[0] / factor / problem.network.base_mva for load in (problem.load_p_mw, problem.load_q_mvar))
    store = problem.storage
    assert store is not None
    placed = np.zeros(p.shape)
    np.add.at(placed, store.node, store.power_mw / problem.network.base_mva)
    levels, shares = np.linspace(0.0, 1.2, LEVELS), np.linspace(-1.0, 1.0, SHARES)
    least = np.ones(LEVELS)
    for k, level in enumerate(levels):
        flow = solve_steps(problem.network, level * p - shares[:, None] * placed, np.tile(level * q, (SHARES, 1)))
        lowest = np.abs(flow.v).min(axis=1)
        if lowest[-1] > problem.v_min:
            # the lowest voltage rises with the share
            least[k] = np.interp(problem.v_min, lowest, shares)
    return levels, least
