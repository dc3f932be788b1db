"""Traced episodes: measured in one compiled program, then named on the host."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act, first_carry
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.envs.surface import first_day
from powerzoo_jax.envs.trace.names import columns_of, networks_of, store_limits
from powerzoo_jax.envs.trace.readings import TracedSteps, read_step
from powerzoo_jax.envs.trace.types import Trace, TraceTable


def build_trace(sim: Sim, traced: TracedSteps, *, policy: str = "", episode: int = 0, day: str = "") -> Trace:
    """Names, ids and units for the measurements of one lane; policy, episode and day are labels, see `Trace`.

    Raises ValueError for a batch of lanes.
    """
    if np.ndim(traced.steps.reward) != 2:
        raise ValueError(f"expected rewards (T, A) of one lane, got {np.shape(traced.steps.reward)}. Pick one lane.")
    networks = networks_of(sim)
    count = len(traced.steps.reward)
    rows = {name: np.asarray(value).reshape(count, -1) for name, value in traced.readings.items()}
    tables: dict[str, TraceTable] = {}
    for name, values in rows.items():
        prefix, _, short = name.rpartition(".")
        if short == "branch_loading_mva":
            rate = networks[prefix].rate_mva
            name = f"{prefix}.branch_loading_percent" if prefix else "branch_loading_percent"
            values = 100 * values / np.where(rate > 0, rate, np.nan)
            short = "branch_loading_percent"
        ids, units = columns_of(sim, short, values.shape[1], networks.get(prefix), traced.steps.info)
        tables[name] = TraceTable(values, ids, units)
    spec = sim.spec
    soc_min, soc_max = store_limits(sim) if "soc" in tables else ((), ())
    return Trace(
        task=spec.id,
        version=spec.version,
        family=spec.family,
        split=spec.split,
        policy=policy,
        episode=episode,
        dt_hours=spec.dt_hours,
        agents=tuple(spec.agents),
        budgets=tuple(spec.cost_budget),
        money=set(spec.term_weights) == {1.0},
        tables=tables,
        networks=networks,
        day=day,
        soc_min=soc_min,
        soc_max=soc_max,
    )


@jax.jit
def run_traced(sim: Sim, act: Partial, carry: Any, key: Array, drawn: Draw) -> TracedSteps:
    """Steps and readings of one episode from a chosen start, (T, ...) each, without the states."""
    state, obs = sim.env.begin(key, drawn, sim.params)

    def advance(loop: tuple[Any, Any, Any], key: Array) -> tuple[tuple[Any, Any, Any], TracedSteps]:
        state, obs, carry = loop
        carry, action = act(carry, obs, key)
        out = sim.step(state, action)
        # the states of a week of queues are large, and no table shows them
        told = TracedSteps(out._replace(state=None), read_step(sim, state, action, out))
        return (out.state, out.obs, carry), told

    keys = jax.random.split(purpose_key(key, Purpose.POLICY), sim.spec.horizon)
    traced: TracedSteps = lax.scan(advance, (state, obs, carry), keys)[1]
    return traced


def trace_episode(
    sim: Sim, act: Act, key: Array, drawn: Draw, carry: Any = (), *, policy: str = "", episode: int = 0
) -> Trace:
    """Trace of one whole episode from a chosen start; steps behind its end are left out.

    act:             (carry, obs (A, O), PRNG key) -> (carry, action (A, U) in [-1, 1])
    key:             () PRNG key of the episode
    drawn:           which episode, as `tasks.score.all_starts` lists them
    carry:           initial carry of the policy; () where it has none, or brings its own
    policy, episode: labels of the trace

    Returns tables (T, n) of the steps until the end, with ids and units.

    Example:
        from powerzoo_jax.base.tree import take
        from powerzoo_jax.oracle import idle_act
        from powerzoo_jax.tasks.score import all_starts
        trace = trace_episode(sim, idle_act(sim), key, take(all_starts(sim), 0))
        spent = dict(zip(trace["cost"].ids, trace["cost"].values.sum(axis=0)))
    """
    carry = first_carry(act, carry)
    traced = run_traced(sim, act if isinstance(act, Partial) else Partial(act), carry, key, drawn)
    info = traced.steps.info
    over = np.flatnonzero(np.asarray(info.terminated | info.truncated))
    last = int(over[0]) + 1 if len(over) else sim.spec.horizon
    day = first_day(sim, int(drawn.load_row))
    return build_trace(sim, jax.tree.map(lambda x: x[:last], traced), policy=policy, episode=episode, day=day)
