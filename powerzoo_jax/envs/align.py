"""Feeders of different sizes as lanes of one distribution environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims
from powerzoo_jax.base.tree import pad_axis
from powerzoo_jax.devices import storage
from powerzoo_jax.envs.distribution import DistributionEnv, DistributionParams
from powerzoo_jax.envs.observe import PADDING_NAME, FieldTable
from powerzoo_jax.powerflow.padding import pad_feeder

FIXED = ("agent", "choice", "cost", "term")  # sizes of a feeder task that padding leaves alone


def align_feeders(
    envs: Sequence[DistributionEnv], params: Sequence[DistributionParams]
) -> tuple[DistributionEnv, list[DistributionParams]]:
    """Pad feeders to common sizes: one env for all lanes, and the padded parameters of each lane."""
    rated = any(e.rated for e in envs)
    # a loaded and an unloaded bus differ in what injects, so equal fields alone do not mean equal shapes
    if len({(e.fields, p.factors.n_active) for e, p in zip(envs, params, strict=True)}) == 1:
        return dataclasses.replace(envs[0], rated=rated), list(params)
    widest = {b.key: max(_width(e.fields, b.key) for e in envs) for b in envs[0].fields.blocks}
    largest = max(envs, key=lambda e: e.dims.obs)
    fields = largest.fields.padded(widest)
    n, n_branch = widest["node_v_norm"], widest["line_p_norm"]
    unit = max(e.dims.unit for e in envs)
    dims = dataclasses.replace(largest.dims, bus=n, branch=n_branch, unit=unit, act=unit, obs=fields.size)
    active = max(p.factors.n_active for p in params)
    lanes = [
        _padded(p, n, n_branch, unit, active, _obs_mask(e.fields, widest)) for e, p in zip(envs, params, strict=True)
    ]
    return dataclasses.replace(largest, dims=dims, fields=fields, rated=rated, padded=True), lanes


def pad_feeder_env(
    env: DistributionEnv, params: DistributionParams, dims: Dims
) -> tuple[DistributionEnv, DistributionParams]:
    """Pad one feeder to given numbers of buses, branches and units; `obs` and `act` follow from these.

    Raises ValueError naming the size when one is too small, or is larger where a feeder has nothing to pad.
    """
    for name, own in dataclasses.asdict(env.dims).items():
        wanted = getattr(dims, name)
        if wanted < own:
            raise ValueError(f"dims.{name} = {wanted} is smaller than the task's {own}. Padding only widens.")
        if wanted > own and name in FIXED:
            raise ValueError(f"dims.{name} = {wanted} is larger than the task's {own}, which cannot be padded.")
    per_unit = {b.key: len(b.names) // env.dims.unit for b in env.fields.blocks if b.key.startswith("device")}
    wide = {b.key: len(b.names) for b in env.fields.blocks}
    wide |= {key: count * dims.unit for key, count in per_unit.items()}
    wide |= {key: dims.bus for key in wide if key.startswith("node_")}
    wide |= {key: dims.branch for key in wide if key.startswith("line_")}
    fields = env.fields.padded(wide)
    active = params.factors.n_active + dims.bus - env.dims.bus
    sizes = dataclasses.replace(
        env.dims, bus=dims.bus, branch=dims.branch, unit=dims.unit, act=dims.unit, obs=fields.size
    )
    padded = _padded(params, dims.bus, dims.branch, dims.unit, active, _obs_mask(env.fields, wide))
    return dataclasses.replace(env, dims=sizes, fields=fields, padded=True), padded


def _width(fields: FieldTable, key: str) -> int:
    return next(len(b.names) for b in fields.blocks if b.key == key)


def _obs_mask(fields: FieldTable, widest: dict[str, int]) -> np.ndarray:
    """(1, O): real fields of a lane; what an earlier padding added stays masked."""
    real = {b.key: sum(name != PADDING_NAME for name in b.names) for b in fields.blocks}
    return np.concatenate([np.arange(widest[b.key]) < real[b.key] for b in fields.blocks])[None]


def _padded(
    p: DistributionParams, n: int, n_branch: int, unit: int, active: int, obs: np.ndarray
) -> DistributionParams:
    grid: dict[str, Any] = {f.name: getattr(p.grid, f.name) for f in dataclasses.fields(p.grid)}
    for name, size in (("from_bus", n_branch), ("to_bus", n_branch), ("rate", n_branch), ("branch_mask", n_branch)):
        grid[name] = pad_axis(grid[name], size, 0)
    for name in ("p_load", "q_load", "v_min", "bus_mask"):
        grid[name] = pad_axis(grid[name], n, 0)
    grid["v_max"] = pad_axis(grid["v_max"], n, 0, 2.0)  # a padded bus at 1.0 pu lies inside any such band
    fleet = {
        f.name: pad_axis(getattr(p.storage, f.name), unit, 0, storage.PADDING.get(f.name, 0))
        for f in dataclasses.fields(p.storage)
    }
    masks = dataclasses.replace(p.masks, obs=jnp.asarray(obs), act=pad_axis(p.masks.act, unit, 1, False))
    return dataclasses.replace(
        p,
        masks=masks,
        grid=dataclasses.replace(p.grid, **grid),
        factors=pad_feeder(p.factors, n, n_branch, active),
        storage=dataclasses.replace(p.storage, **fleet),
        place_bus=pad_axis(pad_axis(p.place_bus, unit, 0), n, 1),
        place_active=pad_axis(pad_axis(p.place_active, unit, 0), active, 1),
        p_load=pad_axis(p.p_load, active, 0),
        q_load=pad_axis(p.q_load, active, 0),
    )
