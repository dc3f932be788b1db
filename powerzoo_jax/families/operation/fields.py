"""Observation of the operation of a grid: fields named after attributes of Grid2Op's observation, over their scales.

`SeenGrid` holds the attributes in Grid2Op's own units, whoever fills it; a value is shown over its scale, which is a
number of the world and not of its episodes, and clipped into the bounds that are declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.numerics import FLOAT, safe_divide
from powerzoo_jax.envs.observe import FieldBlock, FieldTable, Scene, name_values, observe, table
from powerzoo_jax.families.operation.actions import ElementNames
from powerzoo_jax.families.operation.types import OperationParams, OperationState

DAY, LOCKED, OVERFLOW = 288, 10, 2  # steps that maintenance, cooldowns and overflows are relative to
BAND_PU = 0.1  # that deviations of voltage are relative to


class SeenGrid(NamedTuple):
    """Attributes of Grid2Op's observation, in its units and by its order of elements.

    rho, p_or, q_or, v_or: (L,) [-, MW, Mvar, kV]     line_status, timestep_overflow: (L,)
    time_before_cooldown_line, time_next_maintenance, duration_next_maintenance: (L,)     time_before_cooldown_sub: (S,)
    topo_vect: (E,) in Grid2Op's order, -1 out        load_p, load_q: (D,) [MW, Mvar]
    gen_p, target_dispatch, actual_dispatch: (G,) [MW]      curtailment: (G,) share of Pmax
    storage_charge, storage_power: (B,) [MWh, MW]
    forecast:  (2,) [MW]  sums of load_p and gen_p on the next row as forecast; of this one without forecasts
    clock:     (2,)       sine and cosine of the time of day
    """

    rho: Any
    p_or: Any
    q_or: Any
    v_or: Any
    line_status: Any
    timestep_overflow: Any
    time_before_cooldown_line: Any
    time_next_maintenance: Any
    duration_next_maintenance: Any
    time_before_cooldown_sub: Any
    topo_vect: Any
    load_p: Any
    load_q: Any
    gen_p: Any
    target_dispatch: Any
    actual_dispatch: Any
    curtailment: Any
    storage_charge: Any
    storage_power: Any
    forecast: Any
    clock: Any


def _limit_mva(scene: Scene) -> Array:
    """Limits of lines as power at nominal voltage, (L,) [MVA]."""
    limit, params = scene.params.limit_a, scene.params
    return np.sqrt(3) / 1000 * params.kv[params.sub[: limit.shape[0]]].astype(FLOAT) * limit


def _pmax_mw(scene: Scene) -> Array:
    """Pmax of units, the mean limit of lines where the world does not say, (G,) [MW]."""
    most = scene.params.fleet.p_max_mw
    return jnp.where(most > 0, most, jnp.mean(scene.once(_limit_mva)))


def _all_mw(scene: Scene) -> Array:
    """Capacity of all units, () [MW]."""
    return jnp.sum(scene.once(_pmax_mw))


def _each_mw(scene: Any) -> Array:
    """Capacity for each load, () [MW]."""
    return scene.once(_all_mw) / scene.row.load_p.shape[0]


def _store_mw(scene: Scene) -> Array:
    fleet = scene.params.fleet
    return jnp.maximum(fleet.produced_mw, fleet.absorbed_mw)


def _deviation(scene: Any) -> Array:
    """Voltage at from ends over nominal less one, over the band, 0 out of service, (L,)."""
    kv, v = scene.params.kv[scene.params.sub[: scene.row.v_or.shape[0]]].astype(FLOAT), scene.row.v_or
    return jnp.where(v > 0, (v / kv - 1) / BAND_PU, 0)


FIELDS = (
    FieldBlock("rho", (), 0, 5, "1", lambda scene: scene.row.rho),
    FieldBlock("p_or", (), -5, 5, "1", lambda scene: scene.row.p_or / scene.once(_limit_mva)),
    FieldBlock("q_or", (), -5, 5, "1", lambda scene: scene.row.q_or / scene.once(_limit_mva)),
    FieldBlock("v_or", (), -5, 5, "1", _deviation),
    FieldBlock("line_status", (), 0, 1, "1", lambda scene: scene.row.line_status),
    FieldBlock("timestep_overflow", (), 0, 10, "1", lambda scene: scene.row.timestep_overflow / OVERFLOW),
    FieldBlock("time_before_cooldown_line", (), 0, 10, "1", lambda scene: scene.row.time_before_cooldown_line / LOCKED),
    FieldBlock(
        "time_next_maintenance",
        (),
        0,
        1,
        "1",
        lambda scene: jnp.where(scene.row.time_next_maintenance < 0, 1, scene.row.time_next_maintenance / DAY),
    ),
    FieldBlock("duration_next_maintenance", (), 0, 1, "1", lambda scene: scene.row.duration_next_maintenance / DAY),
    FieldBlock("time_before_cooldown_sub", (), 0, 10, "1", lambda scene: scene.row.time_before_cooldown_sub / LOCKED),
    FieldBlock("topo_vect", (), -1, 2, "1", lambda scene: scene.row.topo_vect),
    FieldBlock("load_p", (), -10, 10, "1", lambda scene: scene.row.load_p / scene.once(_each_mw)),
    FieldBlock("load_q", (), -10, 10, "1", lambda scene: scene.row.load_q / scene.once(_each_mw)),
    FieldBlock("gen_p", (), -2, 2, "1", lambda scene: scene.row.gen_p / scene.once(_pmax_mw)),
    FieldBlock("target_dispatch", (), -1, 1, "1", lambda scene: scene.row.target_dispatch / scene.once(_pmax_mw)),
    FieldBlock("actual_dispatch", (), -1, 1, "1", lambda scene: scene.row.actual_dispatch / scene.once(_pmax_mw)),
    FieldBlock("curtailment", (), -1, 1, "1", lambda scene: scene.row.curtailment),
    FieldBlock(
        "storage_charge",
        (),
        0,
        1,
        "1",
        lambda scene: safe_divide(scene.row.storage_charge, scene.params.fleet.e_max_mwh),
    ),
    FieldBlock(
        "storage_power", (), -1, 1, "1", lambda scene: safe_divide(scene.row.storage_power, scene.once(_store_mw))
    ),
    FieldBlock("forecast", (), -2, 2, "1", lambda scene: scene.row.forecast / scene.once(_all_mw)),
    FieldBlock("clock", (), -1, 1, "1", lambda scene: scene.row.clock),
)
name_values(__name__)


def operation_fields(names: ElementNames) -> FieldTable:
    """Observation of an operator; a field is called attribute[element], an element of topo_vect by its end too."""
    every = [f"{line}.{end}" for end in ("or", "ex") for line in names.line] + [
        *names.unit,
        *names.load,
        *names.storage,
    ]
    found: dict[str, Sequence[str]] = dict.fromkeys(SeenGrid._fields, names.line)
    found |= dict.fromkeys(("gen_p", "target_dispatch", "actual_dispatch", "curtailment"), names.unit)
    found |= {"time_before_cooldown_sub": [f"sub_{k}" for k in range(int(names.sub.max()) + 1)]}
    found |= {"topo_vect": [every[k] for k in names.order], "load_p": names.load, "load_q": names.load}
    found |= {"storage_charge": names.storage, "storage_power": names.storage}
    found |= {"forecast": ("load_p", "gen_p"), "clock": ("sin", "cos")}
    return table(block.named(f"{block.key}[{name}]" for name in found[block.key]) for block in FIELDS)


def observe_fields(fields: FieldTable, seen: SeenGrid, params: OperationParams) -> Array:
    """Observation (O,) of the attributes of Grid2Op's observation, whichever simulator they are from."""
    seen = SeenGrid(*(jnp.asarray(x, FLOAT) for x in seen))
    return observe(fields, Scene(0.0, params, None, seen))  # type: ignore[arg-type]


