"""Proximal policy optimisation (Schulman et al. 2017), readable from top to bottom.

All agents' observations and actions are one vector each and the reward is the team mean, so a task with several
agents is solved by one central policy. The program is pure: jit it, vmap it over keys for seeds.

Example:
    train = make_train(PPOConfig.from_toml("configs/battery_arbitrage_ppo.toml"))
    state, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 5))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array, lax

from powerzoo_jax.base import Step
from powerzoo_jax.base.numerics import TINY, safe_divide
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.autoreset import vstep
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.config import PPOConfig
from powerzoo_jax.rl.networks import (
    Critic,
    Scale,
    denormalise,
    entropy,
    log_prob,
    normalise,
    observe_batch,
    scale_from_bounds,
)
from powerzoo_jax.rl.parallel import over_devices
from powerzoo_jax.rl.policies import Policy, action_box, make_actor

Metrics = dict[str, Array]

ADAM_EPS = 1e-5  # gradients of the clipped surrogate vanish for many weights; a smaller one lets noise move them


class TrainResult(NamedTuple):
    """Final state, and the metrics of every update along a leading axis."""

    state: Any
    metrics: Metrics


@struct.dataclass(kw_only=True)
class Tally:
    """Totals of the episodes in progress, one row per lane (B).

    total:   (B,)       sum of the team-mean reward so far
    cost:    (B, C)     sum of each cost channel so far
    terms:   (B, K)     sum of each reward term so far, mean over agents
    length:  (B,)       steps so far
    """

    total: Array
    cost: Array
    terms: Array
    length: Array


@struct.dataclass(kw_only=True)
class PPOState:
    """Everything a run needs to go on: saved and restored, it continues as if never interrupted.

    params:  {"actor", "critic"}   weights of the two separate networks
    opt:     pytree                state of the optimiser
    scale:   Scale                 running moments of the observations
    env:     pytree, obs (B,A,O)   where the lanes stand
    tally:   Tally                 totals of their episodes
    key:     PRNG key              source of every draw to come
    """

    params: Any
    opt: Any
    scale: Scale
    env: Any
    obs: Array
    tally: Tally
    key: Array


class Samples(NamedTuple):
    """What the loss needs of each step; leading axes (T, B) or (minibatch,)."""

    x: Array
    action: Array
    log_prob: Array
    advantage: Array
    target: Array


class Collected(NamedTuple):
    """One step of all lanes as the policy lived it; leading axes (T, B) after the scan."""

    x: Array
    action: Array
    log_prob: Array
    next_x: Array
    reward: Array
    terminated: Array
    truncated: Array


Init = Callable[[Array, Sim], PPOState]
Update = Callable[[PPOState, Sim], tuple[PPOState, Metrics]]


def gae(
    reward: Array, value: Array, next_value: Array, terminated: Array, truncated: Array, gamma: float, lam: float
) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016); all arguments and the result (T, ...).

    delta_t = r_t + gamma V(o'_t) [not terminated] - V(o_t),  A_t = delta_t + gamma lam A_{t+1} [not ended].
    o'_t is the true observation after step t. A time limit cuts the trace but keeps the value behind it;
    a termination cuts both.
    """
    delta = reward + gamma * jnp.where(terminated, jnp.zeros_like(next_value), next_value) - value

    def back(ahead: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, ended = now
        advantage = delta + gamma * lam * jnp.where(ended, jnp.zeros_like(ahead), ahead)
        return advantage, advantage

    return lax.scan(back, jnp.zeros_like(delta[0]), (delta, terminated | truncated), reverse=True)[1]


def learner_reward(out: Step, scale: float, cost_weights: tuple[float, ...]) -> Array:
    """Team-mean reward less priced costs, scaled: the only number the learner sees. (..., A), (..., C) -> (...)."""
    reward = jnp.mean(out.reward, axis=-1)
    if cost_weights:
        reward = reward - jnp.sum(out.cost * jnp.asarray(cost_weights, out.cost.dtype), axis=-1)
    return scale * reward


def _tally(tally: Tally, out: Step) -> tuple[Tally, tuple[Tally, Array]]:
    """Add a step; return the totals to carry on (zero after an end), and the totals with the end flags."""
    ended = out.info.terminated | out.info.truncated

    def restart(x: Array) -> Array:
        return jnp.where(ended.reshape(ended.shape + (1,) * (x.ndim - 1)), jnp.zeros_like(x), x)

    add = Tally(
        total=jnp.mean(out.reward, axis=-1),
        cost=out.cost,
        terms=jnp.mean(out.info.terms, axis=-2),
        length=jnp.ones_like(tally.length),
    )
    now: Tally = jax.tree.map(jnp.add, tally, add)
    return jax.tree.map(restart, now), (now, ended)


def _episode_metrics(totals: Tally, ended: Array) -> Metrics:
    """Mean totals of the episodes that ended within an update; 0 where none did."""
    count = jnp.sum(ended)

    def mean(x: Array) -> Array:
        x = x.astype(totals.total.dtype)
        mask = ended.reshape(ended.shape + (1,) * (x.ndim - 2))
        return safe_divide(jnp.sum(jnp.where(mask, x, 0.0), axis=(0, 1)), count.astype(x.dtype))

    means = {k: mean(getattr(totals, k)) for k in ("cost", "terms", "length")}
    return {"return": mean(totals.total), "episodes": count.astype(jnp.int32), **means}


def make_optimiser(cfg: PPOConfig) -> optax.GradientTransformation:
    """Adam with a linear schedule over the whole run, behind a clip of the gradient's norm."""
    schedule = optax.linear_schedule(cfg.lr, cfg.lr * cfg.lr_end, cfg.updates * cfg.epochs * cfg.minibatches)
    return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), optax.adam(schedule, eps=ADAM_EPS))


