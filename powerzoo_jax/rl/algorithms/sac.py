"""Soft actor-critic (Haarnoja et al. 2018): off-policy, with a replay buffer on the device.

Two critics and slow targets of them, a Gaussian behind a tanh, and a temperature that holds the entropy at its target:

    y     = r + gamma [not terminated] (min_i Q'_i(o', a') - alpha log pi(a' | o')),  a' ~ pi(. | o')
    Q_i   minimises (Q_i(o, a) - y)^2;   pi minimises  alpha log pi(a | o) - min_i Q_i(o, a)
    alpha minimises  -alpha (log pi(a | o) + target entropy)

o' is the true observation after the step, also where an episode ended, and a time limit keeps the value behind it.
One policy sees and does everything; the reward is that of the team. Pure: jit it, vmap it over keys for seeds. On
several devices each keeps the transitions of its own lanes, and gives every batch its share of them.

Example:
    state, metrics = jax.jit(make_train(SACConfig(task="battery_arbitrage")))(jax.random.key(0))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.batch import vstep
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.algorithms.onpolicy import (
    EpisodeStats,
    Metrics,
    TrainResult,
    add_step,
    ends_value,
    episode_metrics,
    learner_reward,
    repeat_updates,
    resolve,
    start_stats,
)
from powerzoo_jax.rl.history import on_history
from powerzoo_jax.rl.networks.body import Critic, Scale, log_prob, normalise, observe_batch
from powerzoo_jax.rl.policies import (
    ActorPolicy,
    action_box,
    by_kind,
    group_agents,
    make_squashed,
    map_kinds,
    start_scales,
)
from powerzoo_jax.rl.training.config import SACConfig
from powerzoo_jax.rl.training.parallel import devices_in_force, on_each_device, over_devices

CRITICS = 2


class Transition(NamedTuple):
    """A step: obs, next_obs (1, F) as observed, action (1, U) in (-1, 1), reward (), terminated () bool."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    terminated: Array


@struct.dataclass(kw_only=True)
class Store:
    """Replay buffer: a ring of the latest steps of every lane.

    rows:    Transition  leading axes (B, S): lanes, and steps of each
    writes:  ()  int32   transitions ever written
    """

    BY_LANE: ClassVar[tuple[str, ...]] = ("rows",)

    rows: Transition
    writes: Array


@struct.dataclass(kw_only=True)
class SACState:
    """State of a training run.

    params:  {"actor", "critic", "log_alpha"}   weights, the critics along a leading axis, log temperature
    target:  pytree                slow copy of the critics
    opt:     pytree                state of the optimiser
    scale:   dict of Scale         running moments of the observations
    store:   Store                 transitions to learn from
    env:     pytree, obs (B,A,O)   states and observations of the lanes
    tally:   EpisodeStats          totals of their episodes
    key:     PRNG key              source of every draw to come
    """

    BY_LANE: ClassVar[tuple[str, ...]] = ("env", "obs", "tally")

    params: Any
    target: Any
    opt: Any
    scale: dict[str, Scale]
    store: Store
    env: Any
    obs: Array
    tally: EpisodeStats
    key: Array


Init = Callable[[Array, Sim], SACState]
Update = Callable[[SACState, Sim], tuple[SACState, Metrics]]


def squashed_sample(key: Array, mean: Array, log_std: Array) -> tuple[Array, Array]:
    """Draw actions a = tanh(u), u ~ N(mean, std), with their log density: (..., U) [-] -> (..., U), (...).

    log pi(a) = log N(u) - sum log(1 - tanh(u)^2), the last written so that it stays finite for large u.
    """
    u = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)
    slope = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return jnp.tanh(u), log_prob(mean, log_std, u) - jnp.sum(slope, axis=-1)


def write(store: Store, new: Transition) -> Store:
    """Replay buffer with new transitions (T, B, ...) in place of the oldest; T divides the steps it keeps of a lane."""
    lanes, steps = store.rows.reward.shape
    at = store.writes // lanes % steps

    def put(ring: Array, x: Array) -> Array:
        return lax.dynamic_update_slice_in_dim(ring, jnp.moveaxis(x, 0, 1), at, axis=1)

    return Store(rows=jax.tree.map(put, store.rows, new), writes=store.writes + new.reward.size)


