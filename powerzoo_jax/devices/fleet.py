"""Fleets of several kinds: placement of the units on buses, the map from action entries to units, and their step.

What differs between kinds stands in their registrations (`registry.KINDS`); here are the loops over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import listing, unknown
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import FINITE, WHOLE, Count, as_numbers, axes, checks_ranges
from powerzoo_jax.base.struct import brief
from powerzoo_jax.cases import Case
from powerzoo_jax.devices import thermal
from powerzoo_jax.devices.facility import QueueSizes
from powerzoo_jax.devices.protocol import Delivered, Delivery, EpisodeStart, Exogenous
from powerzoo_jax.devices.registry import KINDS


def storing_kinds() -> tuple[str, ...]:
    """Names of the kinds that have a state of charge, in the order of the registry."""
    return tuple(kind.name for kind in KINDS.values() if kind.stores)


@checks_ranges("placement")
def placement(case: Case, bus_ids: Annotated[Sequence[int], axes("...", kind=WHOLE)], dtype: Any) -> Array:
    """Incidence of devices and buses, (G, N) of 0 and 1.

    bus_ids:  external bus id of every device
    Raises ValueError naming an id that the case does not have.
    """
    missing = [b for b in bus_ids if int(b) not in case.bus_index]
    if missing:
        raise ValueError(
            f"{case.name} has no bus {listing(missing)}. Valid ids: {listing(case.bus.id)}. "
            "Tasks place devices by a keyword such as battery_bus_ids=(3,)."
        )
    table = np.zeros((len(bus_ids), case.n_bus))
    table[np.arange(len(bus_ids)), case.positions(np.asarray(bus_ids, np.int64))] = 1.0
    return jnp.asarray(table, dtype)


@checks_ranges("bus_injection")
def bus_injection(place: Annotated[Array, FINITE, axes("G", "N")], p: Annotated[Array, FINITE, axes("G")]) -> Array:
    """Sum device power at each bus: place (G, N) of 0 and 1, (G,) [MW] -> (N,) [MW].

    Written as a masked sum: it fuses with what follows, where a scatter over a batch would not.
    """
    return jnp.sum(place * p[:, None], axis=0)


@checks_ranges("at_devices")
def at_devices(place: Annotated[Array, FINITE, axes("G", "N")], x: Annotated[Array, FINITE, axes("N")]) -> Array:
    """Read a bus quantity at each device: place (G, N) of 0 and 1, (N,) -> (G,). A product: a batch is one GEMM."""
    return matmul(place, x)


@struct.dataclass(kw_only=True)
class Terminals:
    """Terminals of the units of a fleet: T pairs of unit and node. A node is a bus, or one phase of one.

    unit:    (T,)  int32
    node:    (T,)  int32
    share:   (T,)  [-]    of the unit's power at that node; sums to 1 over a unit, 0 where padded
    """

    unit: Array
    node: Array
    share: Array


@checks_ranges("terminals")
def terminals(nodes: Sequence[Sequence[int]], n_node: Count, dtype: Any) -> Terminals:
    """Connect unit g to the nodes (positions) nodes[g] in equal shares: one for a bus, three for a balanced unit.

    Raises ValueError for a unit without a node, or a position outside the network.
    """
    for k, at in enumerate(nodes):
        as_numbers(f"terminals nodes[{k}]", list(at), WHOLE)
    pairs = [(unit, int(node), 1 / len(at)) for unit, at in enumerate(nodes) for node in at]
    if not all(len(at) for at in nodes):
        raise ValueError(f"unit {[len(at) for at in nodes].index(0)} has no node. Give at least one.")
    outside = [node for _, node, _ in pairs if not 0 <= node < n_node]
    if outside:
        raise ValueError(f"positions {listing(outside)} lie outside a network of {n_node} nodes.")
    unit, node, share = zip(*pairs, strict=True)
    return Terminals(
        unit=jnp.asarray(unit, jnp.int32), node=jnp.asarray(node, jnp.int32), share=jnp.asarray(share, dtype)
    )


@checks_ranges("inject")
def inject(at: Terminals, x: Annotated[Array, FINITE, axes("G")], n_node: Count) -> Array:
    """Sum a unit quantity at each node, (G,) [MW] -> (n_node,) [MW]; n_node is static."""
    return jax.ops.segment_sum(x[at.unit] * at.share, at.node, n_node)


@checks_ranges("sense")
def sense(at: Terminals, y: Annotated[Array, FINITE, axes("N")], n_unit: Count) -> Array:
    """Read a node quantity at each unit, the mean over its nodes, (N,) [pu] -> (n_unit,) [pu]; n_unit is static."""
    return jax.ops.segment_sum(y[at.node] * at.share, at.unit, n_unit, indices_are_sorted=True)


@dataclass(frozen=True)
class UnitBlock:
    """The units of one kind among those of a fleet.

    units:   positions of its units in the fleet
    first:   position of each unit's first entry in the flat action
    low, high, idle:  bounds of its own action space and the values that leave a unit alone, entry by entry
    """

    kind: str
    units: tuple[int, ...]
    first: tuple[int, ...]
    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    idle: tuple[float, ...]

    def entries(self, action: Array) -> Array:
        """Entries of a flat kernel action that belong to these units, (G, n)."""
        width, first = len(self.names), np.asarray(self.first)
        if np.array_equal(first, first[0] + width * np.arange(len(first))):
            return action[first[0] : first[0] + width * len(first)].reshape(len(first), width)
        return action[first[:, None] + np.arange(width)]

    def own(self, kernel: Array) -> Array:
        """Kernel action (G, n) in [-1, 1] -> the device's own space; what is not finite becomes idle."""
        dtype = kernel.dtype
        low, high, idle = (jnp.asarray(x, dtype)[None, :] for x in (self.low, self.high, self.idle))
        scaled = kernel * ((high - low) / 2) + (high + low) / 2
        return jnp.where(jnp.isfinite(kernel), jnp.clip(scaled, low, high), idle)


