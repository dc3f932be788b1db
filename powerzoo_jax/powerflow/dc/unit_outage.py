"""What the loss of a unit means for its bus and for the others: who holds the voltage, who makes up for the power."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import PV
from powerzoo_jax.cases.topology import branch_positions, islands


class UnitRoles(NamedTuple):
    """Roles of the G units of a case.

    bus:      (G,)    int    position of the bus
    frees:    (G,)    bool   the last one in service at a PV bus: without it nothing holds the magnitude there
    balances: (G,)    bool   the last one in service at a slack bus: without it nothing balances the network
    response: (G, N)  [-]    what every bus adds per unit of lost power; the slack adds the rest
    """

    bus: np.ndarray
    frees: np.ndarray
    balances: np.ndarray
    response: np.ndarray


def unit_roles(case: Case, participation: np.ndarray | None) -> UnitRoles:
    """Roles of all units; `participation` (G,) weights share the lost power among the units that remain in service
    in the same island.

    Raises SolverError for weights of another shape, negative or not finite.
    """
    unit, count = case.unit, len(case.unit.bus_id)
    bus, on = case.positions(unit.bus_id), unit.in_service
    last = on & (np.bincount(bus[on], minlength=case.n_bus)[bus] == 1)
    weight = np.zeros(count) if participation is None else np.asarray(participation, float)
    if weight.shape != (count,) or not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise SolverError(
            f"{case.name}: participation must be {count} weights of 0 or more, one for each unit; it has shape "
            f"{weight.shape} and sums to {weight.sum()}."
        )
    label = islands(case.n_bus, *branch_positions(case), case.branch.in_service)[bus]
    others = (weight * on)[None] * (~np.eye(count, dtype=bool) & (label[:, None] == label[None]))
    total = others.sum(1, keepdims=True)
    at_bus = np.zeros((count, case.n_bus))
    at_bus[np.arange(count), bus] = 1.0
    response = others @ at_bus / np.where(total > 0, total, 1.0)
    return UnitRoles(bus, last & (case.bus.kind[bus] == PV), last & np.isin(bus, case.slack_bus), response)
