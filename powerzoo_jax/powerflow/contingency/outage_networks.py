"""The networks that outages of branches leave, each factored at its own base state.

A low-rank correction of the intact inverse (`outage_factors`) belongs to the state before the outage and takes more
steps the further the outage leads from there. Where many scenarios share an outage, a factored network of its own at
the base state after it takes fewer steps, none of which pays for a correction.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.cases import Case
from powerzoo_jax.powerflow.contingency.woodbury import pair
from powerzoo_jax.powerflow.meshed.blocks import Blocks
from powerzoo_jax.powerflow.meshed.factors import MeshedFactors, MeshedNetwork, branch_data, derive

MOST = 1 << 24  # numbers in the inverses of all outages: beyond, they would be read from memory, not from a cache


@struct.dataclass(kw_only=True)
class OwnNetworks:
    """Networks after K outages, each around the base voltage after it.

    networks:  MeshedNetwork, (K, ...)
    blocks:    inverses of their Jacobians there, single precision, (K, ...)
    offset:    (K, N, 2)  [pu]  injections at the intact base state less those at that of the outage
    """

    networks: MeshedNetwork
    blocks: Blocks
    offset: Array


def own_networks(
    case: Case, meshed: MeshedFactors, v: np.ndarray, shifted: np.ndarray, lost: np.ndarray, dtype: Any
) -> OwnNetworks | None:
    """Factor the networks without one branch each, on the host in float64; None where they would be too large.

    v:        (N,) complex [pu] intact base voltage      shifted:  (K, N) complex what an outage does to it, V' / V - 1
    lost:     (K,) positions of the branches; -1 takes none
    """
    size = sum(x.size for x in jax.tree.leaves(meshed.core.blocks))
    if len(lost) == 0 or size * len(lost) > MOST:
        return None
    with jax.enable_x64(True):
        intact, shunt = branch_data(case), jnp.asarray(pair((case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva))
        factored = jax.jit(derive)

        def without(branch: int, v: np.ndarray) -> tuple[MeshedNetwork, Blocks]:
            on = jnp.where(np.arange(case.n_branch) == branch, 0, intact.in_service)
            found = factored(meshed.layout, dataclasses.replace(intact, in_service=on), shunt, jnp.asarray(pair(v)))
            return jax.tree.map(np.asarray, found[:2])  # type: ignore[no-any-return]

        base = without(-1, v)[0].s_base
        every = [without(k, v * (1 + e)) for k, e in zip(lost.tolist(), shifted, strict=True)]
    networks, blocks = jax.tree.map(lambda *x: np.stack(x), *every)
    return OwnNetworks(
        networks=jax.tree.map(lambda x: jnp.asarray(x, dtype), networks),
        blocks=jax.tree.map(lambda x: jnp.asarray(x, FLOAT), blocks),
        offset=jnp.asarray(base - networks.s_base, dtype),
    )
