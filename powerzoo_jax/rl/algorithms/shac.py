"""Short-horizon actor-critic (Xu et al. 2022): the analytic gradient of a few steps, and a value of what comes after.

maximise over theta  E[ sum_{t < h} gamma^t r_t + gamma^h V'(o_h) ],  s_{t+1} = f(s_t, pi_theta(o_t)),  through f and V'
V   minimises  (V(o_t) - y_t)^2,  y_t = A_t + V'(o_t), the TD(lambda) returns, A_t as in `onpolicy.gae`
V'  follows V slowly

A window of h steps begins where the last one ended. A gradient then grows over h steps at most, and every update learns
from lanes all over the day; what an action does later reaches it by the value alone. An episode that ends within a
window ends the sum, and the next one begins a new sum. With h = horizon, gamma = 1 and no value behind the time limit
the gradient is that of `apg`. The policy is deterministic, as there; the source's is a Gaussian.

With budgets (`shac_lagrangian`) r_t is less sum_c lambda_c cost_c / budget_c, with a value for each cost too.

Source: Xu et al. 2022, Accelerated policy learning with parallel differentiable simulation, arXiv:2204.07137.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array, lax

from powerzoo_jax.base import Step
from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.envs.batch import vstep
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.algorithms import lagrangian
from powerzoo_jax.rl.algorithms.apg import blurred, guarded_step, held_to_norm, in_use, make_descent
from powerzoo_jax.rl.algorithms.onpolicy import (
    EpisodeStats,
    Metrics,
    TrainResult,
    add_step,
    by_block,
    ends_value,
    episode_metrics,
    gae,
    learner_reward,
    repeat_updates,
    rescale_last_layer,
    resolve,
    shuffled,
    staggered,
    start_tally,
)
from powerzoo_jax.rl.history import on_history
from powerzoo_jax.rl.networks.body import Critic, Scale, normalise, observe_batch
from powerzoo_jax.rl.policies import (
    ALL,
    ActorPolicy,
    apg_act,
    apg_crew,
    by_kind,
    make_deterministic,
    map_kinds,
    start_actor,
    start_scales,
)
from powerzoo_jax.rl.training.config import SHACConfig, SHACLagrangianConfig

LEAST_SIZE = 1e-3  # of returns, in the units of the rewards: a value that never moves is not blown up into noise


class Lanes(NamedTuple):
    """Where the lanes are: states and observations (B, A, O), and totals of their episodes."""

    env: Any
    obs: Array
    tally: EpisodeStats


class Lived(NamedTuple):
    """Recorded steps of all lanes; leading axes (T, B).

    obs, next_obs (A, O) before the step and after it, the true one also where an episode ends; reward (S,), then the
    constrained costs over their budgets; valueless, ended () bool; totals of the episodes in progress
    """

    obs: Array
    next_obs: Array
    reward: Array
    valueless: Array
    ended: Array
    totals: EpisodeStats


@struct.dataclass(kw_only=True)
class SHACState:
    """State of a training run; saved and restored, the run continues as if never interrupted.

    actor:           pytree      weights of the policy by kind of agent
    critic, target:  pytrees     weights of the value of what all agents see, under "all", and a slow copy of them
    opt, fit:        pytrees     states of the optimisers of policy and value
    scale:           dict        running moments of the observations, by kind
    returns:         Scale       running moments of the returns that values are fitted to, (S,)
    multipliers:     pytree      prices of the budgets; () without them
    env, obs, tally              as in `Lanes`
    key:             PRNG key    source of every draw to come
    """

    BY_LANE: ClassVar[tuple[str, ...]] = ("env", "obs", "tally")

    actor: dict[str, Any]
    critic: dict[str, Any]
    target: dict[str, Any]
    opt: Any
    fit: Any
    scale: dict[str, Scale]
    returns: Scale
    multipliers: Any
    env: Any
    obs: Array
    tally: EpisodeStats
    key: Array

    @property
    def lanes(self) -> Lanes:
        """Part of the state that a window moves."""
        return Lanes(self.env, self.obs, self.tally)


Init = Callable[[Array, Sim], SHACState]
Update = Callable[[SHACState, Sim], tuple[SHACState, Metrics]]
Window = Callable[[Any, SHACState, Lanes, Array, Sim], tuple[Array, tuple[Lanes, Lived]]]


class _Parts(NamedTuple):
    """Functions of a learner that its window and its fit share."""

    window: Window
    advance: Callable[..., tuple[Lanes, Lived]]
    x_of: Callable[[SHACState, Array], Array]
    critic: Critic


def make_parts(cfg: SHACConfig, home: Sim) -> _Parts:
    """Build the functions of a learner.

    window:   (actor, state, lanes, keys (T, B), sim) -> loss of the steps it plays, (lanes after them, what was lived)
    advance:  (actor, scale, lanes, keys (B,), sim) -> one step of all lanes
    x_of:     (state, obs (..., A, O)) -> (..., F) [-], the standardised input of the value
    critic:   its network, (..., F) -> (..., S) [-] in sizes of the returns
    """
    crew = apg_crew(cfg, home)
    channels = list(lagrangian.constrained(home)) if isinstance(cfg, SHACLagrangianConfig) else []
    budget = lagrangian.budgets_of(cfg, home) if isinstance(cfg, SHACLagrangianConfig) else None
    critic = Critic(cfg.widths, cfg.activation, crew.dtype, 1 + len(channels))
    noisy = in_use(cfg.obs_noise)

    def x_of(state: SHACState, obs: Array) -> Array:
        x = by_kind(crew, normalise, state.scale, crew.view(obs))
        return x.reshape(*x.shape[:-2], -1)

    def rewards(out: Step) -> Array:
        """(B, S)"""
        own = learner_reward(out, cfg.reward_scale, cfg.cost_weights)[..., None]
        return own if budget is None else jnp.concatenate([own, out.cost[..., channels] / budget], axis=-1)

    def advance(actor: Any, scale: dict[str, Scale], lanes: Lanes, keys: Array, sim: Sim) -> tuple[Lanes, Lived]:
        act = apg_act(cfg, home, ActorPolicy(actor=actor, scale=scale))
        act = blurred(crew, act, scale, cfg.obs_noise) if noisy else act
        _, action = jax.vmap(lambda obs, key: act((), obs, key))(lanes.obs, keys)
        out, env, obs = vstep(sim, lanes.env, action)
        tally, (totals, ended) = add_step(lanes.tally, out)
        lived = Lived(
            obs=lanes.obs,
            next_obs=out.obs,
            reward=rewards(out),
            valueless=ends_value(out, cfg.bootstrap),
            ended=ended,
            totals=totals,
        )
        return Lanes(env, obs, tally), lived

    def window(actor: Any, state: SHACState, lanes: Lanes, keys: Array, sim: Sim) -> tuple[Array, tuple[Lanes, Lived]]:
        lanes, lived = lax.scan(lambda at, key: advance(actor, state.scale, at, key, sim), lanes, keys)
        last = jnp.arange(cfg.steps)[:, None] == cfg.steps - 1
        closing = (lived.ended | last) & ~lived.valueless
        ahead = size_of(state.returns) * values_of(critic, state.target, x_of(state, lived.next_obs))
        gained = lived.reward + cfg.gamma * jnp.where(closing[..., None], ahead, jnp.zeros_like(ahead))
        if budget is not None:
            prices = jnp.concatenate([jnp.ones(1, budget.dtype), -state.multipliers.price])
            gained = gained * prices
        value = jnp.sum(discounts(lived.ended, cfg.gamma, gained.dtype)[..., None] * gained, axis=(0, 2))
        return -jnp.mean(value), (lanes, lived)

    return _Parts(window, advance, x_of, critic)


def values_of(critic: Critic, params: dict[str, Any], x: Array) -> Array:
    """Values (..., S) [-] in sizes of the returns, of standardised observations (..., F)."""
    return critic.apply(params[ALL], x)  # type: ignore[return-value]


def discounts(ended: Array, gamma: float, dtype: Any) -> Array:
    """gamma to the number of steps since the window began, or since the last episode in it ended: (T, B) -> (T, B)."""

    def age(weight: Array, ended: Array) -> tuple[Array, Array]:
        return jnp.where(ended, jnp.ones_like(weight), gamma * weight), weight

    return lax.scan(age, jnp.ones(ended.shape[1:], dtype), ended)[1]


def size_of(returns: Scale) -> Array:
    """Root mean square of the returns, (S,), in whose sizes values are learnt."""
    return jnp.maximum(jnp.sqrt(returns.var + returns.mean**2), returns.floor)


@on_history
def make_update(cfg: SHACConfig, sim: Sim | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` plays and learns from one window."""
    home = resolve(cfg, sim)
    crew, parts = apg_crew(cfg, home), make_parts(cfg, home)
    network, critic = make_deterministic(cfg, crew), parts.critic
    optimiser, fitter = make_descent(cfg, crew), optax.adam(cfg.critic_lr)
    limited = cfg if isinstance(cfg, SHACLagrangianConfig) else None
    channels = jnp.asarray(lagrangian.constrained(home) if limited else (), int)
    slope = jax.value_and_grad(parts.window, has_aux=True)
    by_lane = in_use(cfg.lane_grad_norm)

    def init(key: Array, sim: Sim) -> SHACState:
        key, env_key, actor_key, critic_key = jax.random.split(key, 4)
        env, obs = jax.vmap(sim.init)(jax.random.split(env_key, cfg.lanes))
        scale = start_scales(crew, home, cfg.obs_floor)
        x = by_kind(crew, normalise, scale, crew.view(obs[0]))
        actor = start_actor(crew, network, actor_key, x)
        value = {ALL: critic.init(critic_key, x.reshape(-1))}
        zero = jnp.zeros(critic.streams, obs.dtype)
        state = SHACState(
            actor=actor,
            critic=value,
            target=value,
            opt=optimiser.init(actor),
            fit=fitter.init(value),
            scale=scale,
            returns=Scale(mean=zero, var=zero + 1, floor=zero + LEAST_SIZE, count=jnp.ones((), obs.dtype)),
            multipliers=lagrangian.start_multipliers(limited, home) if limited else (),
            env=env,
            obs=obs,
            tally=start_tally(home, cfg.lanes, obs.dtype),
            key=key,
        )
        if not cfg.stagger:
            return state

        def advance(state: SHACState, key: Array) -> SHACState:
            at, _ = parts.advance(actor, scale, state.lanes, jax.random.split(key, cfg.lanes), sim)
            return state.replace(**at._asdict())  # type: ignore[attr-defined, no-any-return]

        aged: SHACState = staggered(advance, state, cfg.lanes, home, jax.random.fold_in(env_key, cfg.lanes))
        return aged

    def limited_slope(actor: Any, state: SHACState, lanes: Lanes, keys: Array, sim: Sim) -> tuple[Any, Any]:
        """As `slope`, each lane's gradient held to a norm of `lane_grad_norm`."""
        each = jax.vmap(slope, (None, None, 0, 1, None))
        alone = jax.tree.map(lambda x: x[:, None], lanes)
        (loss, (after, lived)), grads = each(actor, state, alone, keys[..., None], sim)
        mean = jax.tree.map(partial(jnp.mean, axis=0), held_to_norm(grads, cfg.lane_grad_norm))
        after = jax.tree.map(lambda x: x[:, 0], after)
        return (jnp.mean(loss), (after, jax.tree.map(lambda x: jnp.moveaxis(x[:, :, 0], 0, 1), lived))), mean

    def fit(state: SHACState, lived: Lived, key: Array) -> tuple[SHACState, Metrics]:
        """The value after a few passes over a window, and its target a part of the way behind it."""
        x, ahead = parts.x_of(state, lived.obs), parts.x_of(state, lived.next_obs)
        size = size_of(state.returns)
        value, after = (size * values_of(critic, state.target, seen) for seen in (x, ahead))
        advantage = gae(lived.reward, value, after, lived.valueless, lived.ended, cfg.gamma, cfg.gae_lambda)
        goal = advantage + value
        returns = observe_batch(state.returns, goal)
        ratio = size / size_of(returns)
        start, target = (rescale_last_layer(params, "Dense_0", ratio) for params in (state.critic, state.target))
        samples = by_block((x, goal / size_of(returns)), 1)

        def error(params: Any, batch: tuple[Array, Array]) -> Array:
            x, goal = batch
            return 0.5 * jnp.mean((values_of(critic, params, x) - goal) ** 2)

        def descend(learned: tuple[Any, Any], batch: tuple[Array, Array]) -> tuple[tuple[Any, Any], Array]:
            loss, grads = jax.value_and_grad(error)(learned[0], batch)
            return guarded_step(fitter, grads, *learned)[0], loss

        def epoch(learned: tuple[Any, Any], key: Array) -> tuple[tuple[Any, Any], Array]:
            bits = jax.random.bits(key, (1, cfg.lanes * cfg.steps))
            return lax.scan(descend, learned, shuffled(samples, bits, cfg.minibatches))

        (learned, opt), losses = lax.scan(epoch, (start, state.fit), jax.random.split(key, cfg.epochs))
        moved = {"critic": learned, "target": optax.incremental_update(learned, target, cfg.tau), "fit": opt}
        explained = 1.0 - jnp.var(advantage[..., 0]) / (jnp.var(goal[..., 0]) + TINY)
        told = {"loss_value": jnp.mean(losses), "explained_variance": explained}
        return state.replace(returns=returns, **moved), told  # type: ignore[attr-defined]

    def update(state: SHACState, sim: Sim) -> tuple[SHACState, Metrics]:
        key, draw, learn = jax.random.split(state.key, 3)
        keys = jax.random.split(draw, (cfg.steps, cfg.lanes))
        value = limited_slope if by_lane else slope
        (loss, (lanes, lived)), grads = value(state.actor, state, state.lanes, keys, sim)
        (actor, opt), norm = guarded_step(optimiser, grads, state.actor, state.opt)
        done, told = fit(state, lived, learn)
        metrics = episode_metrics(lived.totals, lived.ended) | {"loss": loss, "grad_norm": norm} | told
        scale, prices = state.scale, state.multipliers
        if cfg.running_obs and not cfg.keeps_held:
            scale = map_kinds(crew, observe_batch, crew.view(lived.next_obs), scale)
        if limited:
            budget = lagrangian.budgets_of(limited, home)
            prices = lagrangian.adjust(limited, prices, metrics["cost"][channels], budget, metrics["episodes"])
            metrics |= lagrangian.named_prices(prices, home)
        moved = {"actor": actor, "opt": opt, "scale": scale, "multipliers": prices, "key": key}
        return done.replace(**moved, **lanes._asdict()), metrics  # type: ignore[attr-defined]

    return init, update


def make_train(cfg: SHACConfig, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program; jit it, vmap it over keys."""
    home = resolve(cfg, sim)
    return repeat_updates(*make_update(cfg, home), cfg.updates, home)


def policy_of(state: SHACState) -> ActorPolicy:
    """Policy of a trained state, all that acting needs; see `policies.apg_act`."""
    return ActorPolicy(actor=state.actor, scale=state.scale)
