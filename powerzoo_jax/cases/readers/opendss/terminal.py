"""The nodes that terminals of OpenDSS elements join."""

from __future__ import annotations

from powerzoo_jax.cases.readers.opendss.script import Element
from powerzoo_jax.cases.readers.opendss.values import Bus

End = str | None


def terminal(element: Element, key: str, bus: Bus, phases: int, count: int, *, grounded: bool = False) -> list[End]:
    """Nodes "bus.phase" of `count` conductors, the first `phases` of them phases; None is the ground.

    grounded: phases may lie at the ground too, as those of a centre-tapped secondary do

    Without nodes in the script they are 1, 2, ... and the ground for what is no phase.
    """
    if not bus.name:
        element.fail(f"{key} is not given. Give it: OpenDSS would invent a bus.")
    nodes = list(bus.nodes or range(1, phases + 1))[:count]
    if len(nodes) < phases:
        element.fail(f"{key} names {len(nodes)} node(s) of bus {bus.name} for {phases} phases. Name all, or none.")
    nodes += [0] * (count - len(nodes))
    live = [node for node in nodes if node]
    if (0 in nodes[:phases] and not grounded) or len(set(live)) < len(live):
        element.fail(f"{key} puts a phase to the ground, or two to one node of bus {bus.name}. Name different nodes.")
    return [f"{bus.name}.{node}" if node else None for node in nodes]


def winding(
    element: Element, key: str, bus: Bus, phases: int, delta: bool, turn: int = 1, *, grounded: bool = False
) -> list[tuple[End, End]]:
    """Both ends of every phase of a winding in wye or delta; `turn` is the direction of the delta."""
    nodes = terminal(element, key, bus, phases, phases + (phases == 1 or not delta), grounded=grounded)
    if grounded and any(nodes[k] is None and nodes[phases] is None for k in range(phases) if phases == 1 or not delta):
        element.fail(f"{key} puts both ends of a winding to the ground. Name a node of bus {bus.name}.")
    if not delta or phases == 1:
        return [(nodes[k], nodes[phases]) for k in range(phases)]
    return [(nodes[k], nodes[(k + turn) % phases]) for k in range(phases)]
