"""Parts shared by learners: episode totals, rewards, advantages, passes over the samples of an update, whole runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from powerzoo_jax.base import Step, struct
from powerzoo_jax.base.numerics import TINY, safe_divide
from powerzoo_jax.base.struct import brief
from powerzoo_jax.base.tree import take, where_done
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.networks.body import Scale, observe_batch
from powerzoo_jax.rl.training.common import Config
from powerzoo_jax.rl.training.config import PPOConfig
from powerzoo_jax.rl.training.parallel import devices_in_force, on_each_device, over_devices

Metrics = dict[str, Array]

# of a minibatch: losses, and how far the policy has moved from the one that acted
METRICS = ("loss", "loss_policy", "loss_value", "entropy", "kl", "clip_fraction", "ratio_error")

ADAM_EPS = 1e-5  # gradients of the clipped surrogate vanish for many weights; a smaller one lets noise move them


class TrainResult(NamedTuple):
    """Final state, and the metrics of every update along a leading axis."""

    state: Any
    metrics: Metrics

    def __repr__(self) -> str:
        return brief(self)


@struct.dataclass(kw_only=True)
class EpisodeStats:
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


def resolve(cfg: Config, sim: Sim | None) -> Sim:
    """The simulation given, or the one the settings name, with their keywords of `make`."""
    if sim is not None:
        return sim
    from powerzoo_jax.tasks import make

    return make(cfg.task, split=cfg.split, **cfg.keywords)


def start_stats(sim: Sim, lanes: int, dtype: Any) -> EpisodeStats:
    """Totals of episodes that have just begun: zeros."""
    dims = sim.env.dims
    return EpisodeStats(
        total=jnp.zeros(lanes, dtype),
        cost=jnp.zeros((lanes, dims.cost), dtype),
        terms=jnp.zeros((lanes, dims.term), dtype),
        length=jnp.zeros(lanes, jnp.int32),
    )


def add_step(stats: EpisodeStats, out: Step) -> tuple[EpisodeStats, tuple[EpisodeStats, Array]]:
    """Add a step; return the totals to carry on (zero after an end), and the totals with the end flags."""
    ended = out.info.terminated | out.info.truncated

    def restart(x: Array) -> Array:
        return jnp.where(ended.reshape(ended.shape + (1,) * (x.ndim - 1)), jnp.zeros_like(x), x)

    add = EpisodeStats(
        total=jnp.mean(out.reward, axis=-1),
        cost=out.cost,
        terms=jnp.mean(out.info.terms, axis=-2),
        length=jnp.ones_like(stats.length),
    )
    now: EpisodeStats = jax.tree.map(jnp.add, stats, add)
    return jax.tree.map(restart, now), (now, ended)


def staggered(advance: Callable[[Any, Array], Any], state: Any, lanes: int, home: Sim, key: Array) -> Any:
    """State with its lanes at steps drawn from a whole episode, which the first policy has played until there.

    advance:  (state, key) -> the state one step of all lanes later
    """
    draw, key = jax.random.split(key)
    ages = jax.random.randint(draw, (lanes,), 0, home.spec.horizon, jnp.int32)

    def age(state: Any, now: tuple[Array, Array]) -> tuple[Any, None]:
        step, key = now
        older = advance(state, key)
        moved = {k: where_done(step < ages, getattr(older, k), getattr(state, k)) for k in state.BY_LANE}
        return state.replace(**moved), None

    steps = home.spec.horizon - 1
    return lax.scan(age, state, (jnp.arange(steps), jax.random.split(key, steps)))[0]


def episode_metrics(totals: EpisodeStats, ended: Array) -> Metrics:
    """Mean totals of the episodes that ended within an update; 0 where none did."""
    count = jnp.sum(ended)

    def mean(x: Array) -> Array:
        x = x.astype(totals.total.dtype)
        mask = ended.reshape(ended.shape + (1,) * (x.ndim - 2))
        return safe_divide(jnp.sum(jnp.where(mask, x, 0.0), axis=(0, 1)), count.astype(x.dtype))

    means = {k: mean(getattr(totals, k)) for k in ("cost", "terms", "length")}
    return {"return": mean(totals.total), "episodes": count.astype(jnp.int32), **means}


def agent_reward(out: Step, scale: float, cost_weights: tuple[float, ...]) -> Array:
    """Each agent's reward less priced costs of the system, scaled: (..., A), (..., C) -> (..., A)."""
    return scale * (out.reward - _price(out, cost_weights)[..., None] if cost_weights else out.reward)


def learner_reward(out: Step, scale: float, cost_weights: tuple[float, ...]) -> Array:
    """Team-mean reward less priced costs, scaled: (..., A), (..., C) -> (...)."""
    reward = jnp.mean(out.reward, axis=-1)
    if cost_weights:
        reward = reward - _price(out, cost_weights)
    return scale * reward


def _price(out: Step, cost_weights: tuple[float, ...]) -> Array:
    return jnp.sum(out.cost * jnp.asarray(cost_weights, out.cost.dtype), axis=-1)


