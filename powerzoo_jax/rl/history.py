"""Policies of the last observations: any learner on `envs.history`, and acts that keep the window themselves.

A learner trains on a task that shows its history, and so knows nothing of it. Its policy plays the task as everybody
else sees it, one observation at a time: the window is its carry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import MEMORY, Act
from powerzoo_jax.envs.history import middle_of, no_past, push, with_history
from powerzoo_jax.rl.algorithms.onpolicy import resolve

Programs = tuple[Callable[[Array, Sim], Any], Callable[[Any, Sim], Any]]


def on_history(make_update: Callable[..., Programs]) -> Callable[..., Programs]:
    """`make_update(cfg, sim)` of a learner for which the setting `history` widens observations."""

    @wraps(make_update)
    def made(cfg: Any, sim: Sim | None = None, *more: Any, **options: Any) -> Programs:
        if cfg.history == 1:
            return make_update(cfg, sim, *more, **options)
        home = resolve(cfg, sim)
        init, update = make_update(cfg, with_history(home, cfg.history), *more, **options)

        def wide_init(key: Array, sim: Sim) -> Any:
            return init(key, with_history(sim, cfg.history))

        def wide_update(state: Any, sim: Sim) -> Any:
            return update(state, with_history(sim, cfg.history))

        return wide_init, wide_update

    return made


def with_window(make_act: Callable[..., Act]) -> Callable[..., Act]:
    """`make_act(cfg, sim, policy)` whose policies of several observations remember them where the task does not."""

    @wraps(make_act)
    def made(cfg: Any, sim: Sim, policy: Any, **options: Any) -> Act:
        wide = with_history(sim, cfg.history)
        act = make_act(cfg, wide, policy, **options)
        if wide is sim:
            return act
        middle = middle_of(sim.spaces()[0])
        memory = no_past(middle, cfg.history), getattr(act, "keywords", {}).get(MEMORY, ())
        return Partial(_recall, act, middle, memory=memory)

    return made


def _recall(act: Act, middle: np.ndarray, carry: Any, obs: Array, key: Array, *, memory: Any) -> tuple[Any, Array]:
    del memory  # the carry before an episode, see `envs.episode.first_carry`
    past, own = carry
    past, seen = push(past, obs, middle)
    own, action = act(own, seen, key)
    return (past, own), action
