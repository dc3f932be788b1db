"""Proximal policy optimisation (Schulman et al. 2017) and its multi-agent and constrained variants.

The class of the settings says which one; collecting, advantages and the clipped surrogate are the same for all.

ppo               one policy that sees and does everything, and the reward of the team
ippo              a policy for each kind of agent on its own observation, and a value of it (de Witt et al. 2020)
mappo             such policies, with one value of the joint observation and the reward of the team (Yu et al. 2022)
ppo_lagrangian,
ippo_lagrangian   a critic of every budgeted cost beside that of the reward, at prices that follow the budgets

The program is pure: jit it, vmap it over keys for seeds, and over any setting that is a float.

Example:
    train = make_train(PPOConfig(task="battery_arbitrage", total_steps=300_000))
    state, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 5))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import Step, struct
from powerzoo_jax.base.numerics import TINY
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.batch import split_observations, vstep
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.algorithms import lagrangian
from powerzoo_jax.rl.algorithms.onpolicy import (
    EpisodeStats,
    Metrics,
    ReturnNormalizer,
    TrainResult,
    add_step,
    agent_reward,
    clipped_surrogate,
    ends_value,
    episode_metrics,
    gae,
    learner_reward,
    make_optimiser,
    observe_returns,
    repeat_updates,
    rescale_last_layer,
    resolve,
    run_epochs,
    staggered,
    start_stats,
)
from powerzoo_jax.rl.history import on_history
from powerzoo_jax.rl.networks.body import Critic, Scale, normalise, spread
from powerzoo_jax.rl.networks.heads import Dist
from powerzoo_jax.rl.networks.split import SplitInput
from powerzoo_jax.rl.policies import (
    ALL,
    ActorPolicy,
    AgentGroups,
    by_kind,
    crew_of,
    distribution,
    distribution_and_values,
    divisible,
    keys_by_kind,
    make_actor,
    map_kinds,
    move_scales,
    ppo_act,
    start_actor,
    start_scales,
)
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import PPOConfig, PPOLagrangianConfig


@struct.dataclass(kw_only=True)
class PPOState:
    """State of a training run; saved and restored, the run continues as if never interrupted.

    params:       {"actor", "critic"}   weights of separate networks, each a dict by kind of agent; "actor" alone holds
                                        both where they share hidden layers
    opt:          pytree                state of the optimiser
    scale:        dict of Scale         running moments of the observations, by kind
    gauge:        ReturnNormalizer      sizes of the returns; () where rewards are taken as they are
    multipliers:  LagrangeMultipliers   prices of the budgets; () without them
    env:          pytree, obs (B,A,O)   states and observations of the lanes, legal (B,A,M) options allowed there;
                                        observations are in two parts where that saves most of them, see `SharedObs`
    tally:        EpisodeStats          totals of their episodes
    key:          PRNG key              source of every draw to come
    """

    BY_LANE: ClassVar[tuple[str, ...]] = ("env", "obs", "legal", "tally")

    params: Any
    opt: Any
    scale: dict[str, Scale]
    gauge: Any
    multipliers: Any
    env: Any
    obs: Any
    legal: Array
    tally: EpisodeStats
    key: Array


class Samples(NamedTuple):
    """Training samples of the loss, step by step; leading axes (T, B) or (minibatch,), letters as in `Collected`.

    x:          (N, F)  [-]   observation, standardised; in two parts where the state's is
    legal:      (N, M)  bool  what may be chosen
    action:     (N, U)  [-]   as drawn
    log_prob:   (N,)    [-]   of the action under the policy that drew it
    advantage:  (n,)    [-]   of reward less priced costs
    target:     (n, S)  [-]   of the critics, in sizes of the returns
    """

    x: Any
    legal: Array
    action: Array
    log_prob: Array
    advantage: Array
    target: Array


class Collected(NamedTuple):
    """Recorded step of all lanes under the policy; leading axes (T, B) after the scan.

    x (N, F) standardised, legal (N, M) bool, action (N, U) as drawn, log_prob (N,), reward (n, S), terminated,
    truncated () bool. beyond (K, B, A, O) is observed behind time limits, before a fresh episode begins, see
    `kept_at_limits`; () in a single step, and where no value of it is needed, because a time limit ends the task.
    N agents, n critics, S streams: reward, then constrained costs.
    """

    x: Any
    legal: Array
    action: Array
    log_prob: Array
    beyond: Any
    reward: Array
    terminated: Array
    truncated: Array


KEYS = 3  # that an update splits its key into; the next one folded in is as good as a fourth

Init = Callable[[Array, Sim], PPOState]
Update = Callable[[PPOState, Sim], tuple[PPOState, Metrics]]


def make_loss(
    cfg: PPOConfig, groups: AgentGroups, judge: Callable[[Any, Any], tuple[Dist, Array]]
) -> Callable[[Any, Samples], tuple[Array, Metrics]]:
    """Surrogate of the policy, squared value error and entropy bonus, on one minibatch.

    judge:  (params, x (..., N, F)) -> distribution of the actions, values (..., n, S)
    """

    def loss(params: Any, batch: Samples) -> tuple[Array, Metrics]:
        dist, values = judge(params, batch.x)
        log_ratio = groups.head.log_prob(dist, batch.action, batch.legal) - batch.log_prob
        policy, watched = clipped_surrogate(log_ratio, batch.advantage, cfg.clip)
        value = 0.5 * jnp.mean((values - batch.target) ** 2)
        bonus = jnp.mean(groups.head.entropy(dist, batch.legal))
        total = policy + cfg.value_weight * value - cfg.entropy * bonus
        return total, {"loss": total, "loss_policy": policy, "loss_value": value, "entropy": bonus, **watched}

    return loss


@on_history
def make_update(cfg: PPOConfig, sim: Sim | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` does one collect-and-learn round.

    Both take the simulation as an argument, so that its arrays are inputs of the compiled program, not constants.
    """
    home = resolve(cfg, sim)
    groups, optimiser = crew_of(cfg, home), make_optimiser(cfg)
    limited = cfg if isinstance(cfg, PPOLagrangianConfig) else None
    channels = lagrangian.constrained(home) if limited else ()
    budget = lagrangian.budgets_of(limited, home) if limited else jnp.zeros(0, groups.dtype)
    critic = Critic(cfg.widths, cfg.activation, groups.dtype, 1 + len(channels))
    actor = make_actor(cfg, groups, 1 + len(channels))
    central, divided = cfg.central_critic, divisible(groups, home)
    width = min(home.spec.horizon, cfg.steps)  # of a stretch of steps in which no lane has two time limits
    if cfg.shared_torso and central and groups.size > 1:
        raise ValueError(
            f"{cfg.algorithm}: shared_torso = true, but its critic sees what all {groups.size} agents see and a policy "
            "what its own agent sees. Train with ippo or ppo, or set shared_torso=false."
        )

    def judge(params: Any, x: Any) -> tuple[Dist, Array]:
        """Distribution of the actions and values of x (..., N, F), (..., n, S): one of all, or each agent's own."""
        if cfg.shared_torso:
            return distribution_and_values(groups, actor, params["actor"], x)
        dist = distribution(groups, actor, params["actor"], x)
        if central:
            return dist, critic.apply(params["critic"][ALL], all_of(x))  # type: ignore[return-value]
        return dist, by_kind(groups, critic.apply, params["critic"], x)

    loss = make_loss(cfg, groups, judge)

    def rewards(out: Step) -> Array:
        """(B, n, S)"""
        if central:
            own = learner_reward(out, cfg.reward_scale, cfg.cost_weights)[..., None]
        else:
            own = agent_reward(out, cfg.reward_scale, cfg.cost_weights)
        if not channels:
            return own[..., None]
        costs = jnp.broadcast_to(out.cost[..., None, list(channels)], (*own.shape, len(channels)))
        return jnp.concatenate([own[..., None], costs], axis=-1)

    def seen_by(sim: Sim) -> Sim:
        return split_observations(sim) if divided else sim

    def standard(state: PPOState, obs: Any) -> Any:
        """Standardised observations (..., N, F) of kinds of agents."""
        return by_kind(groups, normalise, state.scale, groups.view(obs))

    def init(key: Array, sim: Sim) -> PPOState:
        key, env_key, actor_key, critic_key = jax.random.split(key, 4)
        env, obs = jax.vmap(seen_by(sim).init)(jax.random.split(env_key, cfg.lanes))
        scale = start_scales(groups, home, cfg.obs_floor)
        x = by_kind(groups, normalise, scale, groups.view(take(obs, 0)))
        # a network with values is asked for them, or it would start without the weights of its last layer
        valued: dict[str, Any] = {"valued": True} if cfg.shared_torso else {}
        params: dict[str, Any] = {"actor": start_actor(groups, actor, actor_key, x, **valued)}
        if not cfg.shared_torso:
            whole = {ALL: critic.init(critic_key, all_of(x))} if central else None
            params["critic"] = whole or map_kinds(groups, critic.init, x, keys_by_kind(groups, critic_key))
        state = PPOState(
            params=params,
            opt=optimiser.init(params),
            scale=scale,
            gauge=start_normalizer(cfg, 1 if central else groups.size, budget, groups.dtype),
            multipliers=lagrangian.start_multipliers(limited, home) if limited else (),
            env=env,
            obs=obs,
            legal=jnp.ones((cfg.lanes, home.env.dims.agent, home.env.dims.choice), bool),
            tally=start_stats(home, cfg.lanes, groups.dtype),
            key=key,
        )
        if not cfg.stagger:
            return state
        key = jax.random.fold_in(env_key, 0)
        return staggered(lambda state, key: advance(state, seen_by(sim), key)[0], state, cfg.lanes, home, key)

    def advance(
        state: PPOState, sim: Sim, key: Array
    ) -> tuple[PPOState, tuple[Collected, Any, tuple[EpisodeStats, Array]]]:
        """One step of all lanes: state, and (what is recorded, seen after it, totals of episodes and which ended)."""
        x = standard(state, state.obs)
        legal = groups.view(state.legal)
        dist = distribution(groups, actor, state.params["actor"], x)
        raw = groups.head.sample(key, dist, legal)
        out, env, obs = vstep(sim, state.env, groups.action(raw))
        stats, (totals, ended) = add_step(state.tally, out)
        lived = Collected(
            x=x,
            legal=legal,
            action=raw,
            log_prob=groups.head.log_prob(dist, raw, legal),
            beyond=(),
            reward=rewards(out),
            terminated=ends_value(out, cfg.bootstrap),
            truncated=out.info.truncated,
        )
        # nothing says what is legal in a fresh episode; the environment overrides an illegal first choice
        legal = out.info.legal | ended[:, None, None]
        after = state.replace(env=env, obs=obs, legal=legal, tally=stats)  # type: ignore[attr-defined]
        return after, (lived, out.obs if cfg.bootstrap else (), (totals, ended))

    def collect(state: PPOState, sim: Sim, key: Array) -> tuple[PPOState, Collected, Metrics]:
        sim = seen_by(sim)

        def play(carry: tuple[PPOState, Any], now: tuple[Array, Array]) -> tuple[tuple[PPOState, Any], Any]:
            (state, beyond), (key, stretch) = carry, now
            state, (lived, after, ended) = advance(state, sim, key)
            return (state, kept_at_limits(beyond, after, lived.truncated, stretch)), (lived, ended)

        stretch = jnp.arange(cfg.steps) // width
        rows = -(-cfg.steps // width)
        beyond = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), state.obs) if cfg.bootstrap else ()
        start = (state, beyond), (jax.random.split(key, cfg.steps), stretch)
        (state, beyond), (lived, (totals, ended)) = lax.scan(play, *start)
        return state, lived._replace(beyond=beyond), episode_metrics(totals, ended)

    def play_greedily(state: PPOState, sim: Sim, count: int) -> Metrics:
        """Mean return () and costs (C,) of whole episodes of the policy without its noise, as evaluation plays it."""
        keys = jax.random.split(jax.random.fold_in(state.key, KEYS), count)
        totals = evaluate_policy(sim, ppo_act(cfg, home, policy_of(state)), keys)
        return {"greedy_return": jnp.mean(totals.total), "greedy_cost": jnp.mean(totals.cost, axis=0)}

    def assess(state: PPOState, lived: Collected) -> tuple[Samples, Metrics]:
        _, value = judge(state.params, lived.x)
        # but for the ends, a step is followed by the next one, and the last by what is seen now
        last = judge(state.params, standard(state, state.obs))[1]
        next_value = jnp.concatenate([value[1:], last[None]])
        if cfg.bootstrap:
            beyond = judge(state.params, standard(state, lived.beyond))[1]
            next_value = behind_limits(next_value, beyond, lived.truncated, width)
        reward = lived.reward / sizes(cfg, state.gauge, value.shape[-1]) if cfg.tracks_returns else lived.reward
        advantage = gae(reward, value, next_value, lived.terminated, lived.truncated, cfg.gamma, cfg.gae_lambda)
        target = advantage + value
        explained = 1.0 - jnp.var(advantage[..., 0]) / (jnp.var(target[..., 0]) + TINY)
        worth = advantage[..., 0]
        if channels:
            worth = worth - advantage[..., 1:] @ state.multipliers.price
        samples = Samples(lived.x, lived.legal, lived.action, lived.log_prob, worth, target)
        return samples, {"explained_variance": explained}

    def update(state: PPOState, sim: Sim) -> tuple[PPOState, Metrics]:
        key, collect_key, learn_key = jax.random.split(state.key, KEYS)
        seen, lived, episodes = collect(state, sim, collect_key)
        prices: Metrics = {}
        if cfg.tracks_returns:
            ended = lived.terminated | lived.truncated
            normalizer = observe_returns(seen.gauge, lived.reward, ended, cfg.gamma)
            if cfg.rescale_values:
                streams = 1 + len(channels)
                ratio = sizes(cfg, seen.gauge, streams) / sizes(cfg, normalizer, streams)
                seen = seen.replace(params=rescaled(cfg, seen.params, ratio))  # type: ignore[attr-defined]
            seen = seen.replace(gauge=normalizer)  # type: ignore[attr-defined]
        if limited:
            cost, count = episodes["cost"], episodes["episodes"]
            if limited.greedy_episodes:
                greedy = play_greedily(state, sim, limited.greedy_episodes)
                cost, count = greedy["greedy_cost"], jnp.asarray(limited.greedy_episodes)
                episodes |= greedy
            after = lagrangian.adjust(limited, seen.multipliers, cost[jnp.asarray(channels)], budget, count)
            seen = seen.replace(multipliers=after)  # type: ignore[attr-defined]
            prices = lagrangian.named_prices(after, home)
        samples, fit = assess(seen, lived)
        learned, losses = run_epochs(cfg, loss, optimiser, (seen.params, seen.opt), samples, learn_key)
        # moments change only here: within an update, collecting and learning must see the same numbers
        scale = move_scales(groups, state.scale, lived.x) if cfg.running_obs else state.scale
        done = seen.replace(params=learned[0], opt=learned[1], key=key, scale=scale)  # type: ignore[attr-defined]
        return done, {**episodes, **fit, **losses, **prices}

    return init, update


