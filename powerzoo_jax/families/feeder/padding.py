"""Feeders of different sizes as lanes of one distribution environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims
from powerzoo_jax.base.tree import pad_axis
from powerzoo_jax.devices import action_table
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs.observe import PADDING_NAME, FieldTable
from powerzoo_jax.families.feeder.env import DistributionEnv
from powerzoo_jax.families.feeder.types import DistributionParams
from powerzoo_jax.powerflow import FeederFactors
from powerzoo_jax.powerflow.feeder.padding import pad_feeder, with_elements

FIXED = ("agent", "choice", "cost", "term")  # sizes of a feeder task that padding leaves alone
PER_BUS = ("node_v_norm", "node_p_load_norm", "node_q_load_norm")
PER_LINE = ("line_p_norm", "line_q_norm")
PER_UNIT = ("storage_grid_obs", "storage_obs")


def align_feeders(
    envs: Sequence[DistributionEnv], params: Sequence[DistributionParams]
) -> tuple[DistributionEnv, list[DistributionParams]]:
    """Pad feeders to common sizes: one env for all lanes, and the padded parameters of each lane.

    Raises ValueError for fleets of different kinds or numbers, unless all of it is storage of one agent.
    """
    params = _alike(params)
    rated = any(e.rated for e in envs)
    head_rated = all(e.head_rated or not e.rated for e in envs) and rated
    # a loaded and an unloaded bus differ in what injects, so equal fields alone do not mean equal shapes
    if len({(e.fields, e.layout, p.factors.n_active) for e, p in zip(envs, params, strict=True)}) == 1:
        return dataclasses.replace(envs[0], rated=rated, head_rated=head_rated), list(params)
    dims = dataclasses.replace(
        envs[0].dims, **{name: max(getattr(e.dims, name) for e in envs) for name in ("bus", "branch", "unit")}
    )
    active = max(p.factors.n_active for p in params)
    largest = max(envs, key=lambda e: e.dims.obs)
    env = _widened(largest, dims)
    lanes = [_padded(e, p, env, active) for e, p in zip(envs, params, strict=True)]
    return dataclasses.replace(env, rated=rated, head_rated=head_rated), lanes


def _alike(params: Sequence[DistributionParams]) -> list[DistributionParams]:
    """Parameters that all say what only some do: branches with charging or ratios, units of the case."""
    lanes = list(params)
    if any(isinstance(p.factors, FeederFactors) and p.factors.w_flow is not None for p in lanes):
        lanes = [dataclasses.replace(p, factors=with_elements(p.factors)) for p in lanes]
    if any(p.unit_p is not None for p in lanes):
        none = [jnp.zeros_like(p.p_load) for p in lanes]
        lanes = [
            p if p.unit_p is not None else dataclasses.replace(p, unit_p=zero, unit_q=zero)
            for p, zero in zip(lanes, none, strict=True)
        ]
    return lanes


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
    wide = _widened(env, dims)
    return wide, _padded(env, params, wide, params.factors.n_active + dims.bus - env.dims.bus)


def _widened(env: DistributionEnv, dims: Dims) -> DistributionEnv:
    """The environment at given numbers of buses, branches and units."""
    layout, act = env.layout, env.dims.act
    if dims.unit != env.dims.unit:
        if layout.kinds != ("storage",) or layout.per_device:
            raise ValueError(
                f"fleets of {env.dims.unit} and {dims.unit} units: only storage that one agent commands can be padded. "
                "Stack tasks whose fleets are alike."
            )
        layout, act = layout._replace(table=action_table(("storage",) * dims.unit)), dims.unit
    fields = env.fields.padded(_widths(env.fields, env.dims, dims))
    sizes = dataclasses.replace(env.dims, bus=dims.bus, branch=dims.branch, unit=dims.unit, act=act, obs=fields.size)
    return dataclasses.replace(env, dims=sizes, fields=fields, layout=layout, padded=True)


def _widths(fields: FieldTable, own: Dims, dims: Dims) -> dict[str, int]:
    """Sizes of the blocks of a table once its feeder is padded."""
    wide = {b.key: len(b.names) for b in fields.blocks}
    wide |= {key: dims.bus for key in PER_BUS if key in wide}
    wide |= {key: dims.branch for key in PER_LINE if key in wide}
    return wide | {key: wide[key] // own.unit * dims.unit for key in PER_UNIT if key in wide}


def _obs_mask(fields: FieldTable, wide: FieldTable, n_agent: int) -> np.ndarray:
    """(A, O): real fields of a lane; what an earlier padding added stays masked."""
    real = {b.key: sum(name != PADDING_NAME for name in b.names) for b in fields.blocks}
    one = np.concatenate([np.arange(len(b.names)) < real[b.key] for b in wide.blocks])
    return np.tile(one, (n_agent, 1))


def _padded(own: DistributionEnv, p: DistributionParams, wide: DistributionEnv, active: int) -> DistributionParams:
    dims = wide.dims
    if own.layout.kinds != wide.layout.kinds:
        raise ValueError(f"fleets of {own.layout.kinds} and {wide.layout.kinds} cannot share one program.")
    n, n_branch, unit = dims.bus, dims.branch, dims.unit
    grid: dict[str, Any] = {f.name: getattr(p.grid, f.name) for f in dataclasses.fields(p.grid)}
    for name in ("from_bus", "to_bus", "rate", "branch_mask"):
        grid[name] = pad_axis(grid[name], n_branch, 0)
    for name in ("p_load", "q_load", "v_min", "bus_mask"):
        grid[name] = pad_axis(grid[name], n, 0)
    grid["v_max"] = pad_axis(grid["v_max"], n, 0, 2.0)  # a padded bus at 1.0 pu lies inside any such band
    obs = jnp.asarray(_obs_mask(own.fields, wide.fields, dims.agent))
    changed: dict[str, Any] = {}
    if unit != own.dims.unit:
        fleet = {
            f.name: pad_axis(getattr(p.storage, f.name), unit, 0, KINDS["storage"].padding.get(f.name, 0))
            for f in dataclasses.fields(p.storage)
        }
        changed["storage"] = dataclasses.replace(p.storage, **fleet)
    if p.unit_p is not None and p.unit_q is not None:
        changed |= {"unit_p": pad_axis(p.unit_p, active, 0), "unit_q": pad_axis(p.unit_q, active, 0)}
    if p.shape_bus is not None and p.shape_active is not None:
        changed["shape_bus"] = pad_axis(p.shape_bus, n, 1)
        changed["shape_active"] = pad_axis(p.shape_active, active, 1)
    return dataclasses.replace(
        p,
        masks=dataclasses.replace(p.masks, obs=obs, act=pad_axis(p.masks.act, dims.act, 1, False)),
        grid=dataclasses.replace(p.grid, **grid),
        factors=pad_feeder(p.factors, n, n_branch, active),
        place_bus=pad_axis(pad_axis(p.place_bus, unit, 0), n, 1),
        place_active=pad_axis(pad_axis(p.place_active, unit, 0), active, 1),
        p_load=pad_axis(p.p_load, active, 0),
        q_load=pad_axis(p.q_load, active, 0),
        **changed,
    )
