"""Conversion of a network from host to device: `Case` (validated tables) in, `Grid` (padded leaves, per unit) out."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.cases.case import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.cases.validate import assert_valid


@struct.dataclass(kw_only=True)
class Grid:
    """One network on the device, per unit on `base_mva`. Padded rows are masked out, at 1.0 pu and without load.

    base_mva:         ()    [MVA]
    p_load, q_load:   (N,)  [pu]  nominal load
    v_min, v_max:     (N,)  [pu]  voltage band
    from_bus, to_bus: (L,)  int32 positions
    rate:             (L,)  [pu]  rating, 0 = unlimited
    bus_mask:         (N,)  bool  real buses
    branch_mask:      (L,)  bool  real branches in service
    """

    base_mva: Array
    p_load: Array
    q_load: Array
    v_min: Array
    v_max: Array
    from_bus: Array
    to_bus: Array
    rate: Array
    bus_mask: Array
    branch_mask: Array

    @property
    def n_bus(self) -> int:
        return self.bus_mask.shape[-1]

    @property
    def n_branch(self) -> int:
        return self.branch_mask.shape[-1]


def to_grid(
    case: Case,
    dtype: Any = None,
    *,
    v_min: float | None = None,
    v_max: float | None = None,
    rate_mva: float | None = None,
) -> Grid:
    """Move a case to the device.

    dtype:         float32 (None) or float64
    v_min, v_max:  [pu] one band for all buses instead of the case's own
    rate_mva:      one rating for all branches instead of the case's own

    Raises CaseError with every problem of the case.
    """
    dtype = resolve_dtype(dtype)
    assert_valid(case)
    f, t = branch_positions(case)
    n, n_branch = case.n_bus, case.n_branch
    rate = case.branch.rate_a_mva if rate_mva is None else np.full(n_branch, float(rate_mva))

    def door(values: Any) -> Array:
        return jnp.asarray(values, dtype)

    return Grid(
        base_mva=door(case.base_mva),
        p_load=door(case.p_load_mw / case.base_mva),
        q_load=door(case.q_load_mvar / case.base_mva),
        v_min=door(case.bus.v_min_pu if v_min is None else np.full(n, float(v_min))),
        v_max=door(case.bus.v_max_pu if v_max is None else np.full(n, float(v_max))),
        from_bus=jnp.asarray(f, jnp.int32),
        to_bus=jnp.asarray(t, jnp.int32),
        rate=door(rate / case.base_mva),
        bus_mask=jnp.ones(n, bool),
        branch_mask=jnp.asarray(case.branch.in_service),
    )
