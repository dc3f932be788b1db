"""Recurrent PPO: a policy and a value that remember what their episode has shown.

One network with a gated recurrent unit gives both. An update plays all lanes on from where they stand; the memory
begins anew with every episode, also in the middle of an update. Learning runs through the same sequences again, from
the memories that they began with, and takes whole sequences of some lanes at a time, so that gradients go back to the
first step of the update: where a cue is older than that, it must be in the memory already.

Advantages and the clipped surrogate are those of PPO.

Example:
    train = make_train(PPOGRUConfig(task="battery_arbitrage", total_steps=300_000))
    state, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 5))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.batch import vstep
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.algorithms.onpolicy import (
    EpisodeStats,
    Metrics,
    TrainResult,
    add_step,
    clipped_surrogate,
    ends_value,
    episode_metrics,
    gae,
    learner_reward,
    make_optimiser,
    observe_returns,
    repeat_updates,
    resolve,
    run_epochs,
    start_stats,
)
from powerzoo_jax.rl.algorithms.ppo import PPOState, policy_of, sizes, start_normalizer
from powerzoo_jax.rl.history import on_history
from powerzoo_jax.rl.networks.body import normalise
from powerzoo_jax.rl.networks.heads import Dist
from powerzoo_jax.rl.networks.recurrent import beside
from powerzoo_jax.rl.policies import (
    ALL,
    by_kind,
    crew_of,
    make_gru,
    move_scales,
    no_memory,
    remembering,
    start_scales,
)
from powerzoo_jax.rl.training.config import PPOGRUConfig

__all__ = ["RecurrentState", "make_train", "make_update", "policy_of"]


@struct.dataclass(kw_only=True)
class RecurrentState(PPOState):
    """State of a training run of PPO, and what its lanes remember.

    memory:  (B, 1, M)  memory before the observation of each lane, zeros where an episode begins
    """

    BY_LANE: ClassVar[tuple[str, ...]] = (*PPOState.BY_LANE, "memory")

    memory: Array


class LaneSequence(NamedTuple):
    """Sequence of a lane for the loss, T steps: leading axes (1, B), or (minibatch,).

    x (T, 1, F) standardised, fresh (T,) bool whether an episode begins there, memory (1, M) before the first step,
    legal (T, 1, M) bool, action (T, 1, U) as drawn, log_prob (T, 1), advantage (T, 1), target (T, 1, 1)
    """

    x: Array
    fresh: Array
    memory: Array
    legal: Array
    action: Array
    log_prob: Array
    advantage: Array
    target: Array


class RecurrentStep(NamedTuple):
    """Recorded step of all lanes, leading axes (T, B) after the scan; as in `ppo.Collected`, with values (1, 1)."""

    x: Array
    fresh: Array
    legal: Array
    action: Array
    log_prob: Array
    value: Array
    next_value: Array
    reward: Array
    terminated: Array
    truncated: Array


Init = Callable[[Array, Sim], RecurrentState]
Update = Callable[[RecurrentState, Sim], tuple[RecurrentState, Metrics]]


@on_history
def make_update(cfg: PPOGRUConfig, sim: Sim | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` does one collect-and-learn round."""
    home = resolve(cfg, sim)
    groups, optimiser = crew_of(cfg, home), make_optimiser(cfg)
    network, blank = make_gru(cfg, groups), no_memory(cfg, groups)
    # a lane's sequence is one sample
    by_sequence = dataclasses.replace(cfg, steps=1, shared_torso=True, by_lanes=True)

    def init(key: Array, sim: Sim) -> RecurrentState:
        key, env_key, actor_key = jax.random.split(key, 3)
        env, obs = jax.vmap(sim.init)(jax.random.split(env_key, cfg.lanes))
        scale = start_scales(groups, home, cfg.obs_floor)
        x = by_kind(groups, normalise, scale, groups.view(take(obs, 0)))
        params = {"actor": {ALL: network.init(actor_key, beside(x, blank))}}
        return RecurrentState(
            params=params,
            opt=optimiser.init(params),
            scale=scale,
            gauge=start_normalizer(cfg, 1, jnp.zeros(0, groups.dtype), groups.dtype),
            multipliers=(),
            env=env,
            obs=obs,
            legal=jnp.ones((cfg.lanes, home.env.dims.agent, home.env.dims.choice), bool),
            tally=start_stats(home, cfg.lanes, groups.dtype),
            key=key,
            memory=jnp.broadcast_to(blank, (cfg.lanes, *blank.shape)),
        )

    def judge(params: Any, x: Array, memory: Array) -> tuple[Dist, Array, Array]:
        return remembering(groups, network, params["actor"], x, memory)

    def collect(state: RecurrentState, sim: Sim, key: Array) -> tuple[RecurrentState, RecurrentStep, Metrics]:
        def advance(
            carry: tuple[RecurrentState, Array], key: Array
        ) -> tuple[tuple[RecurrentState, Array], tuple[RecurrentStep, tuple[EpisodeStats, Array]]]:
            state, fresh = carry
            x = by_kind(groups, normalise, state.scale, groups.view(state.obs))
            legal = groups.view(state.legal)
            dist, value, memory = judge(state.params, x, state.memory)
            raw = groups.head.sample(key, dist, legal)
            out, env, obs = vstep(sim, state.env, groups.action(raw))
            stats, (totals, ended) = add_step(state.tally, out)
            # what follows is worth what the policy, with its memory of this episode, makes of the true observation
            next_x = by_kind(groups, normalise, state.scale, groups.view(out.obs))
            lived = RecurrentStep(
                x=x,
                fresh=fresh,
                legal=legal,
                action=raw,
                log_prob=groups.head.log_prob(dist, raw, legal),
                value=value,
                next_value=judge(state.params, next_x, memory)[1],
                reward=learner_reward(out, cfg.reward_scale, cfg.cost_weights)[..., None, None],
                terminated=ends_value(out, cfg.bootstrap),
                truncated=out.info.truncated,
            )
            state = state.replace(  # type: ignore[attr-defined]
                env=env,
                obs=obs,
                legal=out.info.legal | ended[:, None, None],
                tally=stats,
                memory=jnp.where(ended[:, None, None], blank, memory),
            )
            return (state, ended), (lived, (totals, ended))

        begun = state, jnp.zeros(cfg.lanes, bool)  # a memory of zeros says by itself that an episode begins
        (state, _), (lived, (totals, ended)) = lax.scan(advance, begun, jax.random.split(key, cfg.steps))
        return state, lived, episode_metrics(totals, ended)

    def loss(params: Any, batch: LaneSequence) -> tuple[Array, Metrics]:
        def advance(memory: Array, now: tuple[Array, ...]) -> tuple[Array, tuple[Dist, Array]]:
            x, fresh = now
            dist, value, memory = judge(params, x, jnp.where(fresh[:, None, None], blank, memory))
            return memory, (dist, value)

        steps = tuple(jnp.moveaxis(part, 1, 0) for part in (batch.x, batch.fresh))
        _, told = lax.scan(advance, batch.memory, steps)
        dist, values = jax.tree.map(lambda part: jnp.moveaxis(part, 0, 1), told)
        log_ratio = groups.head.log_prob(dist, batch.action, batch.legal) - batch.log_prob
        policy, watched = clipped_surrogate(log_ratio, batch.advantage, cfg.clip)
        value = 0.5 * jnp.mean((values - batch.target) ** 2)
        bonus = jnp.mean(groups.head.entropy(dist, batch.legal))
        total = policy + cfg.value_weight * value - cfg.entropy * bonus
        return total, {"loss": total, "loss_policy": policy, "loss_value": value, "entropy": bonus, **watched}

    def sequences(state: RecurrentState, lived: RecurrentStep) -> tuple[LaneSequence, Metrics]:
        """Sequences (1, B) of an update that began with the memories of `state`."""
        reward = lived.reward / sizes(cfg, state.gauge, 1) if cfg.tracks_returns else lived.reward
        ends = lived.terminated, lived.truncated
        advantage = gae(reward, lived.value, lived.next_value, *ends, cfg.gamma, cfg.gae_lambda)
        target = advantage + lived.value
        explained = 1.0 - jnp.var(advantage) / (jnp.var(target) + TINY)
        steps = (lived.legal, lived.action, lived.log_prob, advantage[..., 0], target)
        x, fresh, *rest = (jnp.moveaxis(part, 0, 1)[None] for part in (lived.x, lived.fresh, *steps))
        return LaneSequence(x, fresh, state.memory[None], *rest), {"explained_variance": explained}

    def update(state: RecurrentState, sim: Sim) -> tuple[RecurrentState, Metrics]:
        key, collect_key, learn_key = jax.random.split(state.key, 3)
        seen, lived, episodes = collect(state, sim, collect_key)
        normalizer = state.gauge
        if cfg.tracks_returns:
            normalizer = observe_returns(normalizer, lived.reward, lived.terminated | lived.truncated, cfg.gamma)
        samples, fit = sequences(state.replace(gauge=normalizer), lived)  # type: ignore[attr-defined]
        learned, losses = run_epochs(by_sequence, loss, optimiser, (state.params, state.opt), samples, learn_key)
        scale = move_scales(groups, state.scale, lived.x) if cfg.running_obs else state.scale
        done = {"params": learned[0], "opt": learned[1], "gauge": normalizer, "scale": scale, "key": key}
        return seen.replace(**done), {**episodes, **fit, **losses}  # type: ignore[attr-defined]

    return init, update


def make_train(cfg: PPOGRUConfig, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program; jit it, vmap it over keys."""
    home = resolve(cfg, sim)
    return repeat_updates(*make_update(cfg, home), cfg.updates, home)
