"""Operation of a transmission grid as Grid2Op plays it: topology, protections that cascade, dispatch, game over."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT, anywhere
from powerzoo_jax.base.random import Purpose, purpose_key
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.solver_mode import AUTO, by_mode
from powerzoo_jax.base.spaces import Box, MultiDiscrete
from powerzoo_jax.base.tree import take, where_done
from powerzoo_jax.envs.core import GridEnv
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.operation import opponent, topology
from powerzoo_jax.families.operation.fields import observe_fields, seen_of
from powerzoo_jax.families.operation.redispatch import dispatch, initial
from powerzoo_jax.families.operation.rewards import terms
from powerzoo_jax.families.operation.types import (
    DATA,
    DIVERGENCE,
    ISLAND,
    REDISPATCH,
    RUNNING,
    Attack,
    GridAction,
    LineFlows,
    OperationInfo,
    OperationParams,
    OperationState,
    Row,
)
from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.batching import batched_shell, in_groups
from powerzoo_jax.powerflow.busbars.network import TopologyNetwork, node_injection
from powerzoo_jax.powerflow.busbars.solve import solve_topology

GROUP, MOST_GROUPS = 128, 16  # lanes that later rounds of a cascade are solved in together on a CPU, and how many such
MOST_ROUNDS = 8  # of a cascade where their number is fixed; one that is not over then is a divergence


class StepReport(NamedTuple):
    """Findings of a step beside the state: flags (), `tripped` (L,) int32 round of the protection or -1, attacked (L,)
    bool, and status () and residual () [pu] of the last power flow."""

    illegal: Array
    ambiguous: Array
    refused_dispatch: Array
    tripped: Array
    attacked: Array
    status: Array
    residual: Array


class Cascade(NamedTuple):
    """State of a cascade: `going` () bool where another flow is due, in `round` () int32.

    counts: (L,) int32 steps above the limit of the protection, this one included where `counted` (L,) bool
    """

    busbar: Array
    counts: Array
    counted: Array
    tripped: Array
    flow: LineFlows
    status: Array
    residual: Array
    going: Array
    round: Array


def row_at(params: OperationParams, episode: Array, t: Array) -> Row:
    """Row that step t () of an episode () meets; past its end the last one."""
    bank, at = params.bank, params.first_row[episode] + jnp.minimum(t, params.n_step[episode])
    v_set = bank.v_set[0] if bank.v_set.shape[0] == 1 else bank.v_set[at]
    rest = (getattr(bank, name) for name in Row._fields[4:])
    return Row(bank.p_unit[at], bank.p_load[at], bank.q_load[at], v_set, *(None if x is None else x[at] for x in rest))


def first_state(key: Array, episode: Array, params: OperationParams) -> OperationState:
    """State of an episode () before its row 0."""
    n_line, n_sub = params.limit_a.shape[0], params.kv.shape[0]
    one, steps = jnp.ones(params.sub.shape, jnp.int8), jnp.zeros(n_line, jnp.int32)
    bank = params.bank
    p_unit, p_load, q_load = (jnp.zeros(x.shape[1], FLOAT) for x in (bank.p_unit, bank.p_load, bank.q_load))
    return OperationState(
        t=jnp.zeros((), jnp.int32),
        key=key,
        busbar=one,
        last=one,
        cooldown_line=steps,
        cooldown_sub=jnp.zeros(n_sub, jnp.int32),
        overflow=steps,
        engaged=steps,
        p_unit=p_unit,
        p_load=p_load,
        q_load=q_load,
        dispatch=initial(params),
        flow=no_flow(n_line, p_unit),
        episode=episode,
        end=jnp.zeros((), jnp.int32),
        opponent=None if params.opponent is None else opponent.initial(purpose_key(key, Purpose.ATTACKS), params),
    )


def no_flow(n_line: int, p_unit: Array) -> LineFlows:
    """Result of no power flow: zeros, shaped by a count of lines and p_unit (G,) [MW]."""
    none = jnp.zeros(n_line, FLOAT)
    return LineFlows(
        on=jnp.zeros(n_line, bool), p_or=none, q_or=none, v_or=none, a_or=none, gen_p=jnp.zeros_like(p_unit)
    )


def advance(
    state: OperationState,
    action: GridAction,
    row: Row,
    params: OperationParams,
    attack: Attack | None = None,
    *,
    counting: bool = True,
    opened: Array | None = None,
    network: TopologyNetwork | None = None,
) -> tuple[OperationState, StepReport]:
    """One step of the rules on a row: legality, topology, dispatch, outages, flow with protections, counters.

    counting:  False at reset, where everything is legal, nothing is counted and only hard limits open lines
    opened:    (L,) bool, lines that open before the action, which still counts them as in service
    network:   of the power flow; None takes `factors`

    After a game over the flows are zeros and all else stays; an episode that is over stays as it is.
    """
    n_line = params.limit_a.shape[0]
    lines, subs = topology.touched(action, state, params)
    ambiguous = topology.ambiguous(action, params)
    illegal = ~ambiguous & ~topology.allowed(action, lines, subs, state, params) & counting
    dropped = ambiguous | illegal
    action = where_done(dropped, topology.no_orders(action), action)
    lines, subs = lines & ~dropped, subs & ~dropped
    before = state.busbar
    if opened is not None:
        before = topology.set_lines(-opened.astype(jnp.int8), before, state.last)
    moved = topology.apply_topology(action, before, state.last)
    given = dispatch(state.dispatch, action, row.p_unit, row.p_load, moved, params)
    out, cooldown = jnp.zeros(n_line, bool) if row.out is None else row.out, state.cooldown_line
    attacked = jnp.zeros(n_line, bool) if attack is None else attack.lines
    if attack is not None:
        cooldown = jnp.where(attacked, jnp.maximum(cooldown, attack.duration), cooldown)
    busbar = topology.set_lines(-(out | attacked).astype(jnp.int8), moved, state.last)
    lost = _lost(busbar, given.state.storage, n_line)
    end = jnp.where(given.infeasible, REDISPATCH, jnp.where(lost, ISLAND, RUNNING))
    end = jnp.where(state.end == RUNNING, end, state.end)
    going = end == RUNNING
    found = _cascade(state, busbar, given, row, params, going, counting, network or params.factors)
    broken = jnp.where(found.status == Status.ISLANDED, ISLAND, DIVERGENCE)
    end = jnp.where(going & ((found.status != Status.CONVERGED) | found.going), broken, end).astype(jnp.int32)
    new = dataclasses.replace(
        state,
        busbar=found.busbar,
        last=jnp.where(found.busbar > 0, found.busbar, state.last),
        p_unit=given.p_unit,
        p_load=row.p_load,
        q_load=row.q_load,
        dispatch=given.state,
        flow=found.flow,
        **_counters(state, cooldown, found, row, lines, subs, params, counting),
    )
    stopped = dataclasses.replace(state, flow=no_flow(n_line, given.p_unit))
    new = dataclasses.replace(where_done(end == RUNNING, new, stopped), end=end)
    refused = given.refused | given.infeasible
    return new, StepReport(illegal, ambiguous, refused, found.tripped, attacked, found.status, found.residual)


def _lost(busbar: Array, storage_mw: Array, n_line: int) -> Array:
    """Whether a unit, a load or a storage that charges or discharges is out, () bool."""
    others = busbar[2 * n_line :]
    before = others.shape[0] - storage_mw.shape[0]
    return jnp.any(others[:before] == 0) | jnp.any((others[before:] == 0) & (storage_mw != 0))


def _counters(
    state: OperationState,
    cooldown: Array,
    found: Cascade,
    row: Row,
    lines: Array,
    subs: Array,
    params: OperationParams,
    counting: bool,
) -> dict[str, Array]:
    """Counters after a step, by name; zeros at reset."""
    names = ("cooldown_line", "cooldown_sub", "overflow", "engaged")
    if not counting:
        return {name: jnp.zeros_like(getattr(state, name)) for name in names}
    rules, limit = params.rules, params.limit_a
    cooldown = jnp.where(found.tripped >= 0, rules.reconnection, jnp.maximum(cooldown - 1, 0))
    if row.to_next is not None and row.left is not None:
        cooldown = jnp.maximum(cooldown, jnp.where(row.to_next == 0, row.left, 0))
    if row.hazard_left is not None:
        cooldown = jnp.maximum(cooldown, row.hazard_left)
    cooldown = jnp.where(lines, jnp.maximum(cooldown, rules.cooldown_line), cooldown)
    at_sub = jnp.where(subs, rules.cooldown_sub, jnp.maximum(state.cooldown_sub - 1, 0))
    over, soft = found.flow.a_or > limit, found.flow.a_or > rules.soft * limit
    overflow, engaged = jnp.where(over, state.overflow + 1, 0), jnp.where(soft, state.engaged + 1, 0)
    return dict(zip(names, (cooldown, at_sub, overflow, engaged), strict=True))


def injections(
    p_unit: Array,
    p_load: Array,
    q_load: Array,
    storage_mw: Array,
    busbar: Array,
    params: OperationParams,
    network: TopologyNetwork,
) -> tuple[Array, Array]:
    """Injections (2S,), (2S,) [pu] at nodes of units and storages [MW] and loads [MW, Mvar] at busbars (E,)."""
    base, dtype, n_line = params.grid.base_mva, network.v_set.dtype, params.limit_a.shape[0]

    def of_elements(units: Array, loads: Array, stores: Array, fixed: Array) -> Array:
        """Injections of the network's elements (.,) [pu] by consumption of all but units."""
        rest = jnp.zeros(network.counts.shunts, dtype)
        parts = (units, *(-x for x in (loads, fixed, stores)))
        return jnp.concatenate([jnp.zeros(2 * n_line, dtype), *(x.astype(dtype) / base for x in parts), rest])

    p = of_elements(p_unit, p_load, storage_mw, params.p_fixed)
    q = of_elements(jnp.zeros_like(p_unit), q_load, params.q_storage, params.q_fixed)
    found: tuple[Array, Array] = unchecked(node_injection)(network, topology.on_network(busbar, 1, params), p, q)
    return found


