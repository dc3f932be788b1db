"""Opponents that hold lines open, within a budget: the laws of Grid2Op's, drawn by keys of ours.

A step adds to the budget and takes one unit for each line that an attack holds open. An attack needs as much as it
costs in all when it begins; while one lasts, or as long as the cooldown is above its length, none is chosen.

| kind | when | line |
|---|---|---|
| RandomLineOpponent | at once | any in service, by equal chances |
| WeightedRandomOpponent | after 1 to `period` steps | in service, by loading over `scale` |
| GeometricOpponent | after geometric waits, for geometric times | by exp(b rank of loading), b = log(ratio) / (n - 1) |
| GeometricOpponentMultiArea | alike in each area by itself | alike |

A geometric opponent that finds one of its lines out lets its attack pass and takes up the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import DataError, excerpt, listing, unknown
from powerzoo_jax.base.numerics import FLOAT, INT
from powerzoo_jax.base.random import integers, one_of, uniform
from powerzoo_jax.families.operation.types import Attack, OperationParams, OperationState

RANDOM, WEIGHTED = "RandomLineOpponent", "WeightedRandomOpponent"
GEOMETRIC, AREAS = "GeometricOpponent", "GeometricOpponentMultiArea"
KINDS = (RANDOM, WEIGHTED, GEOMETRIC, AREAS)
SILENT = ("BaseOpponent", "DontAct", "NeverAttackBudget")
BUDGET = "BaseActionBudget"
STEPS_PER_HOUR = 12  # whatever the clock of the series says
IDLE = np.iinfo(INT).max // 2  # of a wait that has not been drawn


@struct.dataclass(kw_only=True)
class OpponentParams:
    """Settings of an opponent, () each unless a shape is given.

    lines:     (A, L) bool  lines that it may attack, by area
    scale:     (L,) [-]     usual loadings, by which it weighs
    budget, per_step:       attacked lines x steps, at reset and more in each step
    cooldown, longest:      int32 steps
    period:                 int32 steps of which one is drawn as the wait
    launch, recover: [-]    chances of a step to begin and to end an attack
    shortest:               int32 steps of an attack before its geometric ones
    ratio: [-]              chance of the most loaded line over that of the least loaded one
    """

    kind: str = struct.field(pytree_node=False)
    lines: Array
    scale: Array
    budget: Array
    per_step: Array
    cooldown: Array
    longest: Array
    period: Array
    launch: Array
    recover: Array
    shortest: Array
    ratio: Array


@struct.dataclass(kw_only=True)
class AreaState:
    """State of the opponent of an area, int32 steps; (A,) in front.

    wait:     to the next attack, IDLE where it is not counted yet
    ahead, duration, before: wait and duration of the next attack, duration of the last one
    clock:    step of the next attack in the schedule, which ends with the longest episode
    left:     that an attack lasts on in its area, -1 none       held: (L,) bool, its line
    """

    wait: Array
    ahead: Array
    duration: Array
    before: Array
    clock: Array
    left: Array
    held: Array


@struct.dataclass(kw_only=True)
class OpponentState:
    """State of an opponent.

    budget: ()    failed: () bool, its last choice was too dear    duration, cooldown: () int32
    lines: (L,) bool, held open in the last step    areas: AreaState (A,)
    """

    budget: Array
    failed: Array
    duration: Array
    cooldown: Array
    lines: Array
    areas: AreaState


def read_opponent(config: Mapping[str, Any], lines: Sequence[str]) -> OpponentParams | None:
    """Settings from the entries opponent_* and kwargs_opponent of a config.py; None where there is no opponent.

    config:  classes by name, or as records with a `name`
    Raises DataError for an opponent or budget of another class, unknown lines, impossible times.
    """
    names = {
        key: getattr(config.get(key), "name", config.get(key)) for key in ("opponent_class", "opponent_budget_class")
    }
    kind, budget = names.values()
    if kind in (None, *SILENT) or budget in (None, *SILENT):
        return None
    if kind not in KINDS:
        raise DataError(unknown("opponent_class", kind, KINDS))
    if budget != BUDGET:
        raise DataError(unknown("opponent_budget_class", budget, (BUDGET,)))
    more = config.get("kwargs_opponent") or {}
    given = more.get("lines_attacked") or []
    areas = given if kind == AREAS else [given]
    flat = [line for area in areas for line in area]
    if not flat:
        return None
    if odd := [line for line in flat if line not in lines]:
        raise DataError(f"kwargs_opponent: lines_attacked names {listing(odd)}, which the grid has not.")
    scale, weights = np.ones(len(lines)), more.get("rho_normalization") or []
    if weights and len(weights) != len(flat):
        raise DataError(f"kwargs_opponent: {len(weights)} of rho_normalization for {len(flat)} lines. Give one each.")
    scale[[lines.index(line) for line in flat[: len(weights)]]] = weights

    def number(key: str, default: float, where: Mapping[str, Any] = more) -> float:
        value = where.get(key, default)
        if not isinstance(value, int | float) or not np.isfinite(value) or value < 0:
            raise DataError(f"{key} = {excerpt(repr(value))} is no number of at least 0.")
        return float(value)

    every, mean = number("attack_every_xxx_hour", 24), number("average_attack_duration_hour", 4)
    least, period = number("minimum_attack_duration_hour", 2), number("attack_period", 12 * 24)
    if kind in (GEOMETRIC, AREAS) and not least < mean < every:
        raise DataError(
            f"kwargs_opponent: minimum_attack_duration_hour {least:g}, average_attack_duration_hour {mean:g} and "
            f"attack_every_xxx_hour {every:g} must grow in this order."
        )
    if kind == WEIGHTED and period < 1:
        raise DataError(f"kwargs_opponent: attack_period = {period:g} is less than one step.")
    whole, real = partial(jnp.asarray, dtype=INT), partial(jnp.asarray, dtype=FLOAT)
    return OpponentParams(
        kind=kind,
        lines=jnp.asarray([[line in area for line in lines] for area in areas]),
        scale=real(scale),
        budget=real(number("opponent_init_budget", 0, config)),
        per_step=real(number("opponent_budget_per_ts", 0, config)),
        cooldown=whole(number("opponent_attack_cooldown", 99999, config)),
        longest=whole(number("opponent_attack_duration", 0, config)),
        period=whole(period),
        launch=real(1 / (STEPS_PER_HOUR * max(every - mean, 1))),
        recover=real(1 / (STEPS_PER_HOUR * max(mean - least, 1e-9))),
        shortest=whole(int(least * STEPS_PER_HOUR)),
        ratio=real(number("pmax_pmin_ratio", 4)),
    )


def initial(key: Array, params: OperationParams) -> OpponentState:
    """State at the start of an episode; `key` draws the first wait and duration of each area."""
    opponent: OpponentParams = params.opponent
    n_area, n_line = opponent.lines.shape
    ahead, duration = _draw(key, opponent, (n_area,))
    zero = jnp.zeros((), INT)
    areas = AreaState(
        wait=jnp.full(n_area, IDLE, INT),
        ahead=ahead,
        duration=duration,
        before=duration,
        clock=ahead,
        left=jnp.full(n_area, -1, INT),
        held=jnp.zeros((n_area, n_line), bool),
    )
    return OpponentState(
        budget=opponent.budget,
        failed=jnp.zeros((), bool),
        duration=zero,
        cooldown=opponent.cooldown,
        lines=jnp.zeros(n_line, bool),
        areas=areas,
    )


def attack(
    opponent: OpponentState, state: OperationState, params: OperationParams, key: Array
) -> tuple[OpponentState, Attack]:
    """Attack of a step by the state before it, and what the opponent keeps."""
    p: OpponentParams = params.opponent
    rho = state.flow.a_or.astype(FLOAT) / params.limit_a
    return strike(opponent, state.flow.on, rho, p, params.horizon, key)


def strike(
    opponent: OpponentState, on: Array, rho: Array, p: OpponentParams, horizon: Array, key: Array
) -> tuple[OpponentState, Attack]:
    """Attack by status (L,) bool and loading (L,) [-] of the lines; `horizon` ends geometric schedules."""
    budget = opponent.budget + p.per_step
    duration, cooldown = jnp.maximum(opponent.duration - 1, 0), jnp.maximum(opponent.cooldown - 1, 0)
    going = duration > 0
    asked = ~going & (cooldown <= p.cooldown)
    areas, lines, steps = _choose(opponent.areas, on, rho, p, opponent.failed, horizon, key)
    quiet = opponent.areas.replace(wait=jnp.full_like(opponent.areas.wait, IDLE))  # type: ignore[attr-defined]
    areas = jax.tree.map(lambda a, b: jnp.where(asked, a, b), areas, quiet)
    cost = (steps * jnp.sum(lines, dtype=INT)).astype(budget.dtype)
    failed = asked & ((steps > p.longest) | (cost > budget))
    began = asked & ~failed & jnp.any(lines)
    lines = jnp.where(going, opponent.lines, lines & began)
    duration = jnp.where(began, steps, duration)
    after = OpponentState(
        budget=budget - jnp.sum(lines).astype(budget.dtype),
        failed=failed,
        duration=duration,
        cooldown=cooldown + jnp.where(began, p.cooldown, 0),
        lines=lines,
        areas=areas,
    )
    return after, Attack(lines, jnp.where(jnp.any(lines), duration, 0))


def _choose(
    areas: AreaState, on: Array, rho: Array, p: OpponentParams, failed: Array, horizon: Array, key: Array
) -> tuple[AreaState, Array, Array]:
    """State by area, lines (L,) bool and steps () of a new attack; without lines there is none."""
    when, which = jax.random.split(key)
    if p.kind == AREAS:
        left = jnp.maximum(areas.left - 1, -1)
        fresh, lines = jax.vmap(partial(_geometric, p=p, failed=failed, on=on, rho=rho, horizon=horizon))(
            areas, p.lines, jax.random.split(which, len(p.lines)), jax.random.split(when, len(p.lines))
        )
        free = left == -1
        waiting = areas.replace(wait=jnp.full_like(areas.wait, IDLE))  # type: ignore[attr-defined]
        merged = jax.tree.map(lambda a, b: jnp.where(_like(free, a), a, b), fresh, waiting)
        held = jnp.where(free[:, None], lines, areas.held)
        left = jnp.where(free & jnp.any(lines, axis=1), areas.duration, left)
        return merged.replace(left=left, held=held), jnp.any(held, axis=0), jnp.ones((), INT)
    if p.kind == GEOMETRIC:
        first = jax.tree.map(lambda x: x[0], areas)
        fresh, lines = _geometric(first, p.lines[0], which, when, p, failed, on, rho, horizon)
        steps = jnp.where(jnp.any(lines), first.duration, p.longest)
        return jax.tree.map(lambda x: x[None], fresh), lines, steps
    open_to = p.lines[0] & on
    if p.kind == RANDOM:
        return areas, _pick(which, jnp.zeros_like(rho), open_to), p.longest
    drawn = 1 + integers(when, (1,), 0, p.period)
    wait = jnp.where(areas.wait == IDLE, drawn, areas.wait) - 1
    weight = jnp.where(open_to, rho / p.scale, 0)
    found = (wait[0] <= 0) & (jnp.sum(weight) > 0)
    lines = _pick(which, jnp.log(jnp.maximum(weight, jnp.finfo(FLOAT).tiny)), open_to & (weight > 0))
    return areas.replace(wait=wait), lines & found, p.longest  # type: ignore[attr-defined]


def _geometric(
    area: AreaState, lines: Array, which: Array, when: Array, p: OpponentParams, failed: Array, on: Array, rho: Array,
    horizon: Array,
) -> tuple[AreaState, Array]:  # fmt: skip
    """State of an area that is free to attack, and the line (L,) bool that it attacks."""
    active = area.clock < horizon
    wait = jnp.where(failed, area.ahead + area.before, area.wait)
    wait = jnp.where(wait == IDLE, 1 + area.ahead, wait) - 1
    launched = active & (wait <= 0)
    rank = jnp.argsort(jnp.argsort(jnp.where(lines, rho, jnp.inf)))
    slope = jnp.log(p.ratio) / jnp.maximum(jnp.sum(lines, dtype=INT) - 1, 1).astype(FLOAT)
    line = _pick(which, slope * rank.astype(FLOAT), lines) & launched & jnp.all(on | ~lines)
    ahead, duration = _draw(when, p, ())
    then = area.replace(  # type: ignore[attr-defined]
        wait=wait,
        ahead=ahead,
        duration=duration,
        before=area.duration,
        clock=area.clock + area.duration + ahead,
    )
    passed = area.replace(wait=jnp.where(active, wait, area.wait))  # type: ignore[attr-defined]
    return jax.tree.map(lambda a, b: jnp.where(launched, a, b), then, passed), line


def _like(flag: Array, x: Array) -> Array:
    return flag.reshape(*flag.shape, *(1,) * (x.ndim - 1))


def _pick(key: Array, logit: Array, among: Array) -> Array:
    """One of the lines `among` (L,) bool, by chances exp(logit) (L,), as flags; none where there are none."""
    drawn = one_of(key, jnp.where(among, logit, -jnp.inf))
    return (jnp.arange(len(among)) == drawn) & among


def _draw(key: Array, p: OpponentParams, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Wait and duration of an attack, int32 steps of a shape."""
    wait, more = (
        _geometric_steps(k, chance, shape)
        for k, chance in zip(jax.random.split(key), (p.launch, p.recover), strict=True)
    )
    return wait, p.shortest + more


def _geometric_steps(key: Array, chance: Array, shape: tuple[int, ...]) -> Array:
    """Trials to the first success, int32 of a shape: ceil(log(1 - u) / log(1 - chance)), at least 1."""
    steps = jnp.ceil(jnp.log1p(-uniform(key, shape, FLOAT)) / jnp.log1p(-chance))
    return jnp.maximum(steps, 1).astype(INT)
