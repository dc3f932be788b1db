"""Causal planner of a few units with minimum times and ramps: backward induction over who runs, rolled forward.

    V_j(s) = min over s' that s may go to of  switching(s, s') + stage_j(s') + V_(j+1)(s')

A state s says which units run and, of those with long minimum times, for how many stages they have been as they are; a
stage lasts as long as the shortest minimum time, so that the other units may switch in every one. The load of the
coming step is seen, later ones are forecast from the days of training. Ramps are left out of later stages; the coming
step is chosen and dispatched within them. Source: Padhy 2004, doi:10.1109/TPWRS.2003.821611, section III.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.causal.dispatch import LOAD, load_range, train_loads
from powerzoo_jax.families.transmission.commitment.policies import switching_costs
from powerzoo_jax.families.transmission.commitment.problem import host_rules
from powerzoo_jax.families.transmission.commitment.secure_step import units_now
from powerzoo_jax.families.transmission.plan.dispatch import host_system, reachable
from powerzoo_jax.families.transmission.plan.policies import within_limits
from powerzoo_jax.families.transmission.units import reserve_share
from powerzoo_jax.families.transmission.units_types import TransmissionParams
from powerzoo_jax.opf.commit import CommitmentState, legal_commitment, output_window
from powerzoo_jax.oracle.forecast import DailyForecast, fit_forecast, train_sim
from powerzoo_jax.oracle.registry import Policy

GRID = 49  # loads of the tables
MOST_STATES = 2**14  # of the induction
DEAR_USD = 10_000.0  # [USD/MWh] of missing reserve and of overloads
RAMP_MARGIN = 0.02  # [-] of the load, that the outputs reachable in the coming step must exceed it by
# [-] by which a load may exceed its forecast: on the val days 0 and 0.03 miss 3.4 and 0.49 MW of reserve an episode, of
# 0.5 allowed, and this 0.008; it returns 1.2 % less than 0.03
AHEAD_MARGIN = 0.06


class UnitsMemory(NamedTuple):
    """Memory of an episode. t: ();  load: (T,) load factors seen;  units: CommitmentState (G,) of the step before"""

    t: Array
    load: Array
    units: CommitmentState


@struct.dataclass(kw_only=True)
class UnitsModel:
    """Constants of a planner; C sets of running units, the units with long minimum times (S) before the others.

    params:    TransmissionParams of the task, without its series
    load_mw:   (K,)    rising
    running:   (C, K)  [USD/h] of a set at a load, with overloads and load not served
    on:        (C, G)  bool
    capacity:  (C,)    [MW]
    switching: (C, C)  [USD] from one set to another
    others:    (F, F)  [USD] the same for the units that may switch in every stage
    find:      (L, G)  [-]  outputs that explain flows by as little change as can be
    forecast:  DailyForecast of the load factor
    """

    params: TransmissionParams
    load_mw: Array
    running: Array
    on: Array
    capacity: Array
    switching: Array
    others: Array
    find: Array
    forecast: DailyForecast


class SlowUnit(NamedTuple):
    """A unit with long minimum times: its place among the units, and after how many stages it may stop and start."""

    unit: int
    up: int
    down: int
    start_usd: float
    stop_usd: float

    @property
    def states(self) -> int:
        """Stages on, then stages off; the last of each is that of a unit free to switch."""
        return self.up + self.down


@dataclass(frozen=True)
class UnitsSight:
    """Columns of an observation, how actions look, and the shape of the induction; static."""

    load: int
    flow: slice
    committed: slice
    schedule: bool
    single_agent: bool
    horizon: int
    dt_hours: float
    stage: int
    slow: tuple[SlowUnit, ...]


def plan_units(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Rolling plan of who runs, and a dispatch within ratings and ramps.

    Raises ValueError for units too many or too slow to tell all their states apart, and for observations that do not
    show the whole load.
    """
    del keys
    model, sight = _model(sim)
    count, rules, dtype = draws.load_row.shape[0], sim.params.rules, model.running.dtype
    units = CommitmentState(
        on=rules.available, steps=jnp.maximum(rules.min_up, rules.min_down), p_mw=jnp.zeros_like(rules.p_min_mw)
    )
    memory = UnitsMemory(jnp.zeros((), jnp.int32), jnp.zeros(sim.spec.horizon, dtype), units)
    return Policy(
        Partial(partial(_act, sight), model),
        jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), memory),
    )


