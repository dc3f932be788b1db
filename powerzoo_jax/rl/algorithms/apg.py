"""Analytic policy gradient: the gradient of an episode's return straight through the differentiable environment.

maximise over theta  E[ sum_t r(s_t, pi_theta(o_t)) ],  s_{t+1} = f(s_t, pi_theta(o_t)),  by backpropagation through f.

With budgets (`apg_lagrangian`) the return is less sum_c lambda_c cost_c / budget_c, at prices that follow them.

A long chain of steps can make a gradient huge or not finite (Metz et al. 2021, arXiv:2111.05803): a step that is not
finite is left out, and `lane_grad_norm` keeps one episode from speaking louder than all others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act, first_carry
from powerzoo_jax.rl.algorithms import lagrangian
from powerzoo_jax.rl.algorithms.onpolicy import Metrics, TrainResult, learner_reward, repeat_updates, resolve
from powerzoo_jax.rl.history import on_history
from powerzoo_jax.rl.networks.body import LAST_LAYER, Scale, normalise, observe_batch, spread
from powerzoo_jax.rl.networks.recurrent import beside
from powerzoo_jax.rl.policies import (
    ActorPolicy,
    AgentGroups,
    apg_act,
    apg_groups,
    by_kind,
    held_outputs,
    make_deterministic,
    map_kinds,
    no_memory,
    start_actor,
    start_scales,
)
from powerzoo_jax.rl.rollout import batch_rollout, mean_metrics, summarise
from powerzoo_jax.rl.training.config import APGConfig, APGLagrangianConfig


@struct.dataclass(kw_only=True)
class APGState:
    """State of a training run.

    actor, opt:   pytrees           weights by kind of agent, and the state of their optimiser
    scale:        dict of Scale     running moments of the observations, by kind
    multipliers:  pytree            prices of the budgets; () without them
    key:          () PRNG key       source of every draw to come
    """

    actor: dict[str, Any]
    opt: Any
    scale: dict[str, Scale]
    multipliers: Any
    key: Array


Init = Callable[[Array, Sim], APGState]
Update = Callable[[APGState, Sim], tuple[APGState, Metrics]]


@on_history
def make_update(cfg: APGConfig, sim: Sim | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` is one gradient step."""
    home = resolve(cfg, sim)
    groups = apg_groups(cfg, home)
    network = make_deterministic(cfg, groups)
    optimiser = make_descent(cfg, groups)
    start_scale = start_scales(groups, home, cfg.obs_floor)
    limited = cfg if isinstance(cfg, APGLagrangianConfig) else None
    channels = jnp.asarray(lagrangian.constrained(home) if limited else (), int)
    budget = lagrangian.budgets_of(limited, home) if limited else jnp.zeros(0, groups.dtype)
    noisy, by_lane = in_use(cfg.obs_noise), in_use(cfg.lane_grad_norm)

    def init(key: Array, sim: Sim) -> APGState:
        key, weights = jax.random.split(key)
        x = by_kind(groups, normalise, start_scale, groups.view(sim.init(key)[1]))
        x = beside(x, no_memory(cfg, groups)) if cfg.memory else x
        actor = start_actor(groups, network, weights, x)
        prices = lagrangian.start_multipliers(limited, home) if limited else ()
        return APGState(actor=actor, opt=optimiser.init(actor), scale=start_scale, multipliers=prices, key=key)

    def loss(actor: Any, state: APGState, keys: Array, sim: Sim) -> tuple[Array, Any]:
        act = apg_act(cfg, home, ActorPolicy(actor=actor, scale=state.scale))
        memory = first_carry(act, ())
        act = blurred(groups, act, state.scale, cfg.obs_noise) if noisy else act
        _, steps = batch_rollout(sim, act, memory, keys, home.spec.horizon)
        ends = jnp.cumsum(steps.info.terminated, axis=1) - steps.info.terminated > 0
        reward = learner_reward(steps, cfg.reward_scale, cfg.cost_weights)
        value = jnp.mean(jnp.sum(jnp.where(ends, jnp.zeros_like(reward), reward), axis=1))
        if limited:
            value = value - state.multipliers.price @ (jnp.mean(summarise(steps).cost, axis=0)[channels] / budget)
        return -value, steps

    slope = jax.value_and_grad(loss, has_aux=True)

    def limited_slope(actor: Any, state: APGState, keys: Array, sim: Sim) -> tuple[tuple[Array, Any], Any]:
        """As `slope`, each episode's gradient held to a norm of `lane_grad_norm`."""
        each = jax.vmap(slope, (None, None, 0, None))
        (values, steps), grads = each(actor, state, keys[:, None], sim)
        mean = jax.tree.map(partial(jnp.mean, axis=0), held_to_norm(grads, cfg.lane_grad_norm))
        return (jnp.mean(values), jax.tree.map(lambda x: x[:, 0], steps)), mean

    def update(state: APGState, sim: Sim) -> tuple[APGState, Metrics]:
        key, draw = jax.random.split(state.key)
        keys = jax.random.split(draw, cfg.lanes)
        (value, steps), grads = (limited_slope if by_lane else slope)(state.actor, state, keys, sim)
        (actor, opt), norm = guarded_step(optimiser, grads, state.actor, state.opt)
        moved = map_kinds(groups, observe_batch, groups.view(steps.obs), state.scale)
        done = summarise(steps)
        metrics = mean_metrics(done, value.dtype) | {"loss": value, "grad_norm": norm}
        prices = state.multipliers
        if limited:
            prices = lagrangian.adjust(limited, prices, metrics["cost"][channels], budget, jnp.asarray(cfg.lanes))
            metrics |= lagrangian.named_prices(prices, home)
        after = APGState(
            actor=actor,
            opt=opt,
            scale=moved if cfg.running_obs and not cfg.keeps_held else state.scale,
            multipliers=prices,
            key=key,
        )
        return after, metrics

    return init, update


