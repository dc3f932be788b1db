"""A drawn episode of a feeder task as a planner's problem, and a plan as the actions of that task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.devices import vehicle
from powerzoo_jax.devices.trips import at_home, events
from powerzoo_jax.envs.batch import is_stacked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.envs.series import MEAN_AHEAD, PLANT, PRICE
from powerzoo_jax.oracle.feederproblem import (
    FeederProblem,
    FlexUnits,
    PlantUnits,
    SetPoints,
    StorageUnits,
    VehicleUnits,
)
from powerzoo_jax.oracle.network import RadialNetwork, tree_network

KNOWN_TERMS = frozenset(
    (
        *("energy_sales", "degradation", "settlement", "network_loss", "curtailed_energy", "comfort", "deferral"),
        *("terminal_buffer", "unmet_energy", "unserved_energy"),
    )
)
KNOWN_KINDS = frozenset(("storage", "renewable", "flexload", "vehicle"))


def build_feeder_problem(sim: Sim, drawn: Draw, key: Array) -> FeederProblem:
    """Read a drawn episode (no batch axis) out of a Sim; `key` is the episode's, from which trips are drawn.

    Raises ValueError for a stacked Sim, and for devices or money that the planner does not know.
    """
    _refuse(sim)
    params, spec, env = sim.params, sim.spec, sim.env
    network = _network(params)
    first, steps = int(drawn.price_row), spec.horizon
    prices = _host(params.bank.price_rows)[first : first + steps]
    rows = _host(params.bank.load_rows)[int(drawn.load_row) : int(drawn.load_row) + steps]
    level = _levels(env.columns, rows)
    names = set(spec.term_names)
    paid = prices[:, PRICE] if "energy_sales" in names else np.zeros(steps)
    load_p, load_q = _scheduled(params, level, network)
    state = env.begin(key, drawn, params)[0]
    return FeederProblem(
        network=network,
        load_p_mw=load_p,
        load_q_mvar=load_q,
        price_per_mwh=paid,
        loss_per_mwh=prices[:, PRICE] if "network_loss" in names else np.zeros(steps),
        mean_price_per_mwh=float(prices[0, MEAN_AHEAD]) if "settlement" in names else 0.0,
        v_min=float(np.max(_host(params.grid.v_min))),
        v_max=float(np.min(_host(params.grid.v_max))),
        dt_hours=spec.dt_hours,
        rate_mva=_ratings(params, network) if env.rated else None,
        scale=spec.term_weights[0] * (1.0 if env.pooling == "sum" else 1.0 / env.dims.agent),
        storage=_storage(sim, state, network),
        plants=_plants(sim, rows, prices[:, PRICE], network),
        flex=_flex(sim, level, network),
        vehicles=_vehicles(sim, state, network),
    )


def feeder_actions(sim: Sim, problem: FeederProblem, points: SetPoints) -> np.ndarray:
    """A plan as kernel actions (T, A, U) in [-1, 1]; what is available at a step turns set-points into shares."""
    env, steps = sim.env, problem.horizon
    own = {kind: _own(kind, sim, problem, points) for kind in env.layout.kinds}
    action = np.zeros((steps, env.dims.agent, env.dims.act))
    for block in env.layout.table.blocks:
        low, high = np.asarray(block.low), np.asarray(block.high)
        kernel = (own[block.kind] - (high + low) / 2) / ((high - low) / 2)
        width = len(block.names)
        for k, unit in enumerate(block.units):
            if env.layout.per_device:
                action[:, unit, :width] = kernel[:, k, :width]
            else:
                action[:, 0, block.first[k] : block.first[k] + width] = kernel[:, k, :width]
    return np.clip(action, -1.0, 1.0)


def _refuse(sim: Sim) -> None:
    if is_stacked(sim):
        raise ValueError("a stacked Sim holds several tasks; plan for its members one by one before stacking.")
    unknown_terms = set(sim.spec.term_names) - KNOWN_TERMS
    unknown_kinds = set(sim.env.layout.kinds) - KNOWN_KINDS
    if unknown_terms or unknown_kinds or len(set(sim.spec.term_weights)) != 1:
        found = ", ".join(sorted(unknown_terms | unknown_kinds)) or "reward terms of unequal weight"
        raise ValueError(f"task {sim.spec.id!r} has {found}, which this planner does not know.")


def _host(values: Any) -> np.ndarray:
    return np.asarray(values, np.float64)


def _root(params: Any) -> int:
    """Position of the slack bus: the one that is neither idle nor active."""
    root = ~np.asarray(params.factors.idle)
    root[np.asarray(params.factors.active)] = False
    return int(np.flatnonzero(root)[0])


def _network(params: Any) -> RadialNetwork:
    grid, factors = params.grid, params.factors
    return tree_network(
        grid.n_bus,
        (np.asarray(grid.from_bus), np.asarray(grid.to_bus)),
        np.asarray(grid.branch_mask),
        (np.asarray(factors.r_pu), np.asarray(factors.x_pu)),
        _root(params),
        float(factors.v_slack),
        float(grid.base_mva),
    )


def _ratings(params: Any, network: RadialNetwork) -> np.ndarray:
    """Rating of the branch that leads to each node, (M,) [MVA]."""
    ends = np.stack([np.asarray(params.grid.from_bus), np.asarray(params.grid.to_bus)])
    up = np.where(network.up >= 0, network.bus[network.up], _root(params))
    rates = _host(params.grid.rate) * network.base_mva
    rating = np.zeros(network.bus.size)
    for node, pair in enumerate(zip(up, network.bus, strict=True)):
        joins = np.all(np.sort(ends, axis=0) == np.sort(pair)[:, None], axis=0) & np.asarray(params.grid.branch_mask)
        rating[node] = rates[joins].max()
    return rating


def _levels(columns: Any, rows: np.ndarray) -> np.ndarray:
    """Load factor of every step and shape, (T, Z)."""
    return np.asarray([np.atleast_1d(np.asarray(columns.factors(row), np.float64)) for row in rows])


def _scheduled(params: Any, level: np.ndarray, network: RadialNetwork) -> tuple[np.ndarray, np.ndarray]:
    """Scheduled consumption of the nodes, (T, M) [MW] and [MVAr]."""
    active = np.asarray(params.factors.active)
    share = np.ones((1, active.size)) if params.shape_active is None else _host(params.shape_active)
    factor = float(params.load_ratio) * network.base_mva * (level @ share)
    whole = np.zeros((2, len(level), params.grid.n_bus))
    whole[0][:, active] = factor * _host(params.p_load)
    whole[1][:, active] = factor * _host(params.q_load)
    return whole[0][:, network.bus], whole[1][:, network.bus]


def _nodes(sim: Sim, kind: str, network: RadialNetwork) -> np.ndarray:
    """Nodes of the units of a kind."""
    units = next(block.units for block in sim.env.layout.table.blocks if block.kind == kind)
    bus = np.argmax(np.asarray(sim.params.place_bus)[list(units)], axis=1)
    return np.array([int(np.flatnonzero(network.bus == b)[0]) for b in bus])


def _has_q(sim: Sim, kind: str) -> bool:
    return any(block.kind == kind and "q_control" in block.names for block in sim.env.layout.table.blocks)


def _storage(sim: Sim, state: Any, network: RadialNetwork) -> StorageUnits | None:
    fleet = sim.params.storage
    if fleet is None:
        return None
    names = ("capacity_mwh", "power_mw", "s_mva", "eta_charge", "eta_discharge", "soc_min", "soc_max")
    return StorageUnits(
        node=_nodes(sim, "storage", network),
        soc_start=_host(state.storage.soc),
        wear_per_mwh=_host(fleet.degradation_per_mwh) * ("degradation" in sim.spec.term_names),
        reactive=_has_q(sim, "storage"),
        **{name: _host(getattr(fleet, name)) for name in names},
    )


def _plants(sim: Sim, rows: np.ndarray, price: np.ndarray, network: RadialNetwork) -> PlantUnits | None:
    fleet = sim.params.renewable
    if fleet is None:
        return None
    available = np.clip(rows[:, sim.env.columns.run(PLANT)], 0, 1) * _host(fleet.capacity_mw)
    lost = np.maximum(price, 0) if "curtailed_energy" in sim.spec.term_names else np.zeros_like(price)
    return PlantUnits(
        node=_nodes(sim, "renewable", network),
        s_mva=_host(fleet.s_mva),
        available_mw=available,
        curtail_per_mwh=np.broadcast_to(lost[:, None], available.shape),
        reactive=_has_q(sim, "renewable"),
    )


def _flex(sim: Sim, level: np.ndarray, network: RadialNetwork) -> FlexUnits | None:
    fleet, params = sim.params.flexload, sim.params
    if fleet is None:
        return None
    share = np.ones((1, fleet.mask.shape[0])) if params.flex_shape is None else _host(params.flex_shape)
    p, q = _host(params.flex_p_mw), _host(params.flex_q_mvar)
    load = float(params.load_ratio) * (level @ share) * p
    return FlexUnits(
        node=_nodes(sim, "flexload", network),
        curtail_cap_mw=_host(fleet.curtail_cap_mw),
        shift_cap_mw=_host(fleet.shift_cap_mw),
        curtail_per_mwh=_host(fleet.curtail_usd_per_mwh),
        shift_per_mwh=_host(fleet.shift_usd_per_mwh),
        load_mw=load,
        q_ratio=np.broadcast_to(np.divide(q, p, out=np.zeros_like(p), where=p != 0), load.shape),
        horizon=sim.env.layout.return_steps,
    )


def _vehicles(sim: Sim, state: Any, network: RadialNetwork) -> VehicleUnits | None:
    fleet = sim.params.vehicle
    if fleet is None:
        return None
    trips, dt = vehicle.episode_trips(fleet, state.vehicle), round(sim.spec.dt_hours * 60)
    minutes = jnp.arange(sim.spec.horizon, dtype=jnp.int32) * dt
    happening = jax.vmap(lambda minute: events(trips, minute, dt))(minutes)
    home = jax.vmap(lambda minute: at_home(trips, minute, dt))(minutes)
    names = ("capacity_mwh", "charge_mw", "discharge_mw", "eta_charge", "eta_discharge", "soc_min", "soc_max")
    return VehicleUnits(
        node=_nodes(sim, "vehicle", network),
        soc_start=_host(state.vehicle.soc),
        wear_per_mwh=_host(fleet.degradation_per_mwh),
        need=_host(fleet.soc_departure_min),
        unmet_per_mwh=_host(fleet.unmet_usd_per_mwh) * ("unmet_energy" in sim.spec.term_names),
        home=np.asarray(home),
        driven_mwh=_host(happening.energy_mwh) * np.asarray(happening.arrives),
        departs=np.asarray(happening.departs),
        **{name: _host(getattr(fleet, name)) for name in names},
    )


def _own(kind: str, sim: Sim, problem: FeederProblem, points: SetPoints) -> np.ndarray:
    """Set-points in a device's own action space, (T, G, 1 or 2)."""
    params = sim.params
    if kind == "storage":
        parts = [points.storage_mw / _host(params.storage.power_mw), points.storage_mvar / _host(params.storage.s_mva)]
    elif kind == "renewable":
        assert problem.plants is not None
        some = problem.plants.available_mw
        held = 1 - np.divide(points.plant_mw, some, out=np.ones_like(some), where=some > 0)
        parts = [1 - 2 * held, points.plant_mvar / _host(params.renewable.s_mva)]
    elif kind == "flexload":
        fleet = params.flexload
        parts = [points.shed_mw / _host(fleet.curtail_cap_mw), points.defer_mw / _host(fleet.shift_cap_mw)]
    else:
        fleet, p = params.vehicle, points.vehicle_mw
        parts = [p / np.where(p > 0, _host(fleet.discharge_mw), _host(fleet.charge_mw))]
    return np.stack(parts, axis=-1)


def action_batch(sim: Sim, problems: Sequence[FeederProblem], points: Sequence[SetPoints]) -> np.ndarray:
    """Actions (B, T, A, U) of a batch of plans."""
    return np.stack([feeder_actions(sim, p, x) for p, x in zip(problems, points, strict=True)])