def seen_of(state: OperationState, params: OperationParams) -> SeenGrid:
    """Attributes of Grid2Op's observation at a state, in its units."""
    flow, bank = state.flow, params.bank
    row = params.first_row[state.episode] + jnp.minimum(state.t, params.n_step[state.episode])
    asked, none = bank.p_unit[row], jnp.zeros_like(state.overflow)
    ahead = bank.forecast
    later = (state.p_load, asked)
    if ahead is not None:
        first = row * (len(jax.tree.leaves(ahead)[0]) // len(bank.p_load))
        given = (ahead.p_load, ahead.p_unit)
        later = tuple(x if rows is None else rows[first] for x, rows in zip(later, given, strict=True))
    share = safe_divide(asked - flow.gen_p, params.fleet.p_max_mw)
    return SeenGrid(
        rho=flow.a_or / params.limit_a,
        p_or=flow.p_or,
        q_or=flow.q_or,
        v_or=flow.v_or,
        line_status=flow.on,
        timestep_overflow=state.overflow,
        time_before_cooldown_line=state.cooldown_line,
        time_next_maintenance=none - 1 if bank.to_next is None else bank.to_next[row],
        duration_next_maintenance=none if bank.left is None else bank.left[row],
        time_before_cooldown_sub=state.cooldown_sub,
        topo_vect=jnp.where(state.busbar == 0, -1, state.busbar)[jnp.argsort(params.place)],
        load_p=state.p_load,
        load_q=state.q_load,
        gen_p=flow.gen_p,
        target_dispatch=state.dispatch.target,
        actual_dispatch=state.dispatch.actual,
        curtailment=jnp.where(params.fleet.renewable, share, 0),
        storage_charge=state.dispatch.charge,
        storage_power=state.dispatch.storage,
        forecast=jnp.stack([jnp.sum(x) for x in later]),
        clock=bank.clock[row],
    )
