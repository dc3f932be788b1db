"""Where devices sit: from power per unit to injections per bus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.errors import listing
from powerzoo_jax.cases import Case


def placement(case: Case, bus_ids: Sequence[int], dtype: Any) -> Array:
    """Incidence of devices and buses, (G, N) of 0 and 1.

    bus_ids:  external bus id of every device
    Raises ValueError naming an id that the case does not have.
    """
    missing = [b for b in bus_ids if int(b) not in case.bus_index]
    if missing:
        raise ValueError(f"{case.name} has no bus {listing(missing)}. Valid ids: {listing(case.bus.id)}.")
    table = np.zeros((len(bus_ids), case.n_bus))
    table[np.arange(len(bus_ids)), case.positions(np.asarray(bus_ids, np.int64))] = 1.0
    return jnp.asarray(table, dtype)


def bus_injection(place: Array, p: Array) -> Array:
    """Sum device power at each bus: (G, N), (G,) -> (N,).

    Written as a masked sum: it fuses with what follows, where a scatter over a batch would not.
    """
    return jnp.sum(place * p[:, None], axis=0)


def at_devices(place: Array, x: Array) -> Array:
    """Read a bus quantity at each device: (G, N), (N,) -> (G,). A product, so that a batch is one GEMM."""
    return jnp.matmul(place, x, precision=lax.Precision.HIGHEST)
