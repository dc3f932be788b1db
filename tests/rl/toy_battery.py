"""A battery on prices without a grid: same fields, money and limits as `battery_arbitrage`, but tiny and fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from powerzoo_jax.base import Box, Dims, EnvState, Info, Purpose, Step, TaskSpec, purpose_key
from powerzoo_jax.envs.core import Sim

C, P, ETA, SOC_MIN, SOC_MAX, SOC_0, WEAR, DT = 0.5, 0.2, 0.95**0.5, 0.1, 0.9, 0.5, 5.0, 0.5
STEPS, AHEAD, NUISANCE = 48, 24, 171


@struct.dataclass(kw_only=True)
class ToyParams:
    """price (H,) [$/MWh] hourly; first (D,) row of each day; last (D,) last row of its run; mix (3, W) nuisance."""

    horizon: Array
    price: Array
    first: Array
    last: Array
    low: Array
    high: Array
    mix: Array


@struct.dataclass(kw_only=True)
class ToyState(EnvState):
    """day, soc, last power [MW], sum of the prices so far."""

    day: Array
    soc: Array
    p_mw: Array
    price_sum: Array


@dataclass(frozen=True)
class ToyBattery:
    """The frozen Env; `fail_below` ends an episode as a termination when the state of charge falls below it."""

    dims: Dims
    fail_below: float = -1.0

    def init(self, key: Array, params: ToyParams) -> tuple[ToyState, Array]:
        day = jax.random.randint(purpose_key(key, Purpose.DAY), (), 0, params.first.shape[0], jnp.int32)
        return self.begin(key, day, params)

    def begin(self, key: Array, day: Array, params: ToyParams) -> tuple[ToyState, Array]:
        zero = jnp.zeros((), params.price.dtype)
        t = jnp.zeros((), jnp.int32)
        state = ToyState(t=t, key=key, day=day, soc=zero + SOC_0, p_mw=zero, price_sum=zero)
        return state, self.observe(state, params)

    def _limits(self, soc: Array) -> tuple[Array, Array]:
        discharge = jnp.minimum(P, (soc - SOC_MIN) * C * ETA / DT)
        return discharge, jnp.minimum(P, (SOC_MAX - soc) * C / (ETA * DT))

    def _price(self, day: Array, hour: Array, params: ToyParams) -> Array:
        return params.price[jnp.minimum(params.first[day] + hour, params.last[day])]

    def observe(self, state: ToyState, params: ToyParams) -> Array:
        discharge, charge = self._limits(state.soc)
        angle = 2.0 * jnp.pi * state.t / STEPS
        price = self._price(state.day, state.t // 2 + jnp.arange(AHEAD + 1), params)
        signal = jnp.clip((price - params.low) / (params.high - params.low), -1.0, 3.0)
        own = jnp.stack([state.soc, discharge / P, charge / P, state.p_mw / P, jnp.sin(angle), jnp.cos(angle)])
        load = 0.6 - 0.3 * jnp.cos(angle - 0.5) + 0.1 * jnp.sin(state.day.astype(angle.dtype))
        noise = jnp.stack([load, load**2, state.p_mw]) @ params.mix
        return jnp.concatenate([own, noise, signal])[None].astype(params.price.dtype)

    def step(self, state: ToyState, action: Array, params: ToyParams) -> Step:
        want = jnp.clip(action[0, 0], -1.0, 1.0) * P
        discharge, charge = self._limits(state.soc)
        p = jnp.clip(want, -charge, discharge)
        soc = state.soc - jnp.where(p > 0, p / ETA, p * ETA) * DT / C
        price = self._price(state.day, state.t // 2, params)
        price_sum = state.price_sum + price
        t = state.t + 1
        truncated = t >= STEPS
        energy = (soc - SOC_0) * C
        settlement = energy * jnp.where(energy > 0, ETA, 1.0 / ETA) * price_sum / STEPS
        terms = jnp.stack([price * p * DT, -WEAR * jnp.abs(p) * DT, jnp.where(truncated, settlement, 0.0)])
        state = state.replace(t=t, soc=soc, p_mw=p, price_sum=price_sum)
        info = Info(
            terminated=soc < self.fail_below,
            truncated=truncated,
            pf_status=jnp.zeros((), jnp.int32),
            pf_residual=jnp.zeros_like(p),
            legal=jnp.zeros((1, 0), bool),
            terms=terms[None],
        )
        cost = jnp.zeros((4,), p.dtype).at[3].set(jnp.abs(want - p))
        return Step(state, self.observe(state, params), jnp.sum(terms)[None], cost, info)

    def spaces(self, params: ToyParams) -> tuple[Box, Box]:
        dtype = np.dtype(params.price.dtype)
        low = np.concatenate([[0, 0, 0, -1, -1, -1], np.full(NUISANCE, -2.0), np.full(AHEAD + 1, -1.0)])
        high = np.concatenate([np.ones(6), np.full(NUISANCE, 2.0), np.full(AHEAD + 1, 3.0)])
        one = np.ones((1, 1), dtype)
        return Box(low[None].astype(dtype), high[None].astype(dtype)), Box(-one, one)


def toy_sim(
    price: np.ndarray | None = None, days: np.ndarray | None = None, run_end: np.ndarray | None = None, **kw: Any
) -> Sim:
    """Build a Sim on an hourly price series; by default 20 synthetic days with two peaks of random height."""
    if price is None:
        rng = np.random.default_rng(0)
        hour = np.arange(24)
        shape = np.exp(-((hour - 8) ** 2) / 8) + np.exp(-((hour - 19) ** 2) / 8) - np.exp(-((hour - 3) ** 2) / 12)
        price = (40 + rng.uniform(5, 30, (21, 1)) * shape + rng.normal(0, 2, (21, 24))).reshape(-1)
    days = np.arange(len(price) // 24 - 1) if days is None else days
    first = 24 * days
    last = np.full_like(first, len(price) - 1) if run_end is None else 24 * run_end + 23
    low, high = np.percentile(price, [5, 95]) if "low" not in kw else (kw.pop("low"), kw.pop("high"))
    rng = np.random.default_rng(1)
    params = ToyParams(
        horizon=jnp.asarray(STEPS, jnp.int32),
        price=jnp.asarray(price, jnp.float32),
        first=jnp.asarray(first, jnp.int32),
        last=jnp.asarray(last, jnp.int32),
        low=jnp.asarray(low, jnp.float32),
        high=jnp.asarray(high, jnp.float32),
        mix=jnp.asarray(rng.normal(size=(3, NUISANCE)) * np.array([[0.1], [0.1], [0.5]]), jnp.float32),
    )
    dims = Dims(bus=0, branch=0, unit=1, agent=1, obs=6 + NUISANCE + AHEAD + 1, act=1, choice=0, cost=4, term=3)
    spec = TaskSpec(
        id="toy_battery", version=0, family="toy", case="none", horizon=STEPS, dt_hours=DT, split="train",
        agents=("battery",), cost_names=("voltage_violation", "thermal_overload", "unserved_energy", "resource"),
        cost_budget=(0.0, 0.0, 0.0, 0.5), term_names=("energy", "degradation", "settlement"),
        term_weights=(1.0, 1.0, 1.0),
    )  # fmt: skip
    return Sim(params=params, env=ToyBattery(dims=dims, **kw), spec=spec)