def make_loss(cfg: PPOConfig, actor: Any, critic: Any) -> Callable[[Any, Samples], tuple[Array, Metrics]]:
    """Clipped surrogate, squared value error and entropy bonus, on one minibatch."""

    def loss(params: Any, batch: Samples) -> tuple[Array, Metrics]:
        mean, log_std = actor.apply(params["actor"], batch.x)
        log_ratio = log_prob(mean, log_std, batch.action) - batch.log_prob
        ratio = jnp.exp(log_ratio)
        adv = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + TINY)
        policy = -jnp.mean(jnp.minimum(ratio * adv, jnp.clip(ratio, 1.0 - cfg.clip, 1.0 + cfg.clip) * adv))
        value = 0.5 * jnp.mean((critic.apply(params["critic"], batch.x) - batch.target) ** 2)
        bonus = entropy(log_std)
        total = policy + cfg.value_weight * value - cfg.entropy * bonus
        return total, {
            "loss": total,
            "loss_policy": policy,
            "loss_value": value,
            "entropy": bonus,
            "kl": jnp.mean(ratio - 1.0 - log_ratio),  # Schulman's low-variance estimate, never negative
            "clip_fraction": jnp.mean((jnp.abs(ratio - 1.0) > cfg.clip).astype(ratio.dtype)),
            "ratio_error": jnp.max(jnp.abs(ratio - 1.0)),
        }

    return loss