def ends_value(out: Step, bootstrap: bool) -> Array:
    """Flags of steps after which the value is zero: a termination, and a time limit unless it is bootstrapped."""
    return out.info.terminated | (out.info.truncated & (not bootstrap))


def gae(
    reward: Array, value: Array, next_value: Array, terminated: Array, truncated: Array, gamma: float, lam: float
) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016); rewards, values and the result are (T, B, ...).

    delta_t = r_t + gamma V(o'_t) [not terminated] - V(o_t),  A_t = delta_t + gamma lam A_{t+1} [not ended].
    o'_t is the true observation after step t. A time limit cuts the trace but keeps the value behind it;
    a termination cuts both. The flags have the leading axes of the rewards.
    """
    terminated, truncated = (x.reshape(x.shape + (1,) * (reward.ndim - x.ndim)) for x in (terminated, truncated))
    delta = reward + gamma * jnp.where(terminated, jnp.zeros_like(next_value), next_value) - value

    def back(ahead: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, ended = now
        advantage = delta + gamma * lam * jnp.where(ended, jnp.zeros_like(ahead), ahead)
        return advantage, advantage

    return lax.scan(back, jnp.zeros_like(delta[0]), (delta, terminated | truncated), reverse=True)[1]


def standardise(x: Array) -> Array:
    """Values with mean 0 and standard deviation 1, which make a step as long whatever the size of rewards."""
    return (x - jnp.mean(x)) / (jnp.std(x) + TINY)


def clipped_surrogate(log_ratio: Array, advantage: Array, clip: float) -> tuple[Array, Metrics]:
    """PPO's policy loss on standardised advantages, and diagnostics: divergence, share of clipped ratios."""
    ratio = jnp.exp(log_ratio)
    adv = standardise(advantage)
    loss = -jnp.mean(jnp.minimum(ratio * adv, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * adv))
    return loss, {
        "kl": jnp.mean(ratio - 1.0 - log_ratio),  # Schulman's low-variance estimate, never negative
        "clip_fraction": jnp.mean((jnp.abs(ratio - 1.0) > clip).astype(ratio.dtype)),
        "ratio_error": jnp.max(jnp.abs(ratio - 1.0)),
    }


@struct.dataclass(kw_only=True)
class ReturnNormalizer:
    """Running standard deviation of the discounted return of each reward stream (S), by which rewards are divided.

    running:  (B, n, S)  discounted returns of the episodes in progress
    scale:    Scale      moments of the returns seen, (S,)
    """

    BY_LANE: ClassVar[tuple[str, ...]] = ("running",)

    running: Array
    scale: Scale


def observe_returns(normalizer: ReturnNormalizer, reward: Array, ended: Array, gamma: float) -> ReturnNormalizer:
    """Return statistics after the rewards (T, B, n, S) of an update; ended (T, B)."""

    def advance(running: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, ended = now
        running = gamma * running + reward
        return jnp.where(ended[:, None, None], jnp.zeros_like(running), running), running

    running, returns = lax.scan(advance, normalizer.running, (reward, ended))
    return ReturnNormalizer(running=running, scale=observe_batch(normalizer.scale, returns))


def rescale_last_layer(networks: Any, layer: str, ratio: Array) -> Any:
    """Weights of networks, a dict by kind, with the outputs of a last layer multiplied by `ratio` (S,).

    Values are learnt in sizes of the returns. When these move, every value moves with them though nothing about the
    task has changed; with the ratio of the old sizes to the new ones here, values in units of the rewards stay what
    they were, as in PopArt (van Hasselt et al. 2016), whose shift by the mean these sizes do not have.
    """

    def scale(network: Any) -> Any:
        weights = network["params"]
        last = {name: x * ratio for name, x in weights[layer].items()}  # kernel (W, S), bias (S,)
        return {**network, "params": {**weights, layer: last}}

    return {kind: scale(network) for kind, network in networks.items()}


def make_optimiser(cfg: PPOConfig) -> optax.GradientTransformation:
    """Adam with a linear schedule over the whole run, behind a clip of the gradient's norm."""
    schedule = optax.linear_schedule(cfg.lr, cfg.lr * cfg.lr_end, cfg.updates * cfg.epochs * cfg.minibatches)
    return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), optax.adam(schedule, eps=ADAM_EPS))


def lane_blocks(cfg: PPOConfig) -> int:
    """Number of blocks that lanes are shuffled within: a multiple of the devices where lanes and samples allow it."""
    count = math.lcm(cfg.shards, devices_in_force())
    width = cfg.lanes // count
    enough = width % cfg.minibatches == 0 if cfg.by_lanes else width * cfg.steps >= cfg.minibatches
    return count if cfg.lanes % count == 0 and width and enough else cfg.shards


