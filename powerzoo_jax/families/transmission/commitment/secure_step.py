"""Coming step of many units within the limits of the system, whoever asks which of them to run, in the kernel.

Units that must run on and those that are requested run wherever they may. Units with the shortest minimum times are
started beyond that by a list, as far as load, reserve, ramps and line ratings ask for, and the load is shared at equal
incremental cost within the ratings. The causal planner of the operator ends in it, and so may a learner: a safety
filter in the sense of Wabersich and Zeilinger 2021, doi:10.1016/j.automatica.2021.109597, whose backup is the
operator's list.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import sequential_vmap
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.solver_mode import by_device
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.transmission.causal.dispatch import LOAD
from powerzoo_jax.families.transmission.commitment.problem import host_rules, running_cost
from powerzoo_jax.families.transmission.plan.dispatch import LEAST, MOST, host_system
from powerzoo_jax.families.transmission.plan.economic import economic
from powerzoo_jax.families.transmission.plan.policies import FULL_MW, LEAST_LEVEL_MW
from powerzoo_jax.families.transmission.units import reserve_share
from powerzoo_jax.families.transmission.units_types import TransmissionParams
from powerzoo_jax.opf.allocate import SHARPNESS, allocate_by_weight, score_weights
from powerzoo_jax.opf.commit import CommitmentRules, CommitmentState, legal_commitment, output_window
from powerzoo_jax.opf.dispatch import economic_dispatch
from powerzoo_jax.oracle.registry import SafetyFilter

MOST_STARTS = 20  # units started beyond the list against an overload
# of the least level of scores that gives the economic dispatch, levels within whose reach it is sought anew: on val,
# in merit order, with 4 and 1 sweeps and beside the plans of then, 0.52 was gained without them and 0.66 with them
NEST = (0.6, 0.8, 1.0, 1.3)
RAMP_MARGIN = 0.02  # [-] of the load, that the outputs reachable in the coming step must exceed it by
KEPT_MW = 1e-2  # overload that counts as none


@struct.dataclass(kw_only=True)
class SecureModel:
    """Constants of a step within limits.

    params:    TransmissionParams of the task, without its series
    order:     (G,) int  units that may soonest stop again first, those by average cost at full load
    slow:      (G,) bool  units with minimum times beyond the shortest
    find:      (L, G)  [-]  outputs that explain flows by as little change as can be
    """

    params: TransmissionParams
    order: Array
    slow: Array
    find: Array


@dataclass(frozen=True)
class UnitColumns:
    """Columns of an observation that show load, line use and who runs; static."""

    load: int
    flow: slice
    committed: slice


class FilterMemory(NamedTuple):
    """Memory of the filter. t: ();  load_mw: () and units: CommitmentState (G,) of the step before; zeros at first"""

    t: Array
    load_mw: Array
    units: CommitmentState


def secure_model(sim: Sim) -> tuple[SecureModel, UnitColumns]:
    """Constants of a task with one operator who sees the load and shares it by scores; raises ValueError for others."""
    names = sim.env.fields.names
    if not sim.env.single_agent or sim.env.schedule or LOAD not in names:
        raise ValueError(f"{sim.spec.id!r} is no task of one operator who sees {LOAD!r} and shares the load by scores.")
    params, system, rules = sim.params, host_system(sim), host_rules(sim.params.rules)
    slow = rules["available"] & (rules["min_up"] > rules["min_up"][rules["available"]].min())
    model = SecureModel(
        params=params.replace(bank=(), starts=()),
        order=jnp.asarray(np.lexsort((average_cost(sim), rules["min_up"])), jnp.int32),
        slow=jnp.asarray(slow),
        find=jnp.asarray(np.linalg.pinv(system.of_unit).T, params.voll.dtype),
    )
    first_line, first_unit = names.index("line_flow_util_0"), names.index("commitment_0")
    columns = UnitColumns(
        load=names.index(LOAD),
        flow=slice(first_line, first_line + len(system.rate_mw)),
        committed=slice(first_unit, first_unit + sim.env.dims.unit),
    )
    return model, columns


def average_cost(sim: Sim) -> np.ndarray:
    """Average cost of each unit at full load (G,) [USD/MWh], no-load cost included."""
    system, idle = host_system(sim), host_rules(sim.params.rules)["no_load_usd_per_hour"]
    full = np.maximum(system.high_mw, 1e-3)
    average: np.ndarray = (running_cost(system.costs, full) + idle) / full
    return average


def units_at_first(rules: CommitmentRules) -> CommitmentState:
    """All units that are available run, and have for long."""
    steps = jnp.maximum(rules.min_up, rules.min_down)
    return CommitmentState(on=rules.available, steps=steps, p_mw=jnp.zeros_like(rules.p_min_mw))


def secure_filter(sim: Sim) -> tuple[FilterMemory, Partial, np.ndarray]:
    """Filter of the task of one operator: of an action the slow units that are to run count, the rest follows."""
    model, columns = secure_model(sim)
    blank = jax.tree.map(jnp.zeros_like, units_at_first(sim.params.rules))
    memory = FilterMemory(jnp.zeros((), jnp.int32), jnp.zeros((), model.find.dtype), blank)
    slow = np.asarray(model.slow)
    seen = np.concatenate([slow, np.zeros_like(slow)])[None]
    return memory, Partial(partial(_keep_secure, columns), model), seen


def _keep_secure(
    columns: UnitColumns, model: SecureModel, memory: FilterMemory, obs: Array, action: Array
) -> tuple[FilterMemory, Array]:
    params, first = model.params, memory.t == 0
    load_mw = params.peak_load_mw * obs[0, columns.load] + params.shunt_mw
    told = jax.tree.map(lambda a, b: jnp.where(first, a, b), units_at_first(params.rules), memory.units)
    before = jnp.where(first, load_mw, memory.load_mw)
    units = units_now(params, model.find, told, obs[0, columns.committed], obs[0, columns.flow], before, first=first)
    requested = model.slow & (action[0, : len(model.slow)] > 0)
    action, p = secure_action(model, units, requested, load_mw)
    return FilterMemory(memory.t + 1, load_mw, CommitmentState(on=units.on, steps=units.steps, p_mw=p)), action


def without_surplus(model: SecureModel, units: CommitmentState, requested: Array, load_mw: Array) -> Array:
    """The request (G,) bool without the last of the list, as long as the least outputs of who runs exceed the load."""
    rules = model.params.rules
    legal = unchecked(legal_commitment)(rules, units)
    must, may = ~legal[:, 0], legal[:, 1]
    low, _ = unchecked(output_window)(rules, units, must | (requested & may))
    last = model.order[::-1]
    free = jnp.where(requested & may & ~must, low, 0)[last]
    # as many as leave the others at or below the load
    dropped = jnp.cumsum(free) - free < jnp.sum(low) - load_mw
    return requested.at[last].set(requested[last] & ~(dropped & (free > 0)))


def secure_action(model: SecureModel, units: CommitmentState, requested: Array, load_mw: Array) -> tuple[Array, Array]:
    """Coming step as `operate_step`: kernel action (1, 2 G) and outputs (G,) [MW]."""
    on, score, p = operate_step(model, units, requested, load_mw)
    return jnp.concatenate([jnp.where(on, 1, -1).astype(score.dtype), score])[None], p


def units_now(
    params: TransmissionParams,
    find: Array,
    told: CommitmentState,
    committed: Array,
    line_use: Array,
    load_mw: Array,
    *,
    first: Array,
) -> CommitmentState:
    """State of the units before the coming step: who runs is seen, outputs are those planned, mended by the flows.

    find:       (L, G) as in `SecureModel`
    told:       state of the step before, with the outputs planned for it
    committed:  (G,) and line_use (L,) as observed
    load_mw:    () of the step that the flows belong to, shunts included
    """
    on = committed > 0.5
    rules, factors = params.rules, params.factors
    low, high = (jnp.where(rules.available, x, 0) for x in (rules.p_min_mw, rules.p_max_mw))
    running = rules.available.astype(load_mw.dtype)
    at_first = unchecked(economic_dispatch)(params.offers, load_mw, low, high, commitment=running).unit_power_mw
    planned = jnp.where(first, at_first, told.p_mw)
    flow = line_use * jnp.where(params.rate_mw > 0, params.rate_mw, params.peak_load_mw)
    expected = matmul(factors.of_unit, planned) - factors.of_load * (load_mw - params.shunt_mw) + factors.fixed
    p = jnp.where(on, jnp.clip(planned + matmul(flow - expected, find), low, high), 0)
    steps = jnp.where(first, told.steps, jnp.where(on == told.on, told.steps + 1, 1))
    return CommitmentState(on=on, steps=steps, p_mw=p)


def operate_step(
    model: SecureModel, units: CommitmentState, requested: Array, load_mw: Array
) -> tuple[Array, Array, Array]:
    """Coming step of the units: on (G,), scores (G,) in [-1, 1] and outputs (G,) [MW].

    requested:  (G,) bool  units that are to run whatever the list says, wherever they may

    Lanes side by side wait in every loop for the one that takes longest. A processor has nothing from that, and goes
    through them one after the other.
    """
    in_turn = sequential_vmap(_operated)
    stepped: tuple[Array, Array, Array] = by_device(in_turn, _operated, model, units, requested, load_mw)
    return stepped


def _operated(
    model: SecureModel, units: CommitmentState, requested: Array, load_mw: Array
) -> tuple[Array, Array, Array]:
    params, rules = model.params, model.params.rules
    legal = unchecked(legal_commitment)(rules, units)
    may = legal[:, 1]
    on = ~legal[:, 0] | (without_surplus(model, units, requested, load_mw) & may)
    on = _fill(model, rules, units, on, may, load_mw)
    first, listed = _share(params, units, on, load_mw), on

    def overloaded(loop: tuple[Any, ...]) -> Array:
        count, _, last, _, _ = loop
        return (count < MOST_STARTS) & (last.excess > KEPT_MW)

    def start_one(loop: tuple[Any, ...]) -> tuple[Any, ...]:
        count, on, last, best_on, best = loop
        low, _ = unchecked(output_window)(rules, units, on)
        _, high = unchecked(output_window)(rules, units, may)
        worst = jnp.argmax(jnp.where(params.rate_mw > 0, jnp.abs(last.flow) - params.rate_mw, -jnp.inf))
        push = jnp.sign(last.flow[worst]) * params.factors.of_unit[worst]
        room = last.p - low
        relief = (jnp.sum(push * room) / jnp.maximum(jnp.sum(room), 1e-6) - push) * high
        able = may & ~on & ~model.slow
        chosen = jnp.argmax(jnp.where(able, relief, -jnp.inf))
        wider = on.at[chosen].set(on[chosen] | able[chosen])
        found = _share(params, units, wider, load_mw)
        better = found.excess < best.excess
        kept = jax.tree.map(lambda a, b: jnp.where(better, a, b), (wider, found), (best_on, best))
        return jnp.where(jnp.any(able), count + 1, MOST_STARTS), wider, found, *kept

    none = jnp.zeros((), jnp.int32)
    _, _, _, on, shared = lax.while_loop(overloaded, start_one, (none, on, first, on, first))

    def spare(loop: tuple[Any, ...]) -> Array:
        left, _, _ = loop
        return jnp.any(left)

    def leave_one(loop: tuple[Any, ...]) -> tuple[Any, ...]:
        left, on, shared = loop
        chosen = jnp.argmax(left)
        fewer = on.at[chosen].set(False)
        found = _share(params, units, fewer, load_mw)
        kept = found.excess <= jnp.maximum(shared.excess, KEPT_MW)
        on, shared = jax.tree.map(lambda a, b: jnp.where(kept, a, b), (fewer, found), (on, shared))
        return left.at[chosen].set(False), on, shared

    # the search started whatever relieved the worst line of the moment: who is not needed in the end stays off
    _, on, shared = lax.while_loop(spare, leave_one, (on & ~listed, on, shared))
    return on, shared.score, shared.p


def _fill(
    model: SecureModel, rules: CommitmentRules, units: CommitmentState, on: Array, may: Array, load_mw: Array
) -> Array:
    """The units `on` (G,) and as many of the list as reserve and reach of the coming step ask for."""
    params, order = model.params, model.order
    _, reach = unchecked(output_window)(rules, units, may | on)
    need = (1 + reserve_share(params)) * (load_mw - params.shunt_mw) - jnp.sum(jnp.where(on, rules.p_max_mw, 0))
    short = (1 + RAMP_MARGIN) * load_mw - jnp.sum(jnp.where(on, reach, 0))
    spare = (may & ~on)[order]
    capacity, climb = (jnp.where(spare, x[order], 0) for x in (rules.p_max_mw, reach))
    added = spare & ((jnp.cumsum(capacity) - capacity < need) | (jnp.cumsum(climb) - climb < short))
    return on.at[order].set(on[order] | added)


class LoadSharing(NamedTuple):
    """Load shared by scores. score, p: (G,);  excess: () [MW] over all ratings;  flow: (L,) [MW]"""

    score: Array
    p: Array
    excess: Array
    flow: Array


def _share(params: TransmissionParams, units: CommitmentState, on: Array, load_mw: Array) -> LoadSharing:
    """Security-aware economic dispatch as nearly as scores allow."""
    low, high = unchecked(output_window)(params.rules, units, on)
    first, _ = economic(params, load_mw, low, high)
    levels = _least_level(first, low) * jnp.asarray(NEST, load_mw.dtype)
    least, most = (low[None] + jnp.minimum((high - low)[None], x * levels[:, None]) for x in (LEAST, MOST))
    outputs, cost = jax.vmap(partial(economic, params, load_mw))(least, most)
    wanted = outputs[jnp.argmin(cost)]
    level = _least_level(wanted, low)
    weight = jnp.where(wanted >= high - FULL_MW, MOST, jnp.clip((wanted - low) / level, LEAST, MOST))
    score = jnp.clip(2 * jnp.log(weight) / SHARPNESS - 1, -1, 1)
    p = unchecked(allocate_by_weight)(unchecked(score_weights)(0.5 * (score + 1)), low, high, load_mw).p_mw
    factors = params.factors
    served = jnp.minimum(load_mw, jnp.sum(p)) - params.shunt_mw
    flow = matmul(factors.of_unit, p) - factors.of_load * served + factors.fixed
    excess = jnp.where(params.rate_mw > 0, jnp.maximum(jnp.abs(flow) - params.rate_mw, 0), 0)
    return LoadSharing(score, p, jnp.sum(excess), flow)


def _least_level(p_mw: Array, low_mw: Array) -> Array:
    """Least level () [MW] of scores that lead to outputs (G,) [MW]."""
    return jnp.maximum(jnp.max(p_mw - low_mw) / MOST, LEAST_LEVEL_MW)


SECURITY = SafetyFilter(of=secure_filter)
