"""Kinds of devices that feeders and grids take: one line a kind; its registration stands at the end of its module."""

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