def by_block(samples: Any, blocks: int) -> Any:
    """Samples (T, B, ...) by block of lanes: (blocks, T B / blocks, ...)."""

    def gather(x: Array) -> Array:
        steps, lanes, *rest = x.shape
        parts = jnp.moveaxis(x.reshape(steps, blocks, lanes // blocks, *rest), 1, 0)
        return parts.reshape(blocks, steps * (lanes // blocks), *rest)

    return jax.tree.map(gather, samples)


def shuffled(samples: Any, bits: Array, minibatches: int) -> Any:
    """Minibatches (M, n, ...) of samples (blocks, R, ...), each with an equal share of every block.

    bits:  (blocks, R)  random words that order the samples of a block; one sort, where `jax.random.permutation` takes
           two for ties that do not matter here
    """
    blocks, size = bits.shape
    share = size // minibatches
    order = jnp.argsort(bits, axis=1)[:, : share * minibatches] + size * jnp.arange(blocks)[:, None]
    rows = order.reshape(blocks, minibatches, share).swapaxes(0, 1).reshape(minibatches, blocks * share)
    return take(jax.tree.map(lambda x: x.reshape(blocks * size, *x.shape[2:]), samples), rows)


def next_lanes(parts: Any, begin: Array, share: int) -> Any:
    """Minibatch (blocks T share, ...): lanes `begin` to `begin` + share of every block (blocks, T, L, ...)."""

    def cut(x: Array) -> Array:
        some = lax.dynamic_slice_in_dim(x, begin, share, axis=2)
        return some.reshape(math.prod(some.shape[:3]), *some.shape[3:])

    return jax.tree.map(cut, parts)


def run_epochs(
    cfg: PPOConfig,
    loss: Callable[[Any, Any], tuple[Array, Metrics]],
    optimiser: optax.GradientTransformation,
    learned: tuple[Any, Any],
    samples: Any,
    key: Array,
) -> tuple[tuple[Any, Any], Metrics]:
    """Several passes over samples (T, B, ...) in minibatches: (params, opt) and the mean metrics.

    Samples are shuffled once a pass, within blocks of lanes that live on one device: only gradients and moments of
    advantages are summed over devices, whatever the number of lanes and steps. With `by_lanes` minibatches are cut
    from the lanes of every block, in every pass at another place, and nothing is gathered row by row.
    With `kl_limit` the weights stay as they are after a minibatch on which the policy had moved further.
    """
    blocks = lane_blocks(cfg)
    stops = not isinstance(cfg.kl_limit, float) or cfg.kl_limit > 0  # a sweep makes it an array
    samples, minibatches = over_devices(samples, axis=1), cfg.minibatches

    def descend(carry: tuple[Any, Array], batch: Any) -> tuple[tuple[Any, Array], Array]:
        (params, opt), goes_on = carry
        grads, metrics = jax.grad(loss, has_aux=True)(params, over_devices(batch))
        change, after = optimiser.update(grads, opt, params)
        learned = optax.apply_updates(params, change), after
        if stops:
            goes_on = goes_on & (metrics["kl"] <= cfg.kl_limit)
            learned = jax.tree.map(partial(jnp.where, goes_on), learned, (params, opt))
        # one row of all metrics: stored one by one, each would be a launch of its own
        return (learned, goes_on), jnp.stack([metrics[name] for name in METRICS])

    def pass_over_samples(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Array]:
        bits = jax.random.bits(key, (blocks, cfg.lanes // blocks * cfg.steps))
        return lax.scan(descend, carry, on_each_device(shuffle, parts, bits, axis=1))

    def pass_over_lanes(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Array]:
        begins = (jax.random.randint(key, (), 0, width) + share * jnp.arange(minibatches)) % width
        return lax.scan(lambda carry, begin: descend(carry, next_lanes(parts, begin, share)), carry, begins)

    if cfg.by_lanes:
        width, share = cfg.lanes // blocks, cfg.lanes // blocks // minibatches
        parts = jax.tree.map(lambda x: round_the_end(x.reshape(len(x), blocks, width, *x.shape[2:]), share), samples)
        epoch = pass_over_lanes
    else:
        parts, shuffle = by_block(samples, blocks), partial(shuffled, minibatches=minibatches)
        epoch = pass_over_samples
    (learned, _), rows = lax.scan(epoch, (learned, jnp.ones((), bool)), jax.random.split(key, cfg.epochs))
    means = dict(zip(METRICS, jnp.mean(rows, axis=(0, 1)), strict=True))
    # of the first minibatch: 0 up to rounding, or the stored log-probability is wrong
    return learned, {**means, "ratio_error": rows[0, 0, METRICS.index("ratio_error")]}


def round_the_end(x: Array, share: int) -> Array:
    """Lanes (T, blocks, L, ...) by block with the first ones once more behind the last: (blocks, T, L + share, ...)."""
    return jnp.moveaxis(jnp.concatenate([x, x[:, :, :share]], axis=2), 1, 0)


def repeat_updates(
    init: Callable[[Array, Sim], Any], update: Callable[[Any, Sim], tuple[Any, Metrics]], count: int, home: Sim
) -> Callable[..., TrainResult]:
    """`train(key, sim=...) -> TrainResult`: init and `count` updates as one program."""

    def train(key: Array, sim: Sim = home) -> TrainResult:
        return TrainResult(*lax.scan(lambda state, _: update(state, sim), init(key, sim), length=count))

    return train
