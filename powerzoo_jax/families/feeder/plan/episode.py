"""A drawn episode of a feeder task as a planner's problem, and a plan as the actions of that task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.devices import vehicle
from powerzoo_jax.devices.fleet import begin
from powerzoo_jax.devices.trips import at_home, events
from powerzoo_jax.envs.batch import is_stacked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import FACTOR, MEAN_AHEAD, PLANT, PRICE, SHAPE, Draw
from powerzoo_jax.families.feeder.plan.network import RadialNetwork, tree_network
from powerzoo_jax.families.feeder.plan.problem import (
    FeederEpisode,
    FlexUnits,
    PlantUnits,
    SetPoints,
    StorageUnits,
    VehicleUnits,
)

KNOWN_TERMS = frozenset(
    (
        *("energy_sales", "degradation", "settlement", "network_loss", "curtailed_energy", "comfort", "deferral"),
        *("terminal_buffer", "unmet_energy", "unserved_energy"),
    )
)
KNOWN_KINDS = frozenset(("storage", "renewable", "flexload", "vehicle"))


def build_feeder_problems(sim: Sim, draws: Draw, keys: Array) -> list[FeederEpisode]:
    """Read drawn episodes (leading axis B) out of a Sim; trips are drawn from the keys of the episodes.

    Raises ValueError for a stacked Sim, and for devices or money that the planner does not know.
    """
    _refuse(sim)
    network = _network(sim.params)
    soc, trips = _host(draws.soc), _trip_tables(sim, draws, keys)
    count = len(soc)
    rows = [(int(a), int(b)) for a, b in zip(np.asarray(draws.load_row), np.asarray(draws.price_row), strict=True)]
    return [_problem(sim, network, *rows[i], soc[i], [table[i] for table in trips]) for i in range(count)]


def _problem(
    sim: Sim, network: RadialNetwork, load_row: int, price_row: int, soc: np.ndarray, trips: list[np.ndarray]
) -> FeederEpisode:
    params, spec, env = sim.params, sim.spec, sim.env
    steps, names = spec.horizon, set(spec.term_names)
    prices = _host(params.bank.price_rows[price_row : price_row + steps])
    rows = _host(params.bank.load_rows[load_row : load_row + steps])
    # load factor of every step and shape, (T, Z)
    level = np.column_stack([rows[:, FACTOR], rows[:, env.columns.run(SHAPE)]])
    load_p, load_q = _scheduled(params, level, network)
    none = np.zeros(steps)
    n_storage = 0 if params.storage is None else params.storage.mask.shape[0]
    return FeederEpisode(
        network=network,
        load_p_mw=load_p,
        load_q_mvar=load_q,
        price_per_mwh=prices[:, PRICE] if "energy_sales" in names else none,
        loss_per_mwh=prices[:, PRICE] if "network_loss" in names else none,
        mean_price_per_mwh=float(prices[0, MEAN_AHEAD]) if "settlement" in names else 0.0,
        v_min=float(np.max(_host(params.grid.v_min))),
        v_max=float(np.min(_host(params.grid.v_max))),
        dt_hours=spec.dt_hours,
        rate_mva=_ratings(params, network) if env.rated else None,
        scale=spec.term_weights[0] * (1.0 if env.pooling == "sum" else 1.0 / env.dims.agent),
        storage=_storage(sim, soc[:n_storage], network),
        plants=_plants(sim, rows, prices[:, PRICE], network),
        flex=_flex(sim, level, network),
        vehicles=_vehicles(sim, soc[n_storage:], trips, network),
    )


def feeder_actions(sim: Sim, problem: FeederEpisode, points: SetPoints) -> np.ndarray:
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
    if factors.w_flow is not None:
        raise SolverError(
            "the planner knows feeders of plain series branches, this one has charging, ratios or shunts. "
            "Compare with the rule and the best learner, or plan on a case without them."
        )
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


def _scheduled(params: Any, level: np.ndarray, network: RadialNetwork) -> tuple[np.ndarray, np.ndarray]:
    """Scheduled consumption of the nodes, (T, M) [MW] and [MVAr]."""
    active = np.asarray(params.factors.active)
    share = np.ones((1, active.size)) if params.shape_active is None else _host(params.shape_active)
    factor = float(params.load_ratio) * network.base_mva * (level @ share)
    whole = np.zeros((2, len(level), params.grid.n_bus))
    whole[0][:, active] = factor * _host(params.p_load)
    whole[1][:, active] = factor * _host(params.q_load)
    if params.unit_p is not None:
        whole[0][:, active] -= network.base_mva * _host(params.unit_p)
        whole[1][:, active] -= network.base_mva * _host(params.unit_q)
    return whole[0][:, network.bus], whole[1][:, network.bus]


def _nodes(sim: Sim, kind: str, network: RadialNetwork) -> np.ndarray:
    """Nodes of the units of a kind."""
    units = next(block.units for block in sim.env.layout.table.blocks if block.kind == kind)
    bus = np.argmax(np.asarray(sim.params.place_bus)[list(units)], axis=1)
    return np.array([int(np.flatnonzero(network.bus == b)[0]) for b in bus])


def _has_q(sim: Sim, kind: str) -> bool:
    return any(block.kind == kind and "q_control" in block.names for block in sim.env.layout.table.blocks)


def _storage(sim: Sim, soc: np.ndarray, network: RadialNetwork) -> StorageUnits | None:
    fleet = sim.params.storage
    if fleet is None:
        return None
    names = ("capacity_mwh", "power_mw", "s_mva", "eta_charge", "eta_discharge", "soc_min", "soc_max")
    return StorageUnits(
        node=_nodes(sim, "storage", network),
        soc_start=np.clip(soc, _host(fleet.soc_min), _host(fleet.soc_max)),
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


def _trip_tables(sim: Sim, draws: Draw, keys: Array) -> list[np.ndarray]:
    """Trip tables of the vehicles, step by step, (B, T, V) each: home, energy driven, departure."""
    fleet, minutes = sim.params.vehicle, round(sim.spec.dt_hours * 60)
    if fleet is None:
        return []

    @jax.jit
    @jax.vmap
    def tables(key: Array, soc: Array) -> tuple[Array, Array, Array]:
        state = begin(sim.env.layout, key, soc, sim.params, sim.spec.dt_hours)["vehicle"]
        trips = vehicle.episode_trips(fleet, state)
        clock = jnp.arange(sim.spec.horizon, dtype=jnp.int32) * minutes
        happening = jax.vmap(lambda minute: events(trips, minute, minutes))(clock)
        home = jax.vmap(lambda minute: at_home(trips, minute, minutes))(clock)
        return home, jnp.where(happening.arrives, happening.energy_mwh, 0), happening.departs

    return [np.asarray(table) for table in tables(keys, draws.soc)]


def _vehicles(sim: Sim, soc: np.ndarray, trips: list[np.ndarray], network: RadialNetwork) -> VehicleUnits | None:
    fleet = sim.params.vehicle
    if fleet is None:
        return None
    home, driven, departs = trips
    names = ("capacity_mwh", "charge_mw", "discharge_mw", "eta_charge", "eta_discharge", "soc_min", "soc_max")
    return VehicleUnits(
        node=_nodes(sim, "vehicle", network),
        soc_start=np.clip(soc, _host(fleet.soc_min), _host(fleet.soc_max)),
        wear_per_mwh=_host(fleet.degradation_per_mwh),
        need=_host(fleet.soc_departure_min),
        unmet_per_mwh=_host(fleet.unmet_usd_per_mwh) * ("unmet_energy" in sim.spec.term_names),
        home=home,
        driven_mwh=driven.astype(np.float64),
        departs=departs,
        **{name: _host(getattr(fleet, name)) for name in names},
    )


def _own(kind: str, sim: Sim, problem: FeederEpisode, points: SetPoints) -> np.ndarray:
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


def action_batch(sim: Sim, problems: Sequence[FeederEpisode], points: Sequence[SetPoints]) -> np.ndarray:
    """Actions (B, T, A, U) of a batch of plans."""
    return np.stack([feeder_actions(sim, p, x) for p, x in zip(problems, points, strict=True)])
