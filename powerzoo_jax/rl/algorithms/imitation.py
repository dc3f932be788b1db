"""Learning from plans: behaviour cloning and DAgger (Ross, Gordon and Bagnell 2011, arXiv:1011.0686).

A teacher that plans says what it would do at every step, and the policy learns to answer the same to what it observes:

    minimise over theta  E_o [ distance(pi_theta(o), a*) ]

clone    the observations are those of the teacher's own episodes
dagger   they are those of the policy: of the episodes of update k the teacher leads the share `teacher_share`^k, and
         the policy the others, where the teacher says at every step what it would do there; the samples of the last
         `rounds` updates are kept

The teacher may know more than the policy will: the oracle sees the whole day before it begins. But its plan holds for
that day from its first step on, and has no answer where the policy strays from it: it can be cloned, and is refused
where the policy leads. The causal planner answers everywhere.

Example:
    state, metrics = jax.jit(make_train(DAggerConfig(task="battery_arbitrage", updates=20)))(jax.random.key(0))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from powerzoo_jax.base import Step, struct
from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.base.textfile import parse_assignments
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act, first_carry
from powerzoo_jax.envs.history import without_history
from powerzoo_jax.oracle.baselines import baseline_policy
from powerzoo_jax.oracle.registry import PlanCarry
from powerzoo_jax.rl.algorithms.onpolicy import Metrics, TrainResult, repeat_updates, resolve
from powerzoo_jax.rl.history import on_history
from powerzoo_jax.rl.networks.body import Scale, normalise, observe_batch
from powerzoo_jax.rl.networks.heads import Dist
from powerzoo_jax.rl.networks.recurrent import beside
from powerzoo_jax.rl.policies import (
    ActorPolicy,
    by_kind,
    clone_act,
    crew_of,
    distribution,
    filter_of,
    make_actor,
    make_gru,
    map_kinds,
    no_memory,
    remembering,
    start_actor,
    start_scales,
)
from powerzoo_jax.rl.rollout import mean_metrics, summarise
from powerzoo_jax.rl.training.config import CloneConfig, DAggerConfig
from powerzoo_jax.rl.training.parallel import over_devices
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import all_starts, episode_keys, seeded_starts

SEED = 0  # first seed of the episodes that plans are made for, where not every start of the split is planned


class Teacher(NamedTuple):
    """A policy that is imitated.

    act:    Act                what it does, given the observation of the task without history
    carry:  pytree             its carry before an episode; leading axis S where it has plans
    keys:   (S,) PRNG keys     of the episodes that its plans are for; () where it answers in every state
    draws:  Draw, leading (S,) the starts of these episodes; () likewise
    """

    act: Act
    carry: Any = ()
    keys: Any = ()
    draws: Any = ()

    @property
    def plans(self) -> int:
        """Number of episodes that it has plans for, 0 where it needs none."""
        return len(self.keys)


class Lesson(NamedTuple):
    """Samples: observation x (N, F) as observed, the teacher's action (N, U), weight () of 0 behind an end, else 1."""

    x: Array
    action: Array
    weight: Array


@struct.dataclass(kw_only=True)
class ImitationState:
    """State of a training run.

    actor, opt:  pytrees        weights by kind of agent, and the state of their optimiser
    scale:       dict of Scale  running moments of the observations, by kind
    store:       Lesson         samples of the last updates, (rounds, lanes T, ...), or (rounds, lanes, T, ...) of a
                             policy that remembers; () where only the last ones count
    done:        () int32       updates done
    key:         () PRNG key    source of every draw to come
    """

    actor: dict[str, Any]
    opt: Any
    scale: dict[str, Scale]
    store: Any
    done: Array
    key: Array


Init = Callable[[Array, Sim], ImitationState]
Update = Callable[[ImitationState, Sim], tuple[ImitationState, Metrics]]


def teacher_of(cfg: CloneConfig, sim: Sim) -> Teacher:
    """Teacher of a task by its name in the settings, one of the names of `oracle.evaluate_baseline`.

    Raises ValueError for a name that the task does not have, SettingsError where a plan would have to answer to states
    that it was not made for.
    """
    spec, keywords = sim.spec, parse_assignments(cfg.teacher_keywords, "teacher_keywords")
    overrides = tuple((dict(sim.spec.overrides) | keywords).items())
    dtype = str(sim.spaces()[0].low.dtype)
    # learners are built while programs are traced, and a planner is NumPy on the host
    with jax.ensure_compile_time_eval():
        teacher = _teacher(spec.id, spec.version, spec.split, overrides, dtype, cfg.teacher, cfg.plans)
    if teacher.plans and isinstance(cfg, DAggerConfig):
        raise SettingsError(
            f"dagger: teacher = {cfg.teacher!r} plans a whole episode of {spec.id!r} before it begins and cannot say "
            "what to do where the policy has led instead. Take teacher = 'causal' where the task has one, or clone it: "
            "--algorithm clone."
        )
    return teacher


