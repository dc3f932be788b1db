"""Batches of lanes: `stack` pads simulations to common sizes, `lanes` tells vmap which leaves are mapped.

`autoreset` and `vstep` begin a fresh episode where one has ended. `step` itself never resets.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.base.random import Purpose, purpose_key
from powerzoo_jax.base.tree import stack_leaves, where_done
from powerzoo_jax.base.types import Step
from powerzoo_jax.envs.core import Sim, as_array, tell_if_slow
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.powerflow import ThreePhaseFactors
from powerzoo_jax.powerflow.batching import in_groups
from powerzoo_jax.powerflow.rows import common_length

TOGETHER = 128  # lanes begun at once where few of them end in a step
SHARED = (
    "family",
    "cost_names",
    "term_names",
    "term_weights",
    "agents",
    "dt_hours",
    "horizon",
    "dtype",
    "observation blocks",
    "solver",
)


def is_stacked(sim: Sim) -> bool:
    """True for a Sim that carries a lane axis."""
    return sim.params.horizon.ndim == 1


def lanes(sim: Sim) -> Any:
    """in_axes of a stacked Sim for `jax.vmap`: 0 on what differs between lanes, None on what they share.

    Example:
        sims = powerzoo_jax.stack([powerzoo_jax.make("battery_arbitrage", v_max=v) for v in (1.05, 1.10)])
        keys = jax.random.split(jax.random.key(0), 2)
        init = jax.jit(jax.vmap(lambda s, k: s.init(k), in_axes=(powerzoo_jax.lanes(sims), 0)))
        states, obs = init(sims, keys)
    """
    ask = family_of(sim).shares_factors or factors_shared
    shared = {"bank"} | ({"factors"} if ask(sim.params.factors) else set())
    fields = {f.name: None if f.name in shared else 0 for f in dataclasses.fields(sim.params)}
    return dataclasses.replace(sim, params=dataclasses.replace(sim.params, **fields))


def factors_shared(factors: Any) -> bool:
    """Whether the factors of a solver, or of none, are those of all lanes."""
    if isinstance(factors, ThreePhaseFactors):
        return factors.taps.ndim == 1
    if isinstance(factors, DcOpfFactors):
        return factors.base_mva.ndim == 0
    return not jax.tree.leaves(factors) or factors.v_slack.ndim == 0


def stack(sims: Sequence[Sim]) -> Sim:
    """Stack simulations of one family into lanes of one program.

    Grids are padded to common sizes with rows that are inert by construction; banks are concatenated once,
    equal ones stored once; solver factors that all lanes share stay unmapped, so their products stay fast.
    Raises ValueError for an empty list, for a Sim that is stacked already, or for tasks whose families, costs,
    terms, horizons, steps, dtypes or kinds of observation differ.

    Example:
        sims = powerzoo_jax.stack([powerzoo_jax.make("battery_arbitrage", case=c) for c in ("case33bw", "case69")])
    """
    _refuse_unequal(sims)
    first = sims[0]
    env, params = (family_of(first).align or equal_lanes)(sims)
    bank, offsets = _merge_banks([p.bank for p in params])
    params = [_shift_starts(p, *offset) for p, offset in zip(params, offsets, strict=True)]
    alike = common_length([p.factors for p in params])
    shared = all(_same(alike[0], other) for other in alike[1:])
    factors = alike[0] if shared else stack_leaves(alike)
    stripped = [dataclasses.replace(p, bank=None, factors=None) for p in params]
    stacked = dataclasses.replace(stack_leaves(stripped), bank=bank, factors=factors)
    cases = ",".join(dict.fromkeys(s.spec.case for s in sims))
    return Sim(params=stacked, env=env, spec=dataclasses.replace(first.spec, case=cases))


def equal_lanes(sims: Sequence[Sim]) -> tuple[Any, list[Any]]:
    """The environment that all lanes share, and the parameters of each. Raises ValueError where a size differs."""
    env = sims[0].env
    if any(sim.env != env for sim in sims[1:]):
        raise ValueError(
            f"cannot stack {sims[0].spec.id!r}: a size or another static setting differs between the lanes. "
            "Stack simulations that differ in ratings, prices and data alone."
        )
    return env, [sim.params for sim in sims]


def _refuse_unequal(sims: Sequence[Sim]) -> None:
    """Raise ValueError naming the first field in which simulations differ that lanes of one program must share."""
    if not sims:
        raise ValueError("stack needs at least one simulation.")
    if any(is_stacked(s) for s in sims):
        raise ValueError("cannot stack a Sim that is stacked already. Give all its members in one call.")
    for other in sims[1:]:
        for field, a, b in zip(SHARED, _shared(sims[0]), _shared(other), strict=True):
            if a != b:
                raise ValueError(
                    f"cannot stack {sims[0].spec.id!r} and {other.spec.id!r}: {field} differs ({a!r}, {b!r}). "
                    "Stack tasks of one family that share their cost channels, reward terms, clock and dtype."
                )


def _shared(sim: Sim) -> tuple[Any, ...]:
    """Values of the fields named in SHARED."""
    spec = (getattr(sim.spec, field) for field in SHARED[:-3])
    blocks = tuple(block.key for block in sim.env.fields.blocks)
    return *spec, sim.spaces()[0].low.dtype.name, blocks, sim.env.solver


def _shift_starts(params: Any, load_offset: int, price_offset: int = 0) -> Any:
    """Move the start rows of a lane to where its series stand in the concatenated bank."""
    starts = dataclasses.replace(
        params.starts,
        load_row=params.starts.load_row + load_offset,
        price_row=params.starts.price_row + price_offset,
    )
    return dataclasses.replace(params, starts=starts)


def _same(a: Any, b: Any) -> bool:
    left, right = jax.tree.leaves(a), jax.tree.leaves(b)
    return all(x.shape == y.shape and bool(np.array_equal(x, y)) for x, y in zip(left, right, strict=True))


def _merge_banks(banks: Sequence[Any]) -> tuple[Any, list[tuple[int, ...]]]:
    """Tables of the lanes' time series behind one another, equal ones once: (bank, first row of each lane by series).

    Tables whose names begin alike, price_rows and price_sums, are of one series: the same row means the same step.
    """
    names = [f.name for f in dataclasses.fields(banks[0]) if getattr(banks[0], f.name) is not None]
    merged: dict[str, Any] = {}
    offsets: list[list[int]] = [[] for _ in banks]
    for _, series in itertools.groupby(names, key=lambda name: name.partition("_")[0]):
        tables = tuple(series)
        kept: list[tuple[Any, ...]] = []
        for lane, bank in enumerate(banks):
            rows = tuple(getattr(bank, name) for name in tables)
            known = [i for i, other in enumerate(kept) if _same(other, rows)]
            if not known:
                kept.append(rows)
            position = known[0] if known else len(kept) - 1
            offsets[lane].append(sum(len(other[0]) for other in kept[:position]))
        for name, parts in zip(tables, zip(*kept, strict=True), strict=True):
            merged[name] = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
    return type(banks[0])(**merged), [tuple(o) for o in offsets]


def _ended(out: Step) -> Array:
    return out.info.terminated | out.info.truncated


def _fresh(sim: Sim, state: Any) -> tuple[Any, Array]:
    return sim.init(purpose_key(state.key, Purpose.NEXT_EPISODE))


def autoreset(sim: Sim, out: Step) -> tuple[Any, Array]:
    """Return (state, obs) to act on after `out`, one environment at a time; obs (A, O) in the units of `out.obs`.

    A fresh episode where `out` ended one, else (out.state, out.obs); `out` keeps the true last observation.
    Under vmap the choice is a select, so `init` is paid at every step: batches use `vstep`.

    Example:
        state, obs = jax.jit(sim.init)(key)
        out = jax.jit(sim.step)(state, jnp.zeros((1, 1)))
        state, obs = jax.jit(powerzoo_jax.autoreset)(sim, out)
    """
    fresh = _fresh(sim, out.state)
    return where_done(_ended(out), fresh, (out.state, out.obs))


def vstep(sims: Sim, states: Any, actions: Array) -> tuple[Step, Any, Array]:
    """Step a batch and restart the lanes that ended: (out, next states, next obs).

    sims:     one Sim shared by all lanes, or a stacked Sim (see `stack` and `lanes`)
    states:   batched EnvState, leading axis B
    actions:  (B, A, U) in [-1, 1], scaled to each device's rating [MW, Mvar]
    Returns a Step with leading axis B, batched states and observations (B, A, O), or those of `split_observations`.

    `init` runs under one batch-level `cond`, that is once per horizon when lanes end together,
    and stays a branch under further `vmap`s; where `env.ends_apart`, for the lanes that ended alone.
    Raises ValueError for actions without an axis of lanes.

    Example:
        states, obs = jax.jit(jax.vmap(sim.init))(jax.random.split(key, 1024))
        out, states, obs = jax.jit(powerzoo_jax.vstep)(sim, states, jnp.zeros((1024, 1, 1)))
    """
    tell_if_slow("powerzoo_jax.vstep", (states, actions))
    actions = as_array(actions)
    if actions.ndim != 3:
        raise ValueError(f"vstep takes a batch of actions (B, A, U), got {actions.shape}. One lane: sim.step.")
    axes = batch_axes(sims)
    out = jax.vmap(lambda s, x, a: s.step(x, a), in_axes=(axes, 0, 0))(sims, states, actions)
    ended = _ended(out)

    if axes is None and getattr(sims.env, "ends_apart", False):

        def begin(sims: Sim, states: Any, old: tuple[Any, Array]) -> tuple[Any, Array]:
            del old
            return jax.vmap(_fresh, in_axes=(None, 0))(sims, states)

        states, obs = in_groups(ended, TOGETHER, begin, sims, out.state, (out.state, out.obs))
        return out, states, obs

    def restart(operand: tuple[Any, Array]) -> tuple[Any, Array]:
        fresh = jax.vmap(_fresh, in_axes=(axes, 0))(sims, operand[0])
        return where_done(ended, fresh, operand)

    states, obs = lax.cond(anywhere(ended), restart, lambda operand: operand, (out.state, out.obs))
    return out, states, obs


def split_observations(sim: Sim) -> Sim:
    """The same task with the observation of a lane as `SharedObs`: fields that all agents see are held once.

    A task of one agent, or without a table of fields, is given back as it is. Spaces are those of the task.

    Example:
        sim = split_observations(powerzoo_jax.make("opf_118"))  # 2 kB a lane in place of 42
    """
    fields = getattr(sim.env, "fields", None)
    if not isinstance(fields, FieldTable) or sim.env.dims.agent == 1:
        return sim
    return dataclasses.replace(sim, env=_with_fields(sim.env, fields._replace(split=True)))


def _with_fields(env: Any, fields: FieldTable) -> Any:
    """Environment with another table of fields; of one that wraps another, the inner one has the table."""
    inner = getattr(env, "env", None)
    if inner is not None:
        return dataclasses.replace(env, env=_with_fields(inner, fields))
    return dataclasses.replace(env, fields=fields)


def batch_axes(sims: Sim) -> Any:
    """in_axes of a Sim: None for one shared Sim, the prefix of `lanes` for a stacked one."""
    return lanes(sims) if is_stacked(sims) else None
