"""Branch stamps: what a pi-model branch adds to the bus admittance matrix."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array, lax


@struct.dataclass(kw_only=True)
class BranchData:
    """Raw branch parameters: what studies vary, and what admittances are derived from.

    r_pu, x_pu, b_pu: (L,)  [pu]   series resistance, series reactance, total charging
    tap:              (L,)  [-]    off-nominal ratio at the from end
    shift_rad:        (L,)  [rad]  phase shift, positive delays the to end
    in_service:       (L,)         1 in service, 0 out
    """

    r_pu: Array
    x_pu: Array
    b_pu: Array
    tap: Array
    shift_rad: Array
    in_service: Array


class Stamps(NamedTuple):
    """Complex admittances (L,) [pu]: i_from = ff v_from + ft v_to, i_to = tf v_from + tt v_to."""

    ff: Array
    ft: Array
    tf: Array
    tt: Array


def stamps(branch: BranchData) -> Stamps:
    """Admittances of pi branches with an ideal transformer a = tap exp(j shift) at the from end.

    ff = (y + j b/2) / |a|^2,  ft = -y / conj(a),  tf = -y / a,  tt = y + j b/2,  y = 1 / (r + j x)

    Source: Zimmerman et al. 2011, MATPOWER, doi:10.1109/TPWRS.2010.2051168, eq. 1.
    """
    y, turn = series_admittance(branch), inverse_ratio(branch)
    half = 0.5 * branch.in_service * branch.b_pu
    charging = y + lax.complex(jnp.zeros_like(half), half)
    return Stamps(charging * turn * jnp.conj(turn), -y * jnp.conj(turn), -y * turn, charging)


def series_admittance(branch: BranchData) -> Array:
    """1 / (r + j x), (L,) complex [pu]; 0 out of service."""
    on = branch.in_service
    r, x = jnp.where(on > 0, branch.r_pu, 1), jnp.where(on > 0, branch.x_pu, 0)
    return lax.complex(on, jnp.zeros_like(on)) / lax.complex(r, x)


def inverse_ratio(branch: BranchData) -> Array:
    """1 / (tap exp(j shift)), (L,) complex [-]."""
    return lax.complex(jnp.cos(branch.shift_rad) / branch.tap, -jnp.sin(branch.shift_rad) / branch.tap)
