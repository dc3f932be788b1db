"""Feeders of different sizes in one program: padded rows are inert by construction."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.tree import pad_axis
from powerzoo_jax.powerflow.feeder.factors import FeederFactors


def pad_feeder(factors: FeederFactors, n_bus: int, n_branch: int, n_active: int) -> FeederFactors:
    """Widen feeder factors to common sizes.

    A padded active bus sits at 1.0 pu, injects nothing and moves nothing (zero row and column of M);
    a padded bus is at 1.0 pu, a padded branch carries nothing.
    """
    a, n = factors.n_active, factors.n_bus
    branches = factors.r_pu.shape[0]

    def pairs(x: Array, size: int, to: int, axis: int, fill: tuple[float, float] = (0.0, 0.0)) -> Array:
        """Pad both halves (re, im) of an axis of length 2 size."""
        re, im = jnp.split(x, [size], axis=axis)
        return jnp.concatenate([pad_axis(re, to, axis, fill[0]), pad_axis(im, to, axis, fill[1])], axis)

    def columns(x: Array) -> Array:
        return pairs(x, a, n_active, 1)

    def square(x: Array) -> Array:
        return pad_axis(pad_axis(x, n_active, 0), n_active, 1)

    core = factors.core
    padded_core = dataclasses.replace(
        core,
        m=columns(pairs(core.m, a, n_active, 0)),
        w=pairs(core.w, a, n_active, 0, (1.0, 0.0)),
        d_base=pad_axis(core.d_base, n_active, 1),
        x_base=pairs(core.x_base, a, n_active, 0, (1.0, 0.0)),
        r_base=pairs(core.r_base, a, n_active, 0),
    )
    # m_flow ends each half with the total injected current, which must stay last
    return dataclasses.replace(
        factors,
        core=padded_core,
        active=pad_axis(factors.active, n_active, 0, n_bus),
        idle=pad_axis(factors.idle, n_bus, 0, False),
        m_bus=columns(pairs(factors.m_bus, n, n_bus, 0)),
        w_bus=pairs(factors.w_bus, n, n_bus, 0, (1.0, 0.0)),
        m_from=columns(pairs(factors.m_from, branches, n_branch, 0)),
        w_from=pairs(factors.w_from, branches, n_branch, 0, (1.0, 0.0)),
        m_flow=columns(_insert_rows(factors.m_flow, branches, n_branch)),
        w_flow=None if factors.w_flow is None else _insert_rows(factors.w_flow, branches, n_branch),
        half_charging=None if factors.half_charging is None else pad_axis(factors.half_charging, n_branch, 0),
        r_pu=pad_axis(factors.r_pu, n_branch, 0),
        x_pu=pad_axis(factors.x_pu, n_branch, 0),
        r_bus=square(factors.r_bus),
        x_bus=square(factors.x_bus),
        first=-1,  # lanes of one program must agree on it
    )


def with_elements(factors: FeederFactors) -> FeederFactors:
    """The same feeder in the form of those with charging, ratios or shunts, of which it has none."""
    if factors.w_flow is not None:
        return factors
    return dataclasses.replace(
        factors, w_flow=jnp.zeros_like(factors.m_flow[:, 0]), half_charging=jnp.zeros_like(factors.r_pu)
    )


def _insert_rows(x: Array, branches: int, n_branch: int) -> Array:
    halves = []
    for half in jnp.split(x, 2, axis=0):
        halves += [pad_axis(half[:branches], n_branch, 0), half[branches:]]
    return jnp.concatenate(halves, axis=0)
