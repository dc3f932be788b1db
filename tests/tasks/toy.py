"""A tiny environment that keeps the contract, and copies of it that each break one rule: they compile in no time."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from powerzoo_jax.base import Box, Dims, EnvState, Info, Step, TaskSpec
from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.envs import Sim

HORIZON = 4

SPEC = TaskSpec(
    id="toy",
    version=0,
    family="toy",
    case="none",
    horizon=HORIZON,
    dt_hours=1.0,
    split="train",
    agents=("one",),
    cost_names=("size",),
    cost_budget=(1.0,),
    term_names=("effort",),
    term_weights=(1.0,),
)


@struct.dataclass(kw_only=True)
class ToyParams:
    """horizon () int32; table (R,): drift of the walk, one row a step."""

    horizon: Any
    table: Any


@struct.dataclass(kw_only=True)
class ToyState(EnvState):
    """x: () position of the walk, in [-1, 1]."""

    x: Any


DIMS = Dims(bus=0, branch=0, unit=0, agent=1, obs=2, act=1, choice=0, cost=1, term=1)


@dataclass(frozen=True)
class Toy:
    """A walk in [-1, 1] that the action pushes."""

    dims: Dims = DIMS

    def init(self, key, params):
        x = jax.random.uniform(key, (), params.table.dtype, -1, 1)
        state = ToyState(t=jnp.zeros((), jnp.int32), key=key, x=x)
        return state, self.observe(state, params)

    def observe(self, state, params):
        share = jnp.minimum(state.t, params.horizon).astype(state.x.dtype) / params.horizon.astype(state.x.dtype)
        return jnp.stack([state.x, share])[None]

    def push(self, action):
        return jnp.where(jnp.isfinite(action), jnp.clip(action, -1, 1), 0).reshape(())

    def step(self, state, action, params):
        drift = params.table[jnp.minimum(state.t, params.horizon - 1)]
        x = jnp.clip(state.x * 0.5 + self.push(action) * 0.4 + drift, -1, 1)
        new = dataclasses.replace(state, t=state.t + 1, x=x)
        effort = -(x * x).reshape(1, 1)
        info = Info(
            terminated=jnp.zeros((), bool),
            truncated=new.t >= params.horizon,
            pf_status=jnp.zeros((), jnp.int32),
            pf_residual=jnp.zeros_like(x),
            legal=jnp.ones((1, 0), bool),
            terms=effort,
        )
        return Step(new, self.observe(new, params), effort[:, 0], jnp.abs(x)[None], info)

    def spaces(self, params):
        dtype = np.dtype(params.table.dtype)
        return Box(np.array([[-1, 0]], dtype), np.ones((1, 2), dtype)), Box(
            -np.ones((1, 1), dtype), np.ones((1, 1), dtype)
        )


def toy_sim(env: Any = None, *, rows: int = HORIZON, **spec: Any) -> Sim:
    """A Sim of a toy; `rows` sizes its table, `spec` replaces fields of the spec."""
    params = ToyParams(horizon=jnp.asarray(HORIZON, jnp.int32), table=jnp.zeros(rows, jnp.float32))
    return Sim(params=params, env=Toy() if env is None else env, spec=dataclasses.replace(SPEC, **spec))


class Changed(Toy):
    """A toy whose step is changed afterwards by `change`."""

    def change(self, state, out):
        return out

    def step(self, state, action, params):
        return self.change(state, super().step(state, action, params))


def with_info(out: Step, **fields: Any) -> Step:
    return out._replace(info=dataclasses.replace(out.info, **fields))


class WeakLeaf(Toy):
    def init(self, key, params):
        state, obs = super().init(key, params)
        return dataclasses.replace(state, x=jnp.asarray(0.5) * 1.0), obs


class FlatObservation(Changed):
    def change(self, state, out):
        return out._replace(obs=out.obs[0])


class FloatFlag(Changed):
    def change(self, state, out):
        return with_info(out, terminated=jnp.zeros((), jnp.float32))


class OtherTree(Changed):
    def change(self, state, out):
        return out._replace(state=dataclasses.replace(out.state, t=out.state.t.astype(jnp.int16)))


class NanObservation(Changed):
    def change(self, state, out):
        return out._replace(obs=jnp.where(out.state.t == 2, jnp.nan, out.obs))


class OutOfBounds(Changed):
    def change(self, state, out):
        return out._replace(obs=out.obs + (out.state.t == 3).astype(out.obs.dtype) * 2)


class NegativeCost(Changed):
    def change(self, state, out):
        return out._replace(cost=-out.cost)


class Endless(Changed):
    def change(self, state, out):
        return with_info(out, truncated=jnp.zeros((), bool))


class ClearsFlags(Changed):
    def change(self, state, out):
        return with_info(out, truncated=out.state.t == HORIZON)


class Remembers(Changed):
    calls = count()

    def change(self, state, out):
        shape = jax.ShapeDtypeStruct((), jnp.int32)
        k = jax.pure_callback(lambda: np.int32(next(self.calls)), shape, vmap_method="sequential")
        return out._replace(reward=out.reward + k.astype(out.reward.dtype))


class IgnoresKey(Toy):
    def init(self, key, params):
        return super().init(jnp.zeros_like(key), params)


class CoupledLanes(Changed):
    def change(self, state, out):
        return out._replace(reward=jnp.where(anywhere(out.state.x > 0), out.reward, out.reward - 1))


class NanAction(Toy):
    def push(self, action):
        return action.reshape(())


class WrongSum(Changed):
    def change(self, state, out):
        return out._replace(reward=out.reward * 2 - 1)


class EqualByIdentity(Toy):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Raises(Changed):
    def change(self, state, out):
        raise ValueError("no such bus")
