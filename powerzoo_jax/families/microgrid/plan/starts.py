"""Job starts of a data-centre microgrid by what is observed: the operator's rule for jobs without the simulator.

Jobs start while the load that they bring fits below sun, diesel set and a reserve from the battery; a job that can
hardly wait starts in any case. A learner of cooling, battery and diesel set can leave jobs to it: they start whole, and
a share of the free GPUs that starts no further job has no slope.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.devices.datacenter import URGENCY_SPAN
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.microgrid.env import ACTIONS, COP_RANGE, FIELDS
from powerzoo_jax.oracle.registry import ColumnRule

STARTS = tuple(i for i, (name, _, _) in enumerate(ACTIONS) if name in ("train", "finetune"))
RESERVE_MW = 0.05  # of the battery that new jobs may use, as in the rule that reads the state
URGENT = 1.5  # slack of the most urgent job over its duration, below which all that fits starts
FIELD = {name: i for i, name in enumerate(FIELDS.names)}


def load_per_it(aux_share: Array, air_share: Array, cop: Array) -> Array:
    """Load of a megawatt of servers in the long run, () [-]: with auxiliaries and the cooling that follows it."""
    return 1 + aux_share + air_share / cop


def share_that_fits(room_mw: Array, mw_per_gpu: Array, free: Array, urgent: Array) -> Array:
    """Share of the free GPUs whose power fits, () in [0, 1]; all of them when a job cannot wait."""
    fits = jnp.clip(room_mw / jnp.maximum(mw_per_gpu * free, TINY), 0, 1)
    return jnp.where(urgent, jnp.ones_like(fits), fits)


class StartFacts(NamedTuple):
    """Ratings that the rule knows, () each: GPUs, load of the servers without jobs and what a GPU adds [MW], shares of
    auxiliaries and of heat in the air, rated COP of the chiller, sun and diesel set [MW].
    """

    n_gpus: Array
    base_mw: Array
    mw_per_gpu: Array
    aux_share: Array
    air_share: Array
    cop: Array
    sun_mw: Array
    diesel_mw: Array


def start_rule(sim: Sim) -> Partial:
    """Rule of a microgrid: obs (1, O) -> action (1, 5) in [-1, 1], of which the shares of GPUs for new jobs count."""
    site, params = sim.params.site, sim.params
    idle_mw, active_mw = site.idle_w[0] / 1e6, site.active_w[0] / 1e6
    facts = StartFacts(
        n_gpus=site.n_gpus[0],
        base_mw=site.base_mw[0] + site.n_gpus[0] * idle_mw,
        mw_per_gpu=active_mw - idle_mw,
        aux_share=site.aux_share[0],
        air_share=site.air_share[0],
        cop=site.cop[0],
        sun_mw=params.pv.capacity_mw[0],
        diesel_mw=params.diesel.p_max_mw[0],
    )
    return Partial(_start, facts)


def _start(facts: StartFacts, obs: Array) -> Array:
    seen = {name: obs[0, i] for name, i in FIELD.items()}
    cop = facts.cop * (COP_RANGE[0] + COP_RANGE[1] * seen["cop_ratio"])
    per_it = load_per_it(facts.aux_share, facts.air_share, cop)
    load_mw = (facts.base_mw + facts.n_gpus * facts.mw_per_gpu * seen["gpu_util"]) * per_it
    room_mw = facts.sun_mw * seen["solar_cf"] + facts.diesel_mw + RESERVE_MW - load_mw
    free = jnp.maximum(facts.n_gpus * (1 - seen["gpu_util"]), 1)
    share = share_that_fits(room_mw, per_it * facts.mw_per_gpu, free, seen["queue_urgency"] < URGENT / URGENCY_SPAN)
    return jnp.broadcast_to(2 * share - 1, (1, len(ACTIONS)))


JOB_STARTS = ColumnRule(columns=STARTS, of=start_rule)
