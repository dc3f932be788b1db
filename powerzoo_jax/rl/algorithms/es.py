"""Evolution strategies (Salimans et al. 2017): a search among weights by scores of whole episodes, without gradients.

Candidates theta + sigma z_i and theta - sigma z_i play the same episodes; each gets a rank u_i in [-1/2, 1/2], and
theta moves by Adam along  1 / (P sigma) sum_i u_i z_i  over all P of them. A control for learners that look at single
steps or at the environment's slope: what it cannot find either, neither noise nor a lack of slope explains.

Ranks know budgets: a candidate that keeps them goes before one that does not, whose excess then decides. `strategy`
names another search out of evosax (Lange 2023, extra `evosax`), such as SNES, which gets the same ranks.

Source: Salimans et al. 2017, Evolution strategies as a scalable alternative to reinforcement learning,
arXiv:1703.03864.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import missing_extra, unknown
from powerzoo_jax.envs.constraint import budget_scales
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.algorithms.onpolicy import Metrics, TrainResult, repeat_updates, resolve
from powerzoo_jax.rl.history import on_history
from powerzoo_jax.rl.networks.body import Scale, normalise, observe_batch
from powerzoo_jax.rl.policies import (
    ActorPolicy,
    by_kind,
    crew_of,
    make_actor,
    map_kinds,
    ppo_act,
    start_actor,
    start_scales,
)
from powerzoo_jax.rl.rollout import Episodes, batch_rollout, evaluate_policy, mean_metrics, summarise
from powerzoo_jax.rl.training.config import OPENAI, ESConfig


@struct.dataclass(kw_only=True)
class ESState:
    """State of a training run.

    search:  pytree          of the strategy: the weights theta in a row, and what it remembers
    scale:   dict of Scale   running moments of the observations, by kind
    key:     () PRNG key     source of every draw to come
    actor:   pytree          weights of the policy by kind of agent: theta once more
    """

    search: Any
    scale: dict[str, Scale]
    key: Array
    actor: dict[str, Any]


Init = Callable[[Array, Sim], ESState]
Update = Callable[[ESState, Sim], tuple[ESState, Metrics]]


class Strategy(Protocol):
    """Search for a row of weights (D,) [-] by the ranks of candidates (P, D), 0 for the best."""

    def init(self, key: Array, mean: Array) -> Any: ...

    def ask(self, key: Array, state: Any) -> tuple[Array, Any]: ...

    def tell(self, key: Array, candidates: Array, rank: Array, state: Any) -> Any: ...

    def mean(self, state: Any) -> Array: ...

    def at(self, state: Any, mean: Array) -> Any: ...


@dataclass(frozen=True)
class OpenAI:
    """Gradient of the expected rank under Gaussian noise, from pairs of candidates on either side of the mean.

    state: (mean (D,), state of Adam)
    """

    population: int
    sigma: float
    optimiser: optax.GradientTransformation

    def init(self, key: Array, mean: Array) -> tuple[Array, Any]:
        """Start at the weights given."""
        del key
        return mean, self.optimiser.init(mean)

    def ask(self, key: Array, state: tuple[Array, Any]) -> tuple[Array, tuple[Array, Any]]:
        """Candidates (P, D)."""
        z = jax.random.normal(key, (self.population // 2, state[0].size), state[0].dtype)
        return state[0] + self.sigma * jnp.concatenate([z, -z]), state

    def tell(self, key: Array, candidates: Array, rank: Array, state: tuple[Array, Any]) -> tuple[Array, Any]:
        """Move towards the candidates of low rank."""
        del key
        mean, opt = state
        loss = rank.astype(mean.dtype) / (self.population - 1) - 0.5
        slope = loss @ (candidates - mean) / (self.population * self.sigma**2)
        change, opt = self.optimiser.update(slope, opt, mean)
        return optax.apply_updates(mean, change), opt  # type: ignore[return-value]

    def mean(self, state: tuple[Array, Any]) -> Array:
        """Weights (D,) that stand for the search."""
        return state[0]

    def at(self, state: tuple[Array, Any], mean: Array) -> tuple[Array, Any]:
        """The search around other weights (D,)."""
        return mean, state[1]


@dataclass(frozen=True)
class Evosax:
    """A search of evosax that has a mean, and its parameters."""

    search: Any
    params: Any

    def init(self, key: Array, mean: Array) -> Any:
        """Start at the weights given."""
        return strong(self.search.init(key, mean, self.params))

    def ask(self, key: Array, state: Any) -> tuple[Array, Any]:
        """Candidates (P, D)."""
        candidates, state = self.search.ask(key, state, self.params)
        return candidates, strong(state)

    def tell(self, key: Array, candidates: Array, rank: Array, state: Any) -> Any:
        """Move by the ranks, as a fitness to be minimised."""
        return strong(self.search.tell(key, candidates, rank, state, self.params)[0])

    def mean(self, state: Any) -> Array:
        """Weights (D,) that stand for the search."""
        mean: Array = self.search.get_mean(state)
        return mean

    def at(self, state: Any, mean: Array) -> Any:
        """The search around other weights (D,)."""
        return state.replace(mean=mean)


def strong(tree: Any) -> Any:
    """Leaves as arrays of a fixed dtype: a Python number among them would be another type after an update."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def make_strategy(cfg: ESConfig, mean: Array) -> Strategy:
    """The search that the settings name, among rows of weights like `mean` (D,).

    Raises ImportError without the extra `evosax` for any but the built-in one, ValueError for a name it does not have.
    """
    if cfg.strategy == OPENAI:
        steps = optax.cosine_decay_schedule(cfg.lr, cfg.updates, cfg.lr_end) if cfg.lr_end < 1 else cfg.lr
        return OpenAI(cfg.population, cfg.sigma, optax.adam(steps))
    try:
        from evosax.algorithms import distribution_based_algorithms as searches
    except ImportError as err:
        raise ImportError(missing_extra(f"The strategy {cfg.strategy!r}", "evosax", "evosax")) from err
    if cfg.strategy not in searches:
        raise ValueError(unknown("strategy", cfg.strategy, (OPENAI, *searches)))
    search = searches[cfg.strategy](population_size=cfg.population, solution=np.zeros(mean.shape, mean.dtype))
    params = search.default_params
    # they come with a width of 1, at which the weights of a network say nothing
    return Evosax(search, params.replace(std_init=cfg.sigma) if hasattr(params, "std_init") else params)


