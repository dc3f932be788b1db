"""Fleets of several kinds: placement of the units on buses, and the map from action entries to units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from powerzoo_jax.base.errors import listing, unknown
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.cases import Case
from powerzoo_jax.devices import datacenter, flexload, renewable, storage, thermal, vehicle
from powerzoo_jax.devices.protocol import Delivered, Delivery

# Entries of a device's action in its own space, (name, low, high), and the values that leave it alone.
ACTIONS = {
    "storage": (storage.ACTIONS, storage.IDLE),
    "renewable": (renewable.ACTIONS, renewable.IDLE),
    "flexload": (flexload.ACTIONS, flexload.IDLE),
    "vehicle": (vehicle.ACTIONS, vehicle.IDLE),
    "datacenter": (datacenter.ACTIONS, datacenter.IDLE),
    "thermal": (thermal.ACTIONS, thermal.IDLE),
}
Q_OPTIONAL = frozenset({"storage", "renewable"})  # the second entry, reactive power, exists only when asked for


def placement(case: Case, bus_ids: Sequence[int], dtype: Any) -> Array:
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


def bus_injection(place: Array, p: Array) -> Array:
    """Sum device power at each bus: place (G, N) of 0 and 1, (G,) [MW] -> (N,) [MW].

    Written as a masked sum: it fuses with what follows, where a scatter over a batch would not.
    """
    return jnp.sum(place * p[:, None], axis=0)


def at_devices(place: Array, x: Array) -> Array:
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


def terminals(nodes: Sequence[Sequence[int]], n_node: int, dtype: Any) -> Terminals:
    """Connect unit g to the nodes (positions) nodes[g] in equal shares: one for a bus, three for a balanced unit.

    Raises ValueError for a unit without a node, or a position outside the network.
    """
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


def inject(at: Terminals, x: Array, n_node: int) -> Array:
    """Sum a unit quantity at each node, (G,) [MW] -> (n_node,) [MW]; n_node is static."""
    return jax.ops.segment_sum(x[at.unit] * at.share, at.node, n_node)


def sense(at: Terminals, y: Array, n_unit: int) -> Array:
    """Read a node quantity at each unit, the mean over its nodes, (N,) [pu] -> (n_unit,) [pu]; n_unit is static."""
    return jax.ops.segment_sum(y[at.node] * at.share, at.unit, n_unit, indices_are_sorted=True)


@dataclass(frozen=True)
class UnitBlock:
    """The units of one kind in a roster.

    units:   positions of its units in the roster
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

    def own(self, kernel: Array) -> Array:
        """Kernel action (G, n) in [-1, 1] -> the device's own space; what is not finite becomes idle."""
        dtype = kernel.dtype
        low, high, idle = (jnp.asarray(x, dtype)[None, :] for x in (self.low, self.high, self.idle))
        scaled = kernel * ((high - low) / 2) + (high + low) / 2
        return jnp.where(jnp.isfinite(kernel), jnp.clip(scaled, low, high), idle)


@dataclass(frozen=True)
class ActionTable:
    """Map from the entries of an action to units; static, equal by value.

    `flat` is for one agent that commands the roster, unit after unit; `rows` for one agent per unit.
    """

    blocks: tuple[UnitBlock, ...]
    width: int

    @property
    def order(self) -> tuple[int, ...]:
        """Roster positions in the order in which `stacked` puts the units: block after block."""
        return tuple(unit for block in self.blocks for unit in block.units)

    def flat(self, action: Array) -> dict[str, Array]:
        """Kernel action (width,) -> own actions (G_kind, n_kind) of each kind."""
        index = {b.kind: np.asarray(b.first)[:, None] + np.arange(len(b.names)) for b in self.blocks}
        return {b.kind: b.own(action[index[b.kind]]) for b in self.blocks}

    def rows(self, action: Array) -> dict[str, Array]:
        """Kernel action (A, U), row = roster position, surplus columns ignored -> own actions of each kind."""
        return {b.kind: b.own(action[np.asarray(b.units), : len(b.names)]) for b in self.blocks}


def action_table(roster: Sequence[str], q_control: Sequence[str] = ()) -> ActionTable:
    """Table for a roster of kinds, one per unit in the order of ids.

    q_control:  kinds among storage and renewable whose units also take a reactive command
    Raises ValueError for an unknown kind, or reactive control of a kind that has none.
    """
    for kind in (*roster, *q_control):
        if kind not in ACTIONS:
            raise ValueError(unknown("device kind", kind, ACTIONS))
    wrong = [kind for kind in q_control if kind not in Q_OPTIONAL]
    if wrong:
        raise ValueError(f"{wrong[0]} takes no reactive command. Valid: {', '.join(sorted(Q_OPTIONAL))}.")
    entries = {k: ACTIONS[k][0][: 1 if k in Q_OPTIONAL and k not in q_control else None] for k in ACTIONS}
    first = np.concatenate([[0], np.cumsum([len(entries[kind]) for kind in roster])]).astype(int)
    blocks = []
    for kind in dict.fromkeys(roster):
        units = tuple(k for k, other in enumerate(roster) if other == kind)
        names, low, high = zip(*entries[kind], strict=True)
        idle = ACTIONS[kind][1][: len(names)]
        blocks.append(UnitBlock(kind, units, tuple(int(first[k]) for k in units), names, low, high, idle))
    return ActionTable(tuple(blocks), int(first[-1]))


def stacked(table: ActionTable, deliveries: Mapping[str, Delivered]) -> Delivery:
    """Deliveries of all units in roster order: one (G,) column each."""
    back = np.argsort(table.order)
    parts = [deliveries[block.kind] for block in table.blocks]

    def column(name: str) -> Array:
        return jnp.concatenate([getattr(part, name) for part in parts])[back]

    return Delivery(*(column(name) for name in Delivery._fields))