def make_update(cfg: PPOConfig, sim: Sim | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` does one collect-and-learn round.

    Both take the simulation as an argument, so that its arrays are inputs of the compiled program, not constants.
    """
    home = resolve(cfg.task, cfg.split, sim)
    shape = action_box(home).shape
    actor, optimiser = make_actor(cfg, home), make_optimiser(cfg)
    critic = Critic(cfg.widths, cfg.activation, actor.dtype)
    start_scale = scale_from_bounds(home.spaces()[0], cfg.obs_floor)
    loss = make_loss(cfg, actor, critic)

    def init(key: Array, sim: Sim) -> PPOState:
        key, env_key, actor_key, critic_key = jax.random.split(key, 4)
        env, obs = jax.vmap(sim.init)(jax.random.split(env_key, cfg.lanes))
        x = normalise(start_scale, obs[0])
        params = {"actor": actor.init(actor_key, x), "critic": critic.init(critic_key, x)}
        tally = Tally(
            total=jnp.zeros(cfg.lanes, obs.dtype),
            cost=jnp.zeros((cfg.lanes, home.env.dims.cost), obs.dtype),
            terms=jnp.zeros((cfg.lanes, home.env.dims.term), obs.dtype),
            length=jnp.zeros(cfg.lanes, jnp.int32),
        )
        opt = optimiser.init(params)
        return PPOState(params=params, opt=opt, scale=start_scale, env=env, obs=obs, tally=tally, key=key)

    def collect(state: PPOState, sim: Sim, key: Array) -> tuple[PPOState, Collected, Metrics]:
        def advance(state: PPOState, key: Array) -> tuple[PPOState, tuple[Collected, tuple[Tally, Array]]]:
            x = normalise(state.scale, state.obs)
            gaussian: Any = actor.apply(state.params["actor"], x)
            mean, log_std = gaussian
            action = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)
            out, env, obs = vstep(sim, state.env, action.reshape(cfg.lanes, *shape))
            tally, ended = _tally(state.tally, out)
            lived = Collected(
                x=x,
                action=action,
                log_prob=log_prob(mean, log_std, action),
                next_x=normalise(state.scale, out.obs),
                reward=learner_reward(out, cfg.reward_scale, cfg.cost_weights),
                terminated=out.info.terminated | (out.info.truncated & (not cfg.bootstrap)),
                truncated=out.info.truncated,
            )
            return state.replace(env=env, obs=obs, tally=tally), (lived, ended)  # type: ignore[attr-defined]

        state, (lived, (totals, ended)) = lax.scan(advance, state, jax.random.split(key, cfg.steps))
        return state, lived, _episode_metrics(totals, ended)

    def assess(params: Any, lived: Collected) -> tuple[Samples, Metrics]:
        value: Any = critic.apply(params["critic"], lived.x)
        next_value: Any = critic.apply(params["critic"], lived.next_x)
        advantage = gae(lived.reward, value, next_value, lived.terminated, lived.truncated, cfg.gamma, cfg.gae_lambda)
        target = advantage + value
        explained = 1.0 - jnp.var(advantage) / (jnp.var(target) + TINY)
        return Samples(lived.x, lived.action, lived.log_prob, advantage, target), {"explained_variance": explained}

    def learn(state: PPOState, samples: Samples, key: Array) -> tuple[PPOState, Metrics]:
        flat: Samples = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), samples)
        size = cfg.lanes * cfg.steps
        used = size - size % cfg.minibatches

        def descend(carry: tuple[Any, Any], rows: Array) -> tuple[tuple[Any, Any], Metrics]:
            params, opt = carry
            batch = over_devices(take(flat, rows))
            grads, metrics = jax.grad(loss, has_aux=True)(params, batch)
            change, opt = optimiser.update(grads, opt, params)
            return (optax.apply_updates(params, change), opt), metrics

        def epoch(carry: tuple[Any, Any], key: Array) -> tuple[tuple[Any, Any], Metrics]:
            rows = jax.random.permutation(key, size)[:used].reshape(cfg.minibatches, -1)
            return lax.scan(descend, carry, rows)

        keys = jax.random.split(key, cfg.epochs)
        (params, opt), metrics = lax.scan(epoch, (state.params, state.opt), keys)
        first = metrics.pop("ratio_error")[0, 0]  # 0 up to rounding, or the stored log-probability is wrong
        means = {k: jnp.mean(v) for k, v in metrics.items()}
        return state.replace(params=params, opt=opt), {**means, "ratio_error": first}  # type: ignore[attr-defined]

    def update(state: PPOState, sim: Sim) -> tuple[PPOState, Metrics]:
        key, collect_key, learn_key = jax.random.split(state.key, 3)
        seen, lived, episodes = collect(state, sim, collect_key)
        samples, fit = assess(seen.params, lived)
        after, losses = learn(seen, samples, learn_key)
        # moments change only here: within an update, collecting and learning must see the same numbers
        scale = observe_batch(state.scale, denormalise(state.scale, lived.x))
        after = after.replace(key=key, scale=scale)  # type: ignore[attr-defined]
        return after, {**episodes, **fit, **losses}

    return init, update


def resolve(task: str, split: str, sim: Sim | None) -> Sim:
    """The simulation given, or the one the settings name."""
    if sim is not None:
        return sim
    from powerzoo_jax.tasks import make

    return make(task, split=split)


def make_train(cfg: PPOConfig, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program.

    jit it, and pass the simulation as an argument to keep its arrays out of the program text; vmap over keys trains
    several seeds at once, and episodes still restart under one branch for all of them.
    """
    home = resolve(cfg.task, cfg.split, sim)
    init, update = make_update(cfg, home)

    def train(key: Array, sim: Sim = home) -> TrainResult:
        state, metrics = lax.scan(lambda state, _: update(state, sim), init(key, sim), length=cfg.updates)
        return TrainResult(state, metrics)

    return train


def policy_of(state: PPOState) -> Policy:
    """What acting needs of a trained state; see `policies.ppo_act`."""
    return Policy(actor=state.params["actor"], scale=state.scale)
