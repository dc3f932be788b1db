"""Admittances of branches: in complex numbers of one float, and in pairs of floats where a device has no wider float.

Both say what branches add to a network at a base voltage; `meshed.factors` puts it in its place. Textbook symbols:
y = 1 / (r + j x) is the series admittance, a = tap exp(j shift) the ratio of an ideal transformer at the from end.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base import struct
from powerzoo_jax.base.double_single import Pair
from powerzoo_jax.base.ranges import FINITE, FLAG, POSITIVE, axes


@struct.dataclass(kw_only=True)
class BranchData:
    """Raw branch parameters: what studies vary, and what admittances are derived from.

    r_pu, x_pu, b_pu: (L,)  [pu]   series resistance, series reactance, total charging
    tap:              (L,)  [-]    off-nominal ratio at the from end
    shift_rad:        (L,)  [rad]  phase shift, positive delays the to end
    in_service:       (L,)         1 in service, 0 out
    """

    r_pu: Annotated[Array, FINITE, axes("L")]
    x_pu: Annotated[Array, FINITE, axes("L")]
    b_pu: Annotated[Array, FINITE, axes("L")]
    tap: Annotated[Array, POSITIVE, axes("L")]
    shift_rad: Annotated[Array, FINITE, axes("L")]
    in_service: Annotated[Array, axes("L", kind=FLAG)]


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


class BranchParts(NamedTuple):
    """Contributions of branches to a network at the base voltages of their ends, complex (L, 2) in pairs of floats.

    there, back:    A_ft, A_tf: Vb_f conj(Y_ft Vb_t) and the reverse
    own_f, own_t:   part of A_ff and of A_tt
    i_base, slope:  series current at the base voltage, and y Vb_from / a
    ratio:          1 / a
    """

    there: Pair
    back: Pair
    own_f: Pair
    own_t: Pair
    i_base: Pair
    slope: Pair
    ratio: Pair


def branch_parts(branch: BranchData, v_f: Array, v_t: Array) -> BranchParts:
    """Parts of branches between base voltages (L, 2) [pu], whose parameters are taken as exact; 0 out of service.

    Numbers that are found in the same way are stacked: compilers write what two results share once for each of them.
    """
    on = branch.in_service
    z = real_parts(jnp.where(on > 0, branch.r_pu, 1), jnp.where(on > 0, branch.x_pu, 0))
    y = _scaled(_conjugate(ds.pair(z)), ds.divide(ds.pair(on), ds.total(ds.two_product(z, z))))
    ratio = _scaled(ds.cosine_sine(-branch.shift_rad), ds.divide(ds.pair(on), ds.pair(branch.tap)))
    u, w = product(ratio, ds.pair(v_f)), ds.pair(v_t)
    ends = _stacked(u, w)
    slope, far, i_base = _parted(product(_stacked(y), _stacked(u, w, ds.subtract(u, w))))
    # -y / conj(a) at one end, -y / a at the other
    there, back = _parted(ds.negative(product(ends, _stacked(far, slope), conjugated=True)))
    half = ds.two_product(0.5 * on, branch.b_pu)
    charged = ds.subtract(_conjugate(y), jax.tree.map(lambda x: real_parts(jnp.zeros_like(x), x), half))
    own_f, own_t = _parted(_scaled(_stacked(charged), ds.total(ds.multiply(ends, ends))))
    return BranchParts(there=there, back=back, own_f=own_f, own_t=own_t, i_base=i_base, slope=slope, ratio=ratio)


def product(a: Pair, x: Pair, conjugated: bool = False) -> Pair:
    """a x, or a conj(x), of complex numbers (..., 2) in pairs of floats."""
    every = ds.multiply(jax.tree.map(lambda a: a[..., :, None], a), jax.tree.map(lambda x: x[..., None, :], x))
    first, second = (jax.tree.map(lambda z, k=k: z[..., k, :], every) for k in range(2))
    second = jax.tree.map(lambda z: z[..., ::-1], second)
    return ds.add(_conjugate(first), second) if conjugated else ds.subtract(first, _conjugate(second))


def _scaled(z: Pair, size: Pair) -> Pair:
    """Complex numbers (..., 2) times real ones (...)."""
    return ds.multiply(z, jax.tree.map(lambda x: x[..., None], size))


def _conjugate(z: Pair) -> Pair:
    return jax.tree.map(lambda x: x * np.asarray([1, -1], x.dtype).reshape((1,) * (x.ndim - 1) + (2,)), z)


def _stacked(*numbers: Pair) -> Pair:
    return jax.tree.map(lambda *parts: jnp.stack(parts), *numbers)


def _parted(numbers: Pair) -> list[Pair]:
    return [jax.tree.map(lambda x, k=k: x[k], numbers) for k in range(numbers.high.shape[0])]


def real_parts(re: Array, im: Array) -> Array:
    """Complex numbers (..., 2) from their parts (...)."""
    return jnp.stack([re, im], -1)


def real_pairs(z: Array) -> Array:
    """Complex numbers (...) as (..., 2)."""
    return real_parts(z.real, z.imag)


def jacobian_entries(cells: Array, own: Array, power: Array) -> Array:
    """Entries of the polar Jacobian in the order of `MeshedLayout.plan`, (4 (C + N),).

    dS_i/dtheta_j = -j a_ij,  dS_i/dln|V_j| = a_ij,  and at j = i  j (S_i - a_ii),  S_i + a_ii,
    with a_ij = V_i conj(Y_ij V_j)

    cells: (C,) complex a_ij of the table cells     own: (N,) complex a_ii     power: (N,) complex S_i
    """
    return entries_of(real_pairs(cells), real_pairs(power - own), real_pairs(power + own))


def entries_of(cells: Any, less: Any, more: Any) -> Any:
    """Entries of the Jacobian from a_ij (C, 2), S_i - a_ii and S_i + a_ii (N, 2), arrays or pairs of them."""
    return jax.tree.map(
        lambda a, b, c: jnp.concatenate([a[:, 1], -b[:, 1], -a[:, 0], b[:, 0], a[:, 0], c[:, 0], a[:, 1], c[:, 1]]),
        cells,
        less,
        more,
    )