@lru_cache(maxsize=4)
def _teacher(
    task: str, version: int, split: str, overrides: tuple[tuple[str, Any], ...], dtype: str, name: str, plans: int
) -> Teacher:
    sim = make(task, version=version, split=split, dtype=dtype, **dict(overrides))
    draws = all_starts(sim)
    first, last = take(draws, np.array([0, -1])), episode_keys(SEED, 2)
    policy = baseline_policy(sim, name, first, last)
    alike = all(np.array_equal(x[0], x[1]) for x in jax.tree.leaves(policy.carry))
    if alike and not isinstance(policy.carry, PlanCarry):
        return Teacher(policy.act, take(policy.carry, 0))
    if plans:
        draws = seeded_starts(sim, plans, SEED)
    keys = episode_keys(SEED, draws.load_row.shape[0])
    policy = baseline_policy(sim, name, draws, keys)
    return Teacher(policy.act, policy.carry, keys, draws)


@on_history
def make_update(cfg: CloneConfig, sim: Sim | None = None, teacher: Teacher | None = None) -> tuple[Init, Update]:
    """Build (init, update): `init(key, sim)` starts a run, `update(state, sim)` plays episodes and learns from them.

    teacher:  one of your own; None takes the planner that settings name
    """
    home = resolve(cfg, sim)
    groups, own = crew_of(cfg, home), without_history(home).env.dims.obs
    network, horizon = make_gru(cfg, groups) if cfg.memory else make_actor(cfg, groups), home.spec.horizon
    schedule = optax.cosine_decay_schedule(cfg.lr, cfg.updates * cfg.gradients, cfg.lr_end)
    optimiser = optax.chain(
        optax.clip_by_global_norm(cfg.max_grad_norm), optax.adamw(schedule, weight_decay=cfg.weight_decay)
    )
    sifted = filter_of(cfg, home)
    counts = None if sifted is None else sifted[-1].reshape(groups.size, -1)
    fading = cfg if isinstance(cfg, DAggerConfig) else None
    # a policy that remembers learns whole episodes, any other one single steps
    shape = (cfg.lanes, horizon) if cfg.memory else (cfg.lanes * horizon,)
    batch_size = max(1, cfg.batch // horizon) if cfg.memory else cfg.batch

    def init(key: Array, sim: Sim) -> ImitationState:
        key, weights = jax.random.split(key)
        scale = start_scales(groups, home, cfg.obs_floor)
        seen = groups.view(sim.init(key)[1])
        x = by_kind(groups, normalise, scale, seen)
        x = beside(x, no_memory(cfg, groups)) if cfg.memory else x
        actor = start_actor(groups, network, weights, x)
        store: Any = ()
        if cfg.rounds > 1:
            rows = (cfg.rounds, *shape)
            moves = (groups.size, len(groups.head.options))
            dtype = jnp.int32 if groups.head.whole else groups.dtype
            store = Lesson(
                x=jnp.zeros((*rows, *seen.shape), groups.dtype),
                action=jnp.zeros((*rows, *moves), dtype),
                weight=jnp.zeros(rows, groups.dtype),
            )
        done = jnp.zeros((), jnp.int32)
        return ImitationState(actor=actor, opt=optimiser.init(actor), scale=scale, store=store, done=done, key=key)

    def play(state: ImitationState, guide: Teacher, sim: Sim, key: Array) -> tuple[Lesson, Step]:
        """One whole episode: (lesson, steps), (T, ...)."""
        begin, which, lead, key = jax.random.split(key, 4)
        if guide.plans:
            row = jax.random.randint(which, (), 0, guide.plans)
            episode, carry = take((guide.keys, guide.draws), row), take(guide.carry, row)
            start, obs = sim.env.begin(*episode, sim.params)
        else:
            (start, obs), carry = sim.init(begin), guide.carry
        act = clone_act(cfg, home, policy_of(state))
        leads = jax.random.uniform(lead) < fading.teacher_share**state.done if fading else True

        def advance(loop: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], tuple[Lesson, Step]]:
            at, obs, carry, memory, alive = loop
            carry, advised = guide.act(carry, obs[..., -own:], key)
            action = advised
            if fading:
                memory, answer = act(memory, obs, key)
                action = jnp.where(leads, advised, answer)
            out = sim.step(at, action)
            told = Lesson(groups.view(obs), advised.reshape(groups.size, -1), alive.astype(groups.dtype))
            alive = alive & ~(out.info.terminated | out.info.truncated)
            return (out.state, out.obs, carry, memory, alive), (told, out._replace(state=()))

        begun = start, obs, carry, first_carry(act, ()), jnp.ones((), bool)
        lived: tuple[Lesson, Step] = lax.scan(advance, begun, jax.random.split(key, horizon))[1]
        return lived

    def answers(actor: Any, x: Array) -> Dist:
        """Distribution of the actions at standardised observations (n, N, F), of whole episodes (n, T, N, F) if it
        remembers.
        """
        if not cfg.memory:
            return distribution(groups, network, actor, x)

        def advance(memory: Array, x: Array) -> tuple[Array, Dist]:
            dist, _, memory = remembering(groups, network, actor, x, memory)
            return memory, dist

        blank = no_memory(cfg, groups)
        _, told = lax.scan(advance, jnp.broadcast_to(blank, (len(x), *blank.shape)), jnp.moveaxis(x, 1, 0))
        dist: Dist = jax.tree.map(lambda part: jnp.moveaxis(part, 0, 1), told)
        return dist

    def loss(actor: Any, scale: dict[str, Scale], batch: Lesson) -> Array:
        dist = answers(actor, by_kind(groups, normalise, scale, batch.x))
        far = jnp.mean(groups.head.distance(dist, batch.action, cfg.lean, counts), axis=-1)
        return jnp.sum(batch.weight * far) / jnp.maximum(jnp.sum(batch.weight), 1.0)

    def learn(state: ImitationState, lessons: Lesson, count: Array, key: Array) -> tuple[ImitationState, Array]:
        """Gradient steps on a buffer of samples (R, ...) of which the first `count` are filled."""

        def descend(carry: tuple[Any, Any], key: Array) -> tuple[tuple[Any, Any], Array]:
            actor, opt = carry
            rows = jax.random.randint(key, (batch_size,), 0, count)
            value, grads = jax.value_and_grad(loss)(actor, state.scale, over_devices(take(lessons, rows)))
            change, opt = optimiser.update(grads, opt, actor)
            return (optax.apply_updates(actor, change), opt), value

        keys = jax.random.split(key, cfg.gradients)
        (actor, opt), values = lax.scan(descend, (state.actor, state.opt), keys)
        return state.replace(actor=actor, opt=opt), jnp.mean(values)  # type: ignore[attr-defined]

    def update(state: ImitationState, sim: Sim) -> tuple[ImitationState, Metrics]:
        key, play_key, learn_key = jax.random.split(state.key, 3)
        # here and not before: who only reads a state of this learner needs no plans
        guide = teacher_of(cfg, home) if teacher is None else teacher
        lived, steps = jax.vmap(lambda key: play(state, guide, sim, key))(jax.random.split(play_key, cfg.lanes))
        totals = summarise(steps)
        lessons: Lesson = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[2:]), lived)
        if cfg.running_obs:
            moved = map_kinds(groups, observe_batch, lessons.x, state.scale)
            state = state.replace(scale=moved)  # type: ignore[attr-defined]
        count = jnp.asarray(shape[0])
        if cfg.rounds > 1:
            store = jax.tree.map(lambda old, new: old.at[state.done % cfg.rounds].set(new), state.store, lessons)
            state = state.replace(store=store)  # type: ignore[attr-defined]
            count = jnp.minimum(state.done + 1, cfg.rounds) * shape[0]
            lessons = jax.tree.map(lambda x: x.reshape(cfg.rounds * shape[0], *x.shape[2:]), store)
        state, value = learn(state, lessons, count, learn_key)
        metrics = mean_metrics(totals, value.dtype) | {"loss": value}
        return state.replace(done=state.done + 1, key=key), metrics  # type: ignore[attr-defined]

    return init, update


def make_train(cfg: CloneConfig, sim: Sim | None = None, teacher: Teacher | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult`: the whole run as one program; jit it, vmap it over keys."""
    home = resolve(cfg, sim)
    return repeat_updates(*make_update(cfg, home, teacher=teacher), cfg.updates, home)


def policy_of(state: ImitationState) -> ActorPolicy:
    """Policy of a trained state, all that acting needs; see `policies.clone_act`."""
    return ActorPolicy(actor=state.actor, scale=state.scale)
