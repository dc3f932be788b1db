"""Parameters of the package from a world of the tests' own reader, and orders from its actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import PQ, PV, REF, BranchTable, BusTable, LoadTable, UnitTable
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.operation.actions import ElementNames
from powerzoo_jax.families.operation.env import OperationEnv
from powerzoo_jax.families.operation.fields import operation_fields
from powerzoo_jax.families.operation.names import COSTS, TERMS
from powerzoo_jax.families.operation.topology import reach
from powerzoo_jax.families.operation.types import EpisodeRows, Fleet, Forecast, GridAction, OperationParams, Rules
from powerzoo_jax.powerflow.busbars.network import prepare_topology
from tests.references.grid2op import Action
from tests.references.grid2op_world import Episode, Grid, World

ENDS = ("or", "ex", "unit", "load", "storage")


def case_of(grid: Grid) -> tuple[Case, np.ndarray]:
    """Case of a grid, and the conductance of its branches [pu]."""
    ratio = np.sqrt((grid.y[3] / grid.y[0]).real)
    series = -grid.y[1] * ratio
    end, z = grid.y[3] - series, 1 / series
    zeros, n, g = np.zeros, len(grid.vn_kv), len(grid.sub["unit"])
    shunt = zeros(n, complex)
    np.add.at(shunt, grid.sub["shunt"], grid.s_shunt)
    kind = np.full(n, PQ)
    kind[grid.sub["unit"]] = PV
    kind[grid.sub["unit"][grid.slack]] = REF
    fixed = np.flatnonzero(grid.s_fixed)
    at, s = np.concatenate([grid.sub["load"], fixed]), np.concatenate([grid.s_load, -grid.s_fixed[fixed]])
    lines = len(ratio)
    wide, none = np.full(lines, 360.0), zeros(lines)
    bus = BusTable(
        id=np.arange(n), kind=kind, gs_mw=shunt.real, bs_mvar=-shunt.imag, v_init_pu=np.ones(n),
        angle_init_deg=zeros(n), base_kv=grid.vn_kv, v_max_pu=np.full(n, 1.5), v_min_pu=np.full(n, 0.5),
    )  # fmt: skip
    branch = BranchTable(
        from_id=grid.sub["or"], to_id=grid.sub["ex"], r_pu=z.real, x_pu=z.imag, b_pu=2 * end.imag, rate_a_mva=none,
        tap=ratio, shift_deg=none, in_service=np.ones(lines, bool), angle_min_deg=-wide, angle_max_deg=wide,
    )  # fmt: skip
    far = np.full(g, 9e9)
    unit = UnitTable(
        bus_id=grid.sub["unit"], p_mw=grid.p_unit_mw, q_mvar=zeros(g), q_max_mvar=far, q_min_mvar=-far,
        v_set_pu=grid.v_unit_pu, base_mva=np.full(g, 100.0), in_service=np.ones(g, bool), p_max_mw=far, p_min_mw=-far,
        cost_model=zeros(g), cost_terms=zeros(g), startup_usd=zeros(g), shutdown_usd=zeros(g), cost=zeros((g, 1)),
    )  # fmt: skip
    load = LoadTable(bus_id=at, p_mw=s.real, q_mvar=s.imag)
    return Case("five", grid.base_mva, "", bus, branch, unit, load), 2 * end.real


def orders_of(action: Action, grid: Grid) -> GridAction:
    """GridAction of an action, NumPy."""
    places = np.concatenate([grid.place[kind] for kind in ENDS])
    return GridAction(
        set_line=action.set_line.astype(np.int8), switch_line=np.asarray(action.switch_line, bool),
        set_busbar=action.set_bus[places].astype(np.int8), change_busbar=np.asarray(action.change_bus, bool)[places],
        redispatch=action.redispatch.astype(np.float32), curtail=action.curtail.astype(np.float32),
        storage=action.storage.astype(np.float32),
    )  # fmt: skip


def params_of(world: World, episodes: Sequence[Episode], table: Sequence[Action], dtype: Any) -> OperationParams:
    """Parameters of a world with some of its episodes and a table of actions."""
    grid, p = world.grid, world.parameters
    case, conductance = case_of(grid)
    n_line, f32 = grid.n_line, np.float32
    loads = len(grid.sub["load"])
    whole = {key: np.concatenate([e.rows[key] for e in episodes]) for key in ("prod_p", "load_p", "load_q")}
    v_unit = [
        e.rows["prod_v"].astype(f32) / grid.vn_kv[grid.sub["unit"]].astype(f32)
        if "prod_v" in e.rows else np.tile(grid.v_unit_pu.astype(f32), (e.steps + 1, 1))
        for e in episodes
    ]  # fmt: skip

    def by_sub(v_unit: np.ndarray) -> np.ndarray:
        v_set = np.ones((len(v_unit), grid.n_sub), f32)
        v_set[:, grid.sub["unit"]] = v_unit
        return v_set

    ahead = {key: np.concatenate([e.forecast[key] for e in episodes]) for key in episodes[0].forecast}
    if "prod_v" in ahead:
        ahead["prod_v"] = by_sub(ahead["prod_v"].astype(f32) / grid.vn_kv[grid.sub["unit"]].astype(f32))
    named = {"prod_p": "p_unit", "load_p": "p_load", "load_q": "q_load", "prod_v": "v_set"}
    forecast = Forecast(**{named[key]: jnp.asarray(x, f32) for key, x in ahead.items()}) if ahead else None

    def optional(found: Any, fill: Any, kind: Any) -> Any:
        parts = [found(e) for e in episodes]
        if all(x is None for x in parts):
            return None
        empty = (np.full((e.steps + 1, n_line), fill) for e in episodes)
        rows = (other if x is None else x for x, other in zip(parts, empty, strict=True))
        return jnp.asarray(np.concatenate(list(rows)), kind)

    def out_of(e: Episode) -> Any:
        found = [e.rows[key] for key in ("maintenance", "hazards") if key in e.rows]
        return np.any(found, axis=0) if found else None

    sizes = [e.steps + 1 for e in episodes]
    bank = EpisodeRows(
        p_unit=jnp.asarray(whole["prod_p"], f32), p_load=jnp.asarray(whole["load_p"], f32),
        q_load=jnp.asarray(whole["load_q"], f32), v_set=jnp.asarray(by_sub(np.concatenate(v_unit))), forecast=forecast,
        clock=jnp.zeros((sum(sizes), 2), f32),
        load_left=jnp.concatenate([jnp.asarray(e.rows["load_p"].sum(1)[::-1].cumsum()[::-1], f32) for e in episodes]),
        out=optional(out_of, False, bool), to_next=optional(lambda e: e.to_maintenance, -1, np.int32),
        left=optional(lambda e: e.maintenance_left, 0, np.int32),
        hazard_left=optional(lambda e: e.hazard_left, 0, np.int32),
    )  # fmt: skip
    areas = world.areas or [range(grid.n_sub)]
    rules = Rules(
        hard=f32(p["HARD_OVERFLOW_THRESHOLD"]), soft=f32(p["SOFT_OVERFLOW_THRESHOLD"]),
        allowed_steps=np.int32(p["NB_TIMESTEP_OVERFLOW_ALLOWED"]), protected=not p["NO_OVERFLOW_DISCONNECTION"],
        reconnection=np.int32(p["NB_TIMESTEP_RECONNECTION"]), cooldown_line=np.int32(p["NB_TIMESTEP_COOLDOWN_LINE"]),
        cooldown_sub=np.int32(p["NB_TIMESTEP_COOLDOWN_SUB"]), max_lines=np.int32(p["MAX_LINE_STATUS_CHANGED"]),
        max_subs=np.int32(p["MAX_SUB_CHANGED"]), unchecked=world.always_legal,
        area=np.stack([np.isin(np.arange(grid.n_sub), list(area)) for area in areas]),
        storage_loss=p["ACTIVATE_STORAGE_LOSS"], storage_start=f32(p["INIT_STORAGE_CAPACITY"]),
    )  # fmt: skip
    fleet = Fleet(
        **{key: getattr(world, key) for key in Fleet.__dataclass_fields__ if key != "known"},
        known=world.has_units,
    )  # fmt: skip
    fixed = grid.s_fixed[np.flatnonzero(grid.s_fixed)]
    with jax.enable_x64(dtype == np.float64):
        factors = prepare_topology(
            case, storages=grid.sub["storage"].tolist(), conductance_pu=conductance, dtype=np.dtype(dtype)
        )
        rest = dict(
            rules=rules, fleet=fleet, limit_a=world.limit_a,
            amps=(grid.base_mva * 1e3 / (np.sqrt(3) * grid.vn_kv[grid.sub["or"]])).astype(dtype),
            sub=np.concatenate([grid.sub[kind] for kind in ENDS]).astype(np.int32),
            place=np.concatenate([grid.place[kind] for kind in ENDS]).astype(np.int32), kv=grid.vn_kv.astype(dtype),
            q_storage=grid.s_storage.imag.astype(dtype),
            p_fixed=-fixed.real.astype(dtype), q_fixed=-fixed.imag.astype(dtype),
            table=jax.tree.map(lambda *x: np.stack(x), *(orders_of(a, grid) for a in table)),
            first_row=np.cumsum([0, *sizes[:-1]]).astype(np.int32), n_step=np.array(sizes, np.int32) - 1,
        )  # fmt: skip
        assert loads == whole["load_p"].shape[1]
        table = jax.tree.map(jnp.asarray, rest.pop("table"))
        params = OperationParams(
            reach=None, table=table, grid=to_grid(case, np.dtype(dtype)), factors=factors, masks=None,
            horizon=jnp.asarray(max(sizes) - 1, jnp.int32), bank=bank, **jax.tree.map(jnp.asarray, rest),
        )  # fmt: skip
        return params.replace(reach=reach(table, params))


def sim_of(world: World, episodes: Sequence[Episode], table: Sequence[Action], dtype: Any = np.float32) -> Sim:
    """Simulation of a world, whose reward counts every term as 1."""
    grid, names = world.grid, world.grid.names
    sub = np.concatenate([grid.sub[kind] for kind in ENDS])
    fields = operation_fields(ElementNames(*(names[kind] for kind in ("line", "unit", "load", "storage")), sub))
    params = params_of(world, episodes, table, dtype)
    dims = Dims(
        bus=grid.n_sub, branch=grid.n_line, unit=len(names["unit"]), agent=1, obs=fields.size, act=1,
        choice=len(table), cost=len(COSTS), term=len(TERMS),
    )  # fmt: skip
    weights, horizon = (1.0,) * len(TERMS), int(params.horizon)
    spec = TaskSpec(
        id="five", version=1, family="operation", case="five", horizon=horizon, dt_hours=1 / 12, split="all",
        agents=("operator",), cost_names=COSTS, cost_budget=(np.inf, np.inf), term_names=TERMS, term_weights=weights,
    )  # fmt: skip
    env = OperationEnv(dims=dims, dt_hours=1 / 12, term_weights=weights, fields=fields)
    return Sim(params=params.replace(masks=no_padding(dims)), env=env, spec=spec)