def all_of(x: Any) -> Any:
    """Input of one agent that sees what all see, side by side: (..., N, F) -> (..., 1, N F)."""
    return x.jointly() if isinstance(x, SplitInput) else x.reshape(*x.shape[:-2], 1, -1)


def kept_at_limits(beyond: Any, after: Any, truncated: Array, stretch: Array) -> Any:
    """Last observations of episodes that a time limit cut, after one more step: leaves (K, B, ...), a row a stretch.

    beyond:     leaves (K, B, ...) [-]  those before it, 0 where no lane has come to a limit
    after:      leaves (B, ...) [-]     observed after the step
    truncated:  (B,) bool               whether it ends at the limit. An episode takes its horizon to get there, so that
                                        no stretch of as many steps has two
    stretch:    () int                  the step's
    """

    def keep(old: Array, new: Array) -> Array:
        here = (jnp.arange(len(old)) == stretch)[:, None] & truncated
        return jnp.where(here.reshape(*here.shape, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(keep, beyond, after)


def behind_limits(following: Array, beyond: Array, truncated: Array, width: int) -> Array:
    """Values of what follows each step (T, B, n, S), in sizes of the returns: `beyond` where a limit ends it.

    following, beyond:  (T, B, n, S), (K, B, n, S) [-]  values of the next steps, and behind limits
    truncated:          (T, B) bool                     which steps end at the limit
    width:              [-]                             steps of a stretch, which has one row of beyond
    """
    here = jnp.repeat(beyond, width, axis=0)[: len(following)]
    return jnp.where(truncated[:, :, None, None], here, following)


def start_normalizer(cfg: PPOConfig, critics: int, budget: Array, dtype: Any) -> Any:
    """Return statistics before the first update: 1 for the reward; at least the budget for a cost.

    budget:  (C,) of the constrained channels, in the units of their costs
    """
    if not cfg.tracks_returns:
        return ()
    floor = jnp.concatenate([jnp.full(1, cfg.reward_floor, dtype), budget])
    zero = jnp.zeros_like(floor)
    scale = Scale(mean=zero, var=floor**2, floor=floor, count=jnp.ones((), dtype))
    return ReturnNormalizer(running=jnp.zeros((cfg.lanes, critics, floor.size), dtype), scale=scale)


def sizes(cfg: PPOConfig, normalizer: ReturnNormalizer, streams: int) -> Array:
    """Divisors of the streams of reward, (S,) in the units of each: costs always, the reward if settings say so."""
    size = spread(normalizer.scale)
    return size if cfg.normalise_reward else jnp.where(jnp.arange(streams) == 0, jnp.ones_like(size), size)


def rescaled(cfg: PPOConfig, params: dict[str, Any], ratio: Array) -> dict[str, Any]:
    """Weights whose values are multiplied by `ratio` (S,) [-], one number a stream; the policy stays as it is."""
    name, layer = ("actor", "values") if cfg.shared_torso else ("critic", "Dense_0")
    return {**params, name: rescale_last_layer(params[name], layer, ratio)}


def make_train(cfg: PPOConfig, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program.

    jit it, and pass the simulation as an argument to keep its arrays out of the program text; vmap over keys trains
    several seeds at once, and episodes still restart under one branch for all of them.
    """
    home = resolve(cfg, sim)
    return repeat_updates(*make_update(cfg, home), cfg.updates, home)


def policy_of(state: PPOState) -> ActorPolicy:
    """Policy of a trained state, all that acting needs; see `policies.ppo_act`."""
    return ActorPolicy(actor=state.params["actor"], scale=state.scale)