@dataclass(frozen=True)
class ActionTable:
    """Map from the entries of an action to units; static, equal by value.

    `flat` is for one agent that commands the fleet, unit after unit; `rows` for one agent per unit.
    """

    blocks: tuple[UnitBlock, ...]
    width: int

    @property
    def order(self) -> tuple[int, ...]:
        """Roster positions of the units, block after block."""
        return tuple(unit for block in self.blocks for unit in block.units)

    def flat(self, action: Array) -> dict[str, Array]:
        """Kernel action (width,) -> own actions (G_kind, n_kind) of each kind."""
        return {b.kind: b.own(b.entries(action)) for b in self.blocks}

    def rows(self, action: Array) -> dict[str, Array]:
        """Kernel action (A, U), row = position of the unit, surplus columns ignored -> own actions of each kind."""
        return {b.kind: b.own(action[np.asarray(b.units), : len(b.names)]) for b in self.blocks}


def action_table(kinds: Sequence[str], q_control: Sequence[str] = ()) -> ActionTable:
    """Table for units of these kinds, one name per unit in the order of ids.

    q_control:  kinds among storage and renewable whose units also take a reactive command
    Raises ValueError for an unknown kind, or reactive control of a kind that has none.
    """
    # thermal units have an action and no registration: microgrids alone have them
    known = {kind.name: (kind.actions, kind.idle) for kind in KINDS.values()}
    known |= {"thermal": (thermal.ACTIONS, thermal.IDLE)}
    for kind in (*kinds, *q_control):
        if kind not in known:
            raise ValueError(unknown("device kind", kind, known))
    optional = [kind.name for kind in KINDS.values() if kind.q_optional]
    wrong = [kind for kind in q_control if kind not in optional]
    if wrong:
        raise ValueError(f"{wrong[0]} takes no reactive command. Valid: {', '.join(sorted(optional))}.")
    entries = {k: known[k][0][: 1 if k in optional and k not in q_control else None] for k in known}
    first = np.concatenate([[0], np.cumsum([len(entries[kind]) for kind in kinds])]).astype(int)
    blocks = []
    for kind in dict.fromkeys(kinds):
        units = tuple(k for k, other in enumerate(kinds) if other == kind)
        names, low, high = zip(*entries[kind], strict=True)
        idle = known[kind][1][: len(names)]
        blocks.append(UnitBlock(kind, units, tuple(int(first[k]) for k in units), names, low, high, idle))
    return ActionTable(tuple(blocks), int(first[-1]))


def stacked(table: ActionTable, deliveries: Mapping[str, Delivered]) -> Delivery:
    """Deliveries of all units in their order: one (G,) column each."""
    layout = Layout(table)
    return Delivery(
        *(joined(layout, {kind: getattr(d, name) for kind, d in deliveries.items()}) for name in Delivery._fields)
    )


class Layout(NamedTuple):
    """Static facts of a fleet.

    table:         which entries of an action belong to which units
    per_device:    one agent a unit (action (A, U)), else one agent for all (action (1, width))
    return_steps:  steps over which deferred load returns
    jitter_steps:  most steps that a trip moves in an episode
    sizes:         queues of data centres, None without any
    trip_days:     days by which the trips of an episode are moved at random, all together; 1 = not
    """

    table: ActionTable
    per_device: bool = False
    return_steps: int = 1
    jitter_steps: int = 0
    sizes: QueueSizes | None = None
    trip_days: int = 1

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(block.kind for block in self.table.blocks)

    @property
    def with_q(self) -> bool:
        """True where any unit delivers reactive power."""
        reactive = {kind.name for kind in KINDS.values() if kind.reactive}
        return any("q_control" in block.names or block.kind in reactive for block in self.table.blocks)


class FleetResult(NamedTuple):
    """Delivery of the fleet in a step, in the order of the units; `reports` are the deliveries of each kind.

    p_mw, command_mw:  (G,)  [MW]
    q_mvar:            (G,)  [MVAr], None where no unit has any
    undelivered_mw:    (G,)  [MW]
    """

    p_mw: Array
    q_mvar: Array | None
    undelivered_mw: Array
    command_mw: Array
    reports: dict[str, Any]

    def __repr__(self) -> str:
        return brief(self)