def _cascade(
    state: OperationState,
    busbar: Array,
    given: Any,
    row: Row,
    params: OperationParams,
    going: Array,
    counting: bool,
    network: TopologyNetwork,
) -> Cascade:
    """Flows until the protections open no more lines; a line counts once over all rounds."""
    n_line, dtype = params.limit_a.shape[0], network.v_set.dtype
    powers = given.p_unit, row.p_load, row.q_load, given.state.storage
    # lines carry no injection, so that what stands at a node stays as it is over all rounds
    p, q = injections(*powers, busbar, params, network)
    no: Any = None  # what a flow does not read is not carried to the lanes
    lean = dataclasses.replace(params, bank=no, table=no, reach=no, factors=network, foreseen=no, opponent=no)
    inputs = p, q, row.v_set.astype(dtype), given.p_unit

    def until_done(lean: OperationParams, inputs: Any, c: Cascade) -> Cascade:
        c = _round(lean, inputs, c, counting)
        leaves, tree = jax.tree.flatten((inputs, c))
        found: Cascade = jax.tree.unflatten(tree, _later_rounds(tree, counting)(lean, *leaves))[1]
        return found

    def fixed(lean: OperationParams, inputs: Any, c: Cascade) -> Cascade:
        def due(_: Any, c: Cascade) -> Cascade:
            return where_done(c.going, _round(lean, inputs, c, counting), c)  # type: ignore[no-any-return]

        c = due(0, c)
        for rounds in (1, 1, MOST_ROUNDS - 3):
            c = lax.cond(anywhere(c.going), lambda c, n=rounds: lax.fori_loop(0, n, due, c), lambda c: c, c)
        return c

    first = Cascade(
        busbar=busbar,
        counts=state.engaged,
        counted=jnp.zeros(n_line, bool),
        tripped=jnp.full(n_line, -1, jnp.int32),
        flow=no_flow(n_line, given.p_unit),
        status=jnp.asarray(int(Status.BAD_INPUT), jnp.int32),
        residual=jnp.zeros((), dtype),
        going=going,
        round=jnp.zeros((), jnp.int32),
    )
    found: Cascade = by_mode(AUTO, until_done, fixed, lean, inputs, first)
    return found