def make_descent(cfg: APGConfig, groups: AgentGroups) -> optax.GradientTransformation:
    """Adam with weight decay and a cosine schedule over the whole run, behind a clip of the gradient's norm.

    Where held columns are those of another policy, nothing moves but the last layer's weights of the others.
    """
    schedule = optax.cosine_decay_schedule(cfg.lr, cfg.updates, cfg.lr_end)
    descent = optax.adamw(schedule, weight_decay=cfg.weight_decay)
    parts = [optax.clip_by_global_norm(cfg.max_grad_norm), descent]
    if cfg.keeps_held:
        parts.append(optax.stateless(lambda change, _: last_layer_alone(change, held_outputs(cfg, groups))))
    return optax.chain(*parts)


def last_layer_alone(change: dict[str, Any], held: tuple[int, ...]) -> dict[str, Any]:
    """Change of weights by kind of agent, 0 but for those of the last layer that lead to outputs not held.

    Adam takes full steps along the smallest gradient: without this, held columns would drift with the hidden layers.
    """

    def kept(path: tuple[Any, ...], x: Array) -> Array:
        if [part.key for part in path[-3:-1]] != ["params", LAST_LAYER]:
            return jnp.zeros_like(x)
        return jnp.where(np.isin(np.arange(x.shape[-1]), held), jnp.zeros_like(x), x)

    found: dict[str, Any] = jax.tree_util.tree_map_with_path(kept, change)
    return found


def guarded_step(optimiser: optax.GradientTransformation, grads: Any, params: Any, opt: Any) -> tuple[Any, Array]:
    """Weights and state of the optimiser after a step, or those before it where the gradient is not finite; its norm.

    The norm () [-] is that over all weights.
    """
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(grads)))
    change, after = optimiser.update(grads, opt, params)
    moved_on = optax.apply_updates(params, change), after
    # a choice by number and not by branch, which would ask the host
    return jax.tree.map(partial(jnp.where, jnp.isfinite(norm)), moved_on, (params, opt)), norm


def in_use(setting: Any) -> bool:
    """Whether an option whose 0 means none has effect: any number above 0, and one that a sweep has made an array."""
    return not isinstance(setting, float) or setting > 0


def held_to_norm(grads: Any, limit: float) -> Any:
    """Gradients by lane, leaves (B, ...), each scaled to a norm of at most `limit`; 0 for one that is not finite."""
    size = jnp.sqrt(sum(jnp.sum(g**2, axis=tuple(range(1, g.ndim))) for g in jax.tree.leaves(grads)))
    share = jnp.minimum(1.0, limit / jnp.maximum(size, TINY))

    def scale(g: Array) -> Array:
        column = (slice(None), *(None,) * (g.ndim - 1))
        return jnp.where(jnp.isfinite(size)[column], g * share[column], jnp.zeros_like(g))

    return jax.tree.map(scale, grads)


def blurred(groups: AgentGroups, act: Act, scale: dict[str, Scale], noise: float) -> Act:
    """The same policy on observations blurred by `noise` standard deviations of each field."""

    def blur(carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
        seen = groups.view(obs)
        size = by_kind(groups, lambda part, x: jnp.broadcast_to(spread(part), x.shape), scale, seen)
        draw = jax.random.normal(key, seen.shape, seen.dtype)
        return act(carry, obs + noise * (size * draw).reshape(obs.shape), key)

    return blur


def make_train(cfg: APGConfig, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program; jit it, vmap it over keys."""
    home = resolve(cfg, sim)
    return repeat_updates(*make_update(cfg, home), cfg.updates, home)


def policy_of(state: APGState) -> ActorPolicy:
    """Policy of a trained state, all that acting needs; see `policies.apg_act`."""
    return ActorPolicy(actor=state.actor, scale=state.scale)