def draw(store: Store, key: Array, count: int, blocks: int) -> Transition:
    """Transitions (count, ...) drawn with replacement, in the units of the store, as many of each block of lanes.

    blocks:  divides the lanes and `count`; where the devices divide it, each draws from its own lanes alone
    """
    lanes, steps = store.rows.reward.shape
    size = lanes // blocks
    filled = jnp.minimum(store.writes // lanes, steps)
    numbers = jax.random.randint(key, (blocks, count // blocks), 0, filled * size)

    def pick(rows: Transition, numbers: Array) -> Transition:
        lane = numbers % size + size * jnp.arange(numbers.shape[0])[:, None]
        at = (lane * steps + numbers // size).reshape(-1)
        return take(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows), at)

    drawn: Transition = on_each_device(pick, store.rows, numbers)
    return drawn


@on_history
def make_update(cfg: SACConfig, sim: Sim | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` collects a round and learns from it."""
    home = resolve(cfg, sim)
    size, shape = action_box(home).low.size, action_box(home).shape
    groups = group_agents(home, joint=True, squash=True, start=cfg.start)
    actor = make_squashed(cfg, groups)
    network = Critic(cfg.widths, cfg.activation, groups.dtype)
    optimiser = optax.adam(cfg.lr)
    kept = cfg.capacity // (cfg.lanes * cfg.steps) * cfg.steps  # so that a round never wraps around the end of the ring
    losses = make_losses(cfg, actor, network, size)

    def init(key: Array, sim: Sim) -> SACState:
        key, env_key, actor_key, critic_key = jax.random.split(key, 4)
        env, obs = jax.vmap(sim.init)(jax.random.split(env_key, cfg.lanes))
        scale = start_scales(groups, home, cfg.obs_floor)
        x, action = by_kind(groups, normalise, scale, groups.view(obs[0])), jnp.zeros((1, size), obs.dtype)
        pair = jnp.concatenate([x, action], axis=-1)
        params = {
            "actor": actor.init(actor_key, x),
            "critic": jax.vmap(network.init, (0, None))(jax.random.split(critic_key, CRITICS), pair),
            "log_alpha": jnp.log(jnp.full((), cfg.temperature, obs.dtype)),
        }
        zero = jnp.zeros((), obs.dtype)
        one = Transition(groups.view(obs[0]), action, zero, groups.view(obs[0]), jnp.zeros((), bool))
        rows = jax.tree.map(lambda v: jnp.zeros((cfg.lanes, kept, *v.shape), v.dtype), one)
        return SACState(
            params=params,
            target=params["critic"],
            opt=optimiser.init(params),
            scale=scale,
            store=Store(rows=rows, writes=jnp.zeros((), jnp.int32)),
            env=env,
            obs=obs,
            tally=start_stats(home, cfg.lanes, obs.dtype),
            key=key,
        )

    def collect(state: SACState, sim: Sim, key: Array) -> tuple[SACState, Transition, Metrics]:
        warming = state.store.writes < cfg.warmup

        def advance(state: SACState, key: Array) -> tuple[SACState, tuple[Transition, tuple[EpisodeStats, Array]]]:
            drawn, uniform = jax.random.split(key)
            seen = groups.view(state.obs)
            gaussian: Any = actor.apply(state.params["actor"], by_kind(groups, normalise, state.scale, seen))
            action, _ = squashed_sample(drawn, *gaussian)
            anything = jax.random.uniform(uniform, action.shape, action.dtype, -1.0, 1.0)
            action = jnp.where(warming, anything, action)
            out, env, obs = vstep(sim, state.env, action.reshape(cfg.lanes, *shape))
            stats, (totals, ended) = add_step(state.tally, out)
            reward = learner_reward(out, cfg.reward_scale, cfg.cost_weights)
            lived = Transition(seen, action, reward, groups.view(out.obs), ends_value(out, cfg.bootstrap))
            return state.replace(env=env, obs=obs, tally=stats), (lived, (totals, ended))  # type: ignore[attr-defined]

        state, (lived, (totals, ended)) = lax.scan(advance, state, jax.random.split(key, cfg.steps))
        return state, lived, episode_metrics(totals, ended)

    def learn(state: SACState, key: Array) -> tuple[SACState, Metrics]:
        blocks = draw_blocks(cfg)

        def descend(carry: tuple[Any, Any, Any], key: Array) -> tuple[tuple[Any, Any, Any], Metrics]:
            params, target, opt = carry
            rows_key, loss_key = jax.random.split(key)
            batch = over_devices(draw(state.store, rows_key, cfg.batch, blocks))
            x, next_x = (by_kind(groups, normalise, state.scale, v) for v in (batch.obs, batch.next_obs))
            grads, metrics = jax.grad(losses, has_aux=True)(params, target, batch, x, next_x, loss_key)
            change, opt = optimiser.update(grads, opt, params)
            params = optax.apply_updates(params, change)
            target = optax.incremental_update(params["critic"], target, cfg.tau)
            return (params, target, opt), metrics

        start = (state.params, state.target, state.opt)
        (params, target, opt), metrics = lax.scan(descend, start, jax.random.split(key, cfg.gradients))
        after = state.replace(params=params, target=target, opt=opt)  # type: ignore[attr-defined]
        return after, jax.tree.map(jnp.mean, metrics)

    def update(state: SACState, sim: Sim) -> tuple[SACState, Metrics]:
        key, collect_key, learn_key = jax.random.split(state.key, 3)
        seen, lived, episodes = collect(state, sim, collect_key)
        scale = map_kinds(groups, observe_batch, lived.obs, state.scale) if cfg.running_obs else state.scale
        seen = seen.replace(store=write(seen.store, lived), scale=scale, key=key)  # type: ignore[attr-defined]
        after, metrics = learn(seen, learn_key)
        return after, {**episodes, **metrics}

    return init, update


def draw_blocks(cfg: SACConfig) -> int:
    """Blocks of lanes that batches are drawn from: a multiple of the devices where lanes and batch allow it."""
    count = math.lcm(cfg.shards, devices_in_force())
    return count if cfg.lanes % count == 0 and cfg.batch % count == 0 else cfg.shards


def make_losses(cfg: SACConfig, actor: Any, critic: Any, size: int) -> Callable[..., tuple[Array, Metrics]]:
    """The three losses as one number: each stops the gradients that belong to the others."""

    def values(params: Any, x: Array, action: Array) -> Array:
        """(..., 1, F), (..., 1, U) -> (critics, ...)"""
        pair = jnp.concatenate([x, action], axis=-1)
        return jax.vmap(critic.apply, (0, None))(params, pair)[..., 0, 0]  # type: ignore[no-any-return]

    def losses(
        params: Any, target: Any, batch: Transition, x: Array, next_x: Array, key: Array
    ) -> tuple[Array, Metrics]:
        here, ahead = jax.random.split(key)
        frozen = lax.stop_gradient(params)
        alpha = jnp.exp(frozen["log_alpha"])
        later, later_logp = squashed_sample(ahead, *actor.apply(frozen["actor"], next_x))
        worth = jnp.min(values(target, next_x, later), axis=0) - alpha * later_logp[..., 0]
        goal = batch.reward + cfg.gamma * jnp.where(batch.terminated, jnp.zeros_like(worth), worth)
        critic_loss = 0.5 * jnp.sum(jnp.mean((values(params["critic"], x, batch.action) - goal) ** 2, axis=-1))

        action, logp = squashed_sample(here, *actor.apply(params["actor"], x))
        logp = logp[..., 0]
        actor_loss = jnp.mean(alpha * logp - jnp.min(values(frozen["critic"], x, action), axis=0))
        excess = lax.stop_gradient(logp) + cfg.target_entropy * size
        alpha_loss = -jnp.mean(jnp.exp(params["log_alpha"]) * excess)
        metrics = {
            "loss_policy": actor_loss,
            "loss_value": critic_loss,
            "entropy": -jnp.mean(logp),
            "temperature": alpha,
            "value": jnp.mean(goal),
        }
        return critic_loss + actor_loss + alpha_loss, metrics

    return losses


def make_train(cfg: SACConfig, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program; jit it, vmap it over keys."""
    home = resolve(cfg, sim)
    return repeat_updates(*make_update(cfg, home), cfg.updates, home)


def policy_of(state: SACState) -> ActorPolicy:
    """Policy of a trained state, all that acting needs; see `policies.sac_act`."""
    return ActorPolicy(actor=state.params["actor"], scale=state.scale)