def own_actions(layout: Layout, action: Array) -> dict[str, Array]:
    """Own actions [-] of each kind (G_kind, n_kind), from the kernel action (A, U); NaN entries leave units alone."""
    return layout.table.rows(action) if layout.per_device else layout.table.flat(action[0])


def joined(layout: Layout, parts: Mapping[str, Array]) -> Array:
    """Values (G, ...) of all units in their order, from those of the kinds (G_kind, ...), in any one unit [any]."""
    blocks = layout.table.blocks
    whole = parts[blocks[0].kind] if len(blocks) == 1 else jnp.concatenate([parts[b.kind] for b in blocks])
    order = layout.table.order
    return whole if order == tuple(range(len(order))) else whole[np.argsort(order)]


def storing(params: Any) -> list[Any]:
    """Stacks of a family's parameters that have a state of charge; none where it has no devices."""
    return [stack for kind in storing_kinds() if (stack := getattr(params, kind, None)) is not None]


def soc_range(params: Any) -> tuple[Array, Array]:
    """Ranges (S,), (S,) [-] that initial states of charge are drawn from; empty where nothing stores."""
    found = storing(params)
    if len(found) == 1:
        return found[0].soc_low, found[0].soc_high
    nothing = jnp.zeros((0,), jax.tree.leaves(params.bank)[0].dtype)
    low = jnp.concatenate([nothing, *(stack.soc_low for stack in found)])
    return low, jnp.concatenate([nothing, *(stack.soc_high for stack in found)])


def charge_of(states: Mapping[str, Any], like: Array) -> Array:
    """State of charge (S,) [-] of the kinds that have one, kind after kind in the order of the registry."""
    found = [states[kind].soc for kind in storing_kinds() if states.get(kind) is not None]
    if len(found) == 1:
        return found[0]
    return jnp.concatenate([jnp.zeros((0,), like.dtype), *found])


def begin(layout: Layout, key: Array, soc: Array, task: Any, dt_hours: float) -> dict[str, Any]:
    """States of all stacks at the start of an episode: idle, charged as drawn, with the trips of the day.

    key:  random key of the episode
    soc:  (S,) [-] states of charge, in the order of `charge_of`
    """
    made: dict[str, Any] = {}
    first = 0
    for name, kind in KINDS.items():
        stack = getattr(task, name)
        if stack is None:
            continue
        last = first + stack.mask.shape[0] if kind.stores else first
        made[name] = kind.begin(stack, EpisodeStart(soc[first:last], key, dt_hours, layout, task))
        first = last
    return made


def deliver(state: Any, own: Mapping[str, Array], exogenous: Exogenous) -> tuple[dict[str, Any], FleetResult]:
    """Step of every stack: new states by kind, and what the fleet delivers (G,) [MW, MVAr].

    own:  actions (G_kind, n_kind) [-] by kind, from `own_actions`
    exogenous:  what the step meets: row of the bank, clock, layout and parameters
    """
    layout, task = exogenous.layout, exogenous.task
    if not own:
        nothing = jnp.zeros((0,), task.load_ratio.dtype)
        return {}, FleetResult(nothing, None, nothing, nothing, {})
    new: dict[str, Any] = {}
    out: dict[str, Any] = {}
    asked: dict[str, Array] = {}
    for kind, action in own.items():
        params, before = getattr(task, kind), getattr(state, kind)
        new[kind], out[kind], asked[kind] = KINDS[kind].advance(params, before, action, exogenous)
    return new, FleetResult(
        p_mw=joined(layout, {kind: done.p_mw for kind, done in out.items()}),
        q_mvar=joined(layout, {kind: done.q_mvar for kind, done in out.items()}) if layout.with_q else None,
        undelivered_mw=joined(layout, {kind: done.undelivered_mw for kind, done in out.items()}),
        command_mw=joined(layout, asked),
        reports=out,
    )


def power(layout: Layout, state: Any, task: Any) -> tuple[Array, Array | None]:
    """Power (G,) [MW] and (G,) [MVAr] that the fleet delivered in the last step, in the order of the units."""
    kinds = layout.kinds
    if not kinds:
        return jnp.zeros((0,), task.load_ratio.dtype), None
    done = {kind: _delivered(kind, getattr(task, kind), getattr(state, kind), task) for kind in kinds}
    p = joined(layout, {kind: both[0] for kind, both in done.items()})
    return p, joined(layout, {kind: both[1] for kind, both in done.items()}) if layout.with_q else None


def _delivered(kind: str, stack: Any, state: Any, task: Any) -> tuple[Array, Array]:
    told = KINDS[kind].power
    if told is not None:
        return told(stack, state, task)
    return state.p_mw, state.q_mvar if hasattr(state, "q_mvar") else jnp.zeros_like(state.p_mw)