def _round(params: OperationParams, inputs: Any, c: Cascade, counting: bool) -> Cascade:
    """Flow of a lane that is going, and the lines that its protections open then.

    inputs:  injections p, q (2S,) of the nodes and set-points (S,) [pu], set-points (G,) [MW] of the units
    """
    p, q, v_set, p_unit = inputs
    rules, limit = params.rules, params.limit_a
    # nothing stands anywhere in lanes that are through, which the solver refuses at once
    where = jnp.where(c.going, topology.on_network(c.busbar, 1, params), 0)
    found = unchecked(solve_topology)(params.factors, p, q, where, v_set, start="dc")
    flow = _flow_of(found, p, where, p_unit, found.status == Status.CONVERGED, params, params.factors)
    counts, counted = c.counts, c.counted
    if counting:
        hot = (flow.a_or > rules.soft * limit) & ~counted
        counts, counted = counts + hot.astype(jnp.int32), counted | hot
    opened = flow.on & ((flow.a_or > rules.hard * limit) | (counts > rules.allowed_steps)) & rules.protected
    return Cascade(
        busbar=topology.set_lines(-opened.astype(jnp.int8), c.busbar, c.busbar),
        counts=counts,
        counted=counted,
        tripped=jnp.where(opened, c.round, c.tripped),
        flow=flow,
        status=jnp.where(c.going, found.status, c.status),
        residual=found.residual,
        going=jnp.any(opened),
        round=c.round + 1,
    )


