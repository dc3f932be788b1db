"""Kinds of devices that feeders and grids take: one line a kind; its registration stands at the end of its module.

`register_kind` adds one from outside the package.
"""

from __future__ import annotations

from powerzoo_jax.devices import datacenter, flexload, renewable, storage, vehicle
from powerzoo_jax.devices.protocol import DeviceKind

# Fleets list states of charge and reward terms in this order.
KINDS: dict[str, DeviceKind] = {
    kind.name: kind
    for kind in (
        storage.KIND,
        renewable.KIND,
        flexload.KIND,
        vehicle.KIND,
        datacenter.KIND,
    )
}

_read: list[bool] = []  # not empty once parameters and states have a field for every kind


def register_kind(kind: DeviceKind) -> None:
    """Make a kind of one's own known to every task that takes `devices`, before the first of them is made.

    Raises ValueError for a name that is taken, RuntimeError where such a task has been made in this process: its
    parameters and states have their fields already.
    """
    if kind.name in KINDS:
        raise ValueError(f"kind of device {kind.name!r} is registered already. Choose another name.")
    if _read:
        raise RuntimeError(
            f"kind of device {kind.name!r} comes after the first task with devices. Register it right after the import "
            "of powerzoo_jax."
        )
    KINDS[kind.name] = kind


def final_kinds() -> tuple[str, ...]:
    """Names of all kinds, for fields that are made once: none can be added any more."""
    _read.append(True)
    return tuple(KINDS)
