"""Whole episodes from chosen starts, of which the totals are kept and not the steps.

Beside money and costs, `tally` adds up the figures of each family: energy, carbon, departures, switching.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import Purpose, Step, purpose_key, struct
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.series import Draw

Tally = dict[str, Array]
"""name -> what one step adds, () each; the names say the unit"""


def tally(sim: Sim, state: Any, out: Step) -> Tally:
    """Contribution of a step to each figure of its episode, from the state before it; empty for families without any.

    A step whose power flow failed adds nothing: its flows are no flows.
    """
    added = family_of(sim).tally(state, out, sim.params, sim.spec.dt_hours)
    return {name: jnp.where(out.info.terminated, 0, value) for name, value in added.items()}


def site_energy(load_mw: Array, it_mw: Array, dt_hours: float) -> Tally:
    """Energy [MWh] of a data centre and of its servers alone in a step."""
    return {"site_mwh": jnp.sum(load_mw) * dt_hours, "it_mwh": jnp.sum(it_mw) * dt_hours}


Act = Callable[[Any, Array, Array], tuple[Any, Array]]
"""(carry, obs (A, O), key) -> (carry, action (A, U))

One that remembers may bring its carry before an episode, as the keyword MEMORY of a `jax.tree_util.Partial`.
"""
MEMORY = "memory"


def first_carry(act: Act, carry: Any, episodes: int | None = None) -> Any:
    """Carry of a policy before an episode: the one given, or where it is () the one that the policy brings.

    episodes:  how many run side by side, each with a row of the carry; None = one, without such an axis
    """
    if jax.tree.leaves(carry):
        return carry
    own = act.keywords.get(MEMORY, ()) if isinstance(act, Partial) else ()
    return own if episodes is None else jax.tree.map(lambda x: jnp.broadcast_to(x, (episodes, *jnp.shape(x))), own)


@struct.dataclass(kw_only=True)
class Totals:
    """Totals of an episode; a batch of episodes puts B in front of every shape.

    total:           ()      return: sum of the reward, averaged over agents
    cost:            (C,)    sum of each cost channel [unit of the channel]
    terms:           (A, K)  sum of each reward term before weighting
    length:          ()      int32  steps until the episode ended
    failed:          ()      bool   ended by termination rather than by the time limit
    pf_failures:     ()      int32  steps whose power flow did not converge
    v_min_pu:        ()      [pu]   lowest solved voltage; inf where the family reports none
    throughput_mwh:  ()      [MWh]  terminal throughput of all storage; 0 where the family has none
    consumer_usd:    ()      [USD]  what loads pay in a market; 0 where the family has none
    price_per_mwh:   ()      [USD/MWh]  sum over the steps of a market's mean price; 0 where the family has none
    tally:           () each        further figures of the family, see `envs.tally`
    """

    total: Array
    cost: Array
    terms: Array
    length: Array
    failed: Array
    pf_failures: Array
    v_min_pu: Array
    throughput_mwh: Array
    consumer_usd: Array
    price_per_mwh: Array
    tally: Tally


def run_episode(sim: Sim, act: Act, carry: Any, key: Array, drawn: Draw) -> Totals:
    """Play one episode from a chosen start; steps after its end do not count.

    key:  key of the episode, as `sim.init` would take it; the policy draws from its POLICY sub-stream
    """
    state, obs = sim.env.begin(key, drawn, sim.params)

    def advance(loop: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], Tally]:
        state, obs, carry, totals, alive = loop
        carry, action = act(carry, obs, key)
        out = sim.step(state, action)
        totals = _add(totals, out, alive, _storage_mw(sim, out.info) * sim.spec.dt_hours)
        found = tally(sim, state, out)
        counted = {name: jnp.where(alive, value, 0) for name, value in found.items()}
        alive = alive & ~(out.info.terminated | out.info.truncated)
        return (out.state, out.obs, carry, totals, alive), counted

    keys = jax.random.split(purpose_key(key, Purpose.POLICY), sim.spec.horizon)
    start = (state, obs, carry, _zero(sim, obs.dtype), jnp.ones((), bool))
    (*_, totals, _), counted = lax.scan(advance, start, keys)
    return replace(totals, tally={name: jnp.sum(values) for name, values in counted.items()})


@jax.jit
def _run_batch(sim: Sim, act: Partial, carry: Any, keys: Array, draws: Draw) -> Totals:
    return jax.vmap(lambda c, key, drawn: run_episode(sim, act, c, key, drawn))(carry, keys, draws)


def run_episodes(sim: Sim, act: Act, keys: Array, draws: Draw, carry: Any = ()) -> Totals:
    """Play a batch of episodes side by side, compiled.

    act:    a function, or a `jax.tree_util.Partial` whose arrays are then arguments of the program:
            policies that differ in weights alone share one compile
    keys:   (B,)  one key an episode
    draws:  Draw with leading axis B
    carry:  initial carry of the policy with leading axis B; () where it has none, or brings its own
    """
    carry = first_carry(act, carry, keys.shape[0])
    return _run_batch(sim, act if isinstance(act, Partial) else Partial(act), carry, keys, draws)


def _zero(sim: Sim, dtype: Any) -> Totals:
    dims = sim.env.dims
    count, number = jnp.zeros((), jnp.int32), jnp.zeros((), dtype)
    return Totals(
        total=number,
        cost=jnp.zeros(dims.cost, dtype),
        terms=jnp.zeros((dims.agent, dims.term), dtype),
        length=count,
        failed=jnp.zeros((), bool),
        pf_failures=count,
        v_min_pu=jnp.asarray(jnp.inf, dtype),
        throughput_mwh=number,
        consumer_usd=number,
        price_per_mwh=number,
        tally={},  # summed after the scan, which knows its names
    )


def _storage_mw(sim: Sim, info: Any) -> Array:
    """Terminal power of all storage, both directions, () [MW]; 0 where the family has none."""
    measure = getattr(sim.env, "storage_mw", None)
    return jnp.zeros_like(info.pf_residual) if measure is None else measure(info)


def _add(totals: Totals, out: Step, alive: Array, throughput_mwh: Array) -> Totals:
    info = out.info
    v_min = getattr(info, "v_min_pu", totals.v_min_pu)
    none = jnp.zeros_like(totals.total)
    return Totals(
        total=totals.total + jnp.where(alive, jnp.mean(out.reward), 0),
        cost=totals.cost + jnp.where(alive, out.cost, 0),
        terms=totals.terms + jnp.where(alive, info.terms, 0),
        length=totals.length + alive.astype(jnp.int32),
        failed=totals.failed | (alive & info.terminated),
        pf_failures=totals.pf_failures + (alive & (info.pf_status != 0)).astype(jnp.int32),
        v_min_pu=jnp.minimum(totals.v_min_pu, jnp.where(alive, v_min, jnp.inf)),
        throughput_mwh=totals.throughput_mwh + jnp.where(alive, throughput_mwh, 0),
        consumer_usd=totals.consumer_usd + jnp.where(alive, getattr(info, "consumer_cost_usd", none), 0),
        price_per_mwh=totals.price_per_mwh + jnp.where(alive, getattr(info, "mean_price", none), 0),
        tally=totals.tally,
    )