@functools.lru_cache(maxsize=16)
def _later_rounds(tree: Any, counting: bool) -> Any:
    """Rounds of lanes that are still going, a few at a time: (params, *leaves of inputs and cascade) -> all leaves."""

    def core(params: OperationParams, *leaves: Array) -> tuple[Array, ...]:
        inputs, c = jax.tree.unflatten(tree, leaves)
        lanes = c.going.shape[0]

        def until_done(params: OperationParams, inputs: Any, c: Cascade) -> Cascade:
            def another(c: Cascade) -> Cascade:
                return _round(params, inputs, c, counting)

            return lax.while_loop(lambda c: c.going, another, c)

        each = jax.vmap(until_done, in_axes=(None, 0, 0))
        c = in_groups(c.going, max(GROUP, lanes // MOST_GROUPS), each, params, inputs, c)
        return tuple(jax.tree.leaves((inputs, c)))

    return batched_shell(core, wide=False)


def _flow_of(
    found: Any, p: Array, where: Array, p_unit: Array, solved: Array, params: OperationParams, network: TopologyNetwork
) -> LineFlows:
    """Flows by line and unit in Grid2Op's units and float type; zeros where there is no solution."""
    n_line, n_sub = params.limit_a.shape[0], network.n_bus
    on = jnp.all(topology.ends_of(where, n_line) > 0, axis=0) & solved
    at = params.sub[:n_line] + jnp.where(where[:n_line] == 2, n_sub, 0)
    v = jnp.where(on, found.v_pu[at], 1)
    base = params.grid.base_mva
    # the slack gives what is missing
    slack = jnp.argmax(network.refers)
    node = network.slack + jnp.where(where[2 * n_line + slack] == 2, n_sub, 0)
    missing = jnp.where(jnp.arange(p_unit.shape[0]) == slack, (found.p_slack - p[node]) * base, 0)
    numbers = {
        "p_or": found.p_from * base,
        "q_or": found.q_from * base,
        "v_or": v * params.kv[params.sub[:n_line]],
        "a_or": jnp.hypot(found.p_from, found.q_from) / v * params.amps,
    }
    lines = {name: jnp.where(on, x, 0).astype(FLOAT) for name, x in numbers.items()}
    return LineFlows(on=on, gen_p=jnp.where(solved, p_unit + missing.astype(FLOAT), 0), **lines)


class Met(NamedTuple):
    """Circumstances of a step: action, row and attack; then the state after the attack of an opponent."""

    action: GridAction
    row: Row
    attack: Attack | None
    opponent: Any


@dataclass(frozen=True)
class OperationEnv(GridEnv):
    """A transmission grid under one operator, by the rules of Grid2Op.

    Observation: the blocks of `fields`, named after the attributes of Grid2Op's observation.
    Action (1, 1): a row of the table of actions; `info.legal` (1, M) has those that are legal, others do nothing.
    Reward terms: TERMS, the rewards of Grid2Op. Cost channels: thermal_overload [MVA] above the limits of lines after
    the protection, and unserved_energy [MWh], of a blackout the loads of this and all later steps. The episode ends
    with its data, and by a busbar without path to the slack, no solution, or a dispatch that units cannot follow.

    Example:
        sim = powerzoo_jax.from_grid2op(powerzoo_jax.families.operation.write_world("five"))
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((1, 1), int))
    """

    ends_apart: ClassVar[bool] = True

    def spaces(self, params: OperationParams) -> tuple[Box, Any]:
        """Bounds of the observation, and the number of actions, agent axis in front."""
        return super().spaces(params)[0], MultiDiscrete(np.full((1, 1), self.dims.choice, np.int32))

    def soc_range(self, params: OperationParams) -> tuple[Array, Array]:
        """Nothing is drawn: storages start as the rules have it."""
        none = jnp.zeros(0, FLOAT)
        return none, none

    def start(self, key: Array, drawn: Draw, params: OperationParams) -> tuple[OperationState, Array]:
        """Row 0 of a given episode, whose number is drawn as `load_row`: nothing counts yet."""
        state = first_state(key, drawn.load_row, params)
        row = row_at(params, state.episode, state.t)
        state, _ = advance(state, take(params.table, 0), row, params, counting=False)
        return state, self._fields(state, params)

    def decode(self, action: Array, params: OperationParams) -> GridAction:
        """Row (1, 1) of the table -> its orders; a number that no row has does nothing."""
        row = action.reshape(())
        return take(params.table, jnp.where((row >= 0) & (row < self.dims.choice), row, 0))  # type: ignore[no-any-return]

    def limit(self, state: OperationState, command: GridAction, params: OperationParams) -> tuple[None, Met]:
        """The row that the step meets, and the attack of an opponent."""
        attack, after = None, None
        if params.opponent is not None:
            key = jax.random.fold_in(purpose_key(state.key, Purpose.ATTACKS), state.t + 1)
            after, attack = opponent.attack(state.opponent, state, params, key)
        return None, Met(command, row_at(params, state.episode, state.t + 1), attack, after)

    def dispatch(self, state: OperationState, delivery: Met, params: OperationParams) -> tuple[OperationState, Met]:
        """State and orders; the set-points of units follow in `advance`."""
        return state, delivery

    def flow(self, injection: tuple[OperationState, Met], params: OperationParams) -> tuple[OperationState, StepReport]:
        """The step of the rules, cascade included."""
        state, met = injection
        return advance(state, met.action, met.row, params, met.attack)

    def account(
        self, state: OperationState, devices: None, delivery: Met, flow: Any, params: OperationParams
    ) -> tuple[OperationState, Array, Array, OperationInfo]:
        """Rewards, cost channels, clock and flags of the executed step."""
        new, report = flow
        t, running = state.t + 1, new.end == RUNNING
        end = jnp.where(running & (t >= params.n_step[state.episode]), DATA, new.end).astype(jnp.int32)
        new = dataclasses.replace(new, t=t, end=end, opponent=delivery.opponent)
        failed, refused = ~running & (end != DATA), report.illegal | report.ambiguous | report.refused_dispatch
        found = jnp.where(state.end == RUNNING, terms(new, refused, params), 0)
        info = OperationInfo(
            terminated=failed,
            truncated=end == DATA,
            pf_status=report.status,
            pf_residual=report.residual,
            legal=topology.legal(new, params)[None],
            terms=found[None],
            rho=new.flow.a_or / params.limit_a,
            line_status=new.flow.on,
            busbar=new.busbar,
            tripped=report.tripped,
            attacked=report.attacked,
            illegal=report.illegal,
            ambiguous=report.ambiguous,
            refused_dispatch=report.refused_dispatch,
            end=end,
        )
        cost = jnp.stack([self._overload(new, params), self._unserved(state, failed, params)])
        cost = jnp.where(state.end == RUNNING, cost, 0)
        return new, self.weighted(info.terms), cost, info

    def _overload(self, state: OperationState, params: OperationParams) -> Array:
        """Apparent power at nominal voltage above the limits of lines, () [MVA]."""
        kv = params.kv[params.sub[: params.limit_a.shape[0]]]
        excess = jnp.maximum(state.flow.a_or - params.limit_a, 0)
        return jnp.sum((np.sqrt(3) / 1000 * kv).astype(FLOAT) * excess)

    def _unserved(self, state: OperationState, failed: Array, params: OperationParams) -> Array:
        """Load of this and all later steps where a step failed, () [MWh]."""
        at = params.first_row[state.episode] + jnp.minimum(state.t + 1, params.n_step[state.episode])
        return jnp.where(failed, params.bank.load_left[at] * self.dt_hours, 0).astype(FLOAT)

    def _fields(self, state: OperationState, params: OperationParams) -> Array:
        """The observation at `state`, (1, O); zeros after a game over."""
        obs = observe_fields(self.fields, seen_of(state, params), params)
        return jnp.where((state.end == RUNNING) | (state.end == DATA), obs, 0)[None]