def _act(
    sight: UnitsSight, model: UnitsModel, memory: UnitsMemory, obs: Array, key: Array
) -> tuple[UnitsMemory, Array]:
    del key
    t, params = memory.t, model.params
    seen = memory.load.at[t].set(obs[0, sight.load])
    factor = model.forecast.path(seen, t + 1)
    load = params.peak_load_mw * factor + params.shunt_mw
    before = load[jnp.maximum(t - 1, 0)]
    columns = obs[0, sight.committed], obs[0, sight.flow]
    units = units_now(params, model.find, memory.units, *columns, before, first=t == 0)
    chosen = _next_set(sight, model, units, load, t)
    on = model.on[chosen]
    low, high = unchecked(output_window)(params.rules, units, on)
    score, p = within_limits(params, load[t], low, high, schedule=sight.schedule)
    intent = jnp.where(on, 1, -1).astype(score.dtype)
    action = jnp.concatenate([intent, score])[None] if sight.single_agent else jnp.stack([score, intent], axis=-1)
    return UnitsMemory(t + 1, seen, CommitmentState(on=units.on, steps=units.steps, p_mw=jnp.where(on, p, 0))), action


def _next_set(sight: UnitsSight, model: UnitsModel, units: CommitmentState, load_mw: Array, t: Array) -> Array:
    """Index of the set () that runs in the coming step, loads (T,) [MW] as far as they are known."""
    params, rules, count = model.params, model.params.rules, sight.stage
    stages = -(-sight.horizon // count)
    window = jnp.pad(load_mw, (0, stages * count), mode="edge")
    ahead = lax.dynamic_slice(window, (t,), (stages * count,)).reshape(stages, count)
    alive = (jnp.arange(stages * count, dtype=jnp.int32) < sight.horizon - t).reshape(stages, count)
    margin = jnp.full((stages, count), AHEAD_MARGIN, load_mw.dtype).at[0, 0].set(0)
    coming = _stage_costs(sight, model, ahead, margin, alive)  # (J, C)
    after = cost_to_go(sight.slow, model.others, coming[1:])

    stays = model.on == units.on[None]
    free_at = [jnp.where(model.on[:, s.unit], s.up, s.down) for s in sight.slow]
    held = [jnp.where(stays[:, s.unit], units.steps[s.unit] + count, count) // count for s in sight.slow]
    place = [
        jnp.where(model.on[:, s.unit], 0, s.up) + jnp.clip(n, 1, free) - 1
        for s, n, free in zip(sight.slow, held, free_at, strict=True)
    ]
    other = jnp.arange(len(model.on), dtype=jnp.int32) % len(model.others)
    now = jnp.argmax(jnp.all(model.on == units.on[None], axis=-1))
    value = coming[0] + after[(*place, other)] + model.switching[now]

    legal = unchecked(legal_commitment)(rules, units)
    allowed = jnp.all(jnp.where(model.on, legal[None, :, 1], legal[None, :, 0]), axis=-1)
    low, high = jax.vmap(lambda on: unchecked(output_window)(rules, units, on))(model.on)
    short = jnp.maximum((1 + RAMP_MARGIN) * load_mw[t] - jnp.sum(high, axis=-1), 0)
    spilled = jnp.maximum(jnp.sum(low, axis=-1) - load_mw[t], 0)
    value = value + sight.dt_hours * (params.voll * short + params.surplus_price * spilled)
    return jnp.argmin(jnp.where(allowed, value, jnp.inf)).astype(jnp.int32)


def _stage_costs(sight: UnitsSight, model: UnitsModel, load_mw: Array, margin: Array, alive: Array) -> Array:
    """Cost (J, C) [USD] of every set in stages of loads (J, h) [MW] that a margin (J, h) [-] may exceed."""
    money = jax.vmap(lambda row: jnp.interp(load_mw, model.load_mw, row), out_axes=-1)(model.running)
    need = (1 + reserve_share(model.params)) * (1 + margin) * (load_mw - model.params.shunt_mw)
    short = jnp.maximum(need[..., None] - model.capacity[None, None], 0)
    return sight.dt_hours * jnp.sum(jnp.where(alive[..., None], money + DEAR_USD * short, 0), axis=1)


def cost_to_go(slow: tuple[SlowUnit, ...], others: Array, costs: Array) -> Array:
    """Cost to go [USD] of every state before stages of costs (J, C); one axis a slow unit, the last one the others.

    others:  (F, F) as in `UnitsModel`
    """
    n_other = len(others)
    shape = (*(s.states for s in slow), n_other)

    paid = others.reshape(*(1 for _ in slow), n_other, n_other)

    def earlier(value: Array, cost: Array) -> tuple[Array, None]:
        cost = cost.reshape(*(2 for _ in slow), n_other)
        for axis, s in enumerate(slow):
            cost = jnp.take(cost, np.repeat([0, 1], [s.up, s.down]), axis=axis)
        value = jnp.min(paid + (value + cost)[..., None, :], axis=-1)
        for axis, s in enumerate(slow):
            value = _switched(value, axis, s)
        return value, None

    return lax.scan(earlier, jnp.zeros(shape, costs.dtype), costs, reverse=True)[0]


def _switched(value: Array, axis: int, s: SlowUnit) -> Array:
    """Cost to go before the choice of one slow unit, whose states lie along an axis of `value` after it."""
    position = np.arange(s.states)
    stay = np.where(position < s.up, np.minimum(position + 1, s.up - 1), np.minimum(position + 1, s.states - 1))
    switch = np.full(s.states, np.inf)
    switch[[s.up - 1, s.states - 1]] = s.stop_usd, s.start_usd
    there = np.where(position < s.up, s.up, 0)
    price = jnp.asarray(switch, value.dtype).reshape(*(1,) * axis, -1, *(1,) * (value.ndim - 1 - axis))
    return jnp.minimum(jnp.take(value, stay, axis=axis), jnp.take(value, there, axis=axis) + price)


def _slow_units(sim: Sim) -> tuple[int, tuple[SlowUnit, ...]]:
    """Steps of a stage, and the units that may not switch in every one."""
    wide = host_rules(sim.params.rules)
    on = np.flatnonzero(wide["available"])
    longest = np.maximum(wide["min_up"], wide["min_down"])
    stage = int(longest[on].min())
    slow = tuple(
        SlowUnit(
            int(g),
            math.ceil(wide["min_up"][g] / stage),
            math.ceil(wide["min_down"][g] / stage),
            float(wide["startup_usd"][g]),
            float(wide["shutdown_usd"][g]),
        )
        for g in on
        if longest[g] > stage
    )
    states = math.prod(s.states for s in slow) * 2 ** (len(on) - len(slow))
    if len(on) > MOST_STATES.bit_length() or states > MOST_STATES:
        raise ValueError(
            f"{sim.spec.id}: {len(on)} units, {len(slow)} of them with long minimum times, have {states} states, more "
            f"than {MOST_STATES}. Use a rule, or the oracle."
        )
    return stage, slow


def _sets(available: np.ndarray, slow: tuple[SlowUnit, ...]) -> np.ndarray:
    """Every choice of units that run (C, G) bool: the slow units change last, and each is first on, then off."""
    order = [s.unit for s in slow]
    order += [int(g) for g in np.flatnonzero(available) if g not in order]
    sets = np.zeros((2 ** len(order), len(available)), bool)
    sets[:, order] = list(itertools.product([True, False], repeat=len(order)))
    return sets


def _model(sim: Sim) -> tuple[UnitsModel, UnitsSight]:
    params, env, names = sim.params, sim.env, sim.env.fields.names
    if LOAD not in names:
        raise ValueError(f"observations of {sim.spec.id!r} lack {LOAD!r}. Build the task with obs_mode='global'.")
    stage, slow = _slow_units(sim)
    system, rules, dtype = host_system(sim), host_rules(params.rules), params.voll.dtype
    sets = _sets(rules["available"], slow)
    days, joined = train_loads(train_sim(sim))
    grid = load_range(sim, days, GRID)
    running = []
    for on in sets:
        p = reachable(system, on, grid, scores=not env.schedule).p_mw if on.any() else np.zeros((GRID, len(on)))
        money = system.cost(on, p, grid) + on @ rules["no_load_usd_per_hour"]
        running.append(money + DEAR_USD * system.overload(p, grid))
    switching = switching_costs(params.rules, sets)
    others = 2 ** int(rules["available"].sum() - len(slow))
    n_unit, n_line = env.dims.unit, len(system.rate_mw)
    first_line, first_unit = names.index("line_flow_util_0"), names.index("commitment_0")

    def real(values: Any) -> Array:
        return jnp.asarray(np.asarray(values, np.float64), dtype)

    model = UnitsModel(
        params=params.replace(bank=(), starts=()),
        load_mw=real(grid),
        running=real(running),
        on=jnp.asarray(sets),
        capacity=real(sets @ system.high_mw),
        switching=real(switching),
        # the first sets are those in which all slow units run
        others=real(switching[:others, :others]),
        find=real(np.linalg.pinv(system.of_unit).T),
        forecast=fit_forecast(days, joined, 0, 0, dtype),
    )
    sight = UnitsSight(
        load=names.index(LOAD),
        flow=slice(first_line, first_line + n_line),
        committed=slice(first_unit, first_unit + n_unit),
        schedule=env.schedule,
        single_agent=env.single_agent,
        horizon=sim.spec.horizon,
        dt_hours=env.dt_hours,
        stage=stage,
        slow=slow,
    )
    return model, sight