def ranked(total: Array, excess: Array) -> Array:
    """Rank of each candidate (P,), 0 for the best: the smaller excess over budgets first, then the higher return."""
    order = jnp.lexsort((-total, excess))
    return jnp.argsort(order)


def excess_over(cost: Array, budget: Array) -> Array:
    """Largest cost above its budget, as a share of it: (..., C), (C,) > 0, inf for none -> (...) [-], 0 for none."""
    return jnp.max(cost / budget - 1.0, axis=-1, initial=0.0)


@on_history
def make_update(cfg: ESConfig, sim: Sim | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` plays and ranks one generation."""
    home = resolve(cfg, sim)
    groups = crew_of(cfg, home)
    network = make_actor(cfg, groups)
    start_scale = start_scales(groups, home, cfg.obs_floor)
    given, least = np.asarray(home.spec.cost_budget), budget_scales(home.spec.cost_names, home.spec.cost_budget)
    budget = jnp.asarray(np.where(given > 0, cfg.budget_share * given, least), groups.dtype)

    def first(key: Array, obs: Array) -> dict[str, Any]:
        return start_actor(groups, network, key, by_kind(groups, normalise, start_scale, groups.view(obs)))

    low = home.spaces()[0].low
    blank = jax.eval_shape(first, jax.random.key(0), jax.ShapeDtypeStruct(low.shape, low.dtype))
    zeros, unravel = ravel_pytree(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), blank))
    strategy = make_strategy(cfg, zeros)

    def init(key: Array, sim: Sim) -> ESState:
        key, weights, search = jax.random.split(key, 3)
        actor = first(weights, sim.init(key)[1])
        return ESState(search=strategy.init(search, ravel_pytree(actor)[0]), scale=start_scale, key=key, actor=actor)

    def play(weights: Array, scale: dict[str, Scale], keys: Array, sim: Sim) -> Episodes:
        return evaluate_policy(sim, ppo_act(cfg, home, ActorPolicy(actor=unravel(weights), scale=scale)), keys)

    def update(state: ESState, sim: Sim) -> tuple[ESState, Metrics]:
        key, ask, tell, draw = jax.random.split(state.key, 4)
        keys = jax.random.split(draw, cfg.lanes)
        # a run that goes on from another policy has its weights in `actor`, elsewhere the two are the same
        around = strategy.at(state.search, ravel_pytree(state.actor)[0])
        candidates, search = strategy.ask(ask, around)
        scores = jax.vmap(play, (0, None, None, None))(candidates, state.scale, keys, sim)
        total, cost = jnp.mean(scores.total, axis=1), jnp.mean(scores.cost, axis=1)
        worth = total - cost @ jnp.asarray(cfg.cost_weights, cost.dtype) if cfg.cost_weights else total
        rank = ranked(worth, excess_over(cost, budget))
        search = strategy.tell(tell, candidates, rank.astype(worth.dtype), search)
        # what the search stood for when it asked: the policy whose costs and return the log shows
        policy = ActorPolicy(actor=state.actor, scale=state.scale)
        _, steps = batch_rollout(sim, ppo_act(cfg, home, policy), (), keys, home.spec.horizon)
        metrics = mean_metrics(summarise(steps), worth.dtype)
        metrics |= {"candidates_return": jnp.mean(total), "candidates_spread": jnp.std(worth)}
        seen = groups.view(steps.obs)
        moved = map_kinds(groups, observe_batch, seen, state.scale) if cfg.running_obs else state.scale
        return ESState(search=search, scale=moved, key=key, actor=unravel(strategy.mean(search))), metrics

    return init, update


def make_train(cfg: ESConfig, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program; jit it, vmap it over keys."""
    home = resolve(cfg, sim)
    return repeat_updates(*make_update(cfg, home), cfg.updates, home)


def policy_of(state: ESState) -> ActorPolicy:
    """Policy of a trained state, all that acting needs; see `policies.ppo_act`."""
    return ActorPolicy(actor=state.actor, scale=state.scale)
