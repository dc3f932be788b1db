"""Running episode of a view as a trace and as a page: played again from its start with the actions that it was given.

Until it is asked for, an environment keeps nothing but its actions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_compat._host import Host, starting_at
from powerzoo_compat._tape import Take
from powerzoo_jax.base.files.results import write_text
from powerzoo_jax.envs.series import draw_episode

if TYPE_CHECKING:
    from powerzoo_jax.envs.trace.types import Trace


class ShowsEpisode:
    """Environment whose running episode can be shown, with bus voltages, branch loadings, prices, actions and costs.

    Subclasses name the attribute that the task runs on: a Host, or another environment of this kind.
    """

    _runs_on = "_host"

    def episode_trace(self, *, policy: str = "") -> Trace:
        """Tables of the running episode by step and id, with units; see `powerzoo_jax.envs.Trace`.

        policy:  name of what has acted

        The steps are computed again, in one program, from the start of the episode and the actions it was given. Right
        after a reset it is the episode before. Raises RuntimeError before the first step.
        """
        return _trace(*self._taped(), policy)

    def episode_html(self, path: str | Path | None = None, *, policy: str = "", title: str = "") -> str | Path:
        """Page of the running episode for a browser; see `powerzoo_jax.plot.episode_html`.

        path:    file to write, which is returned; None returns the page as text
        policy:  name of what has acted
        title:   heading; "" takes the task and the first day

        Raises RuntimeError before the first step.
        """
        from powerzoo_jax.plot import episode_html

        host, take = self._taped()
        trace = _trace(host, take, policy)
        day = host.start_days[trace.episode]
        page = episode_html(trace, title=title or f"{trace.task.replace('_', ' ')}, {day}")
        if path is None:
            return page
        target = Path(path)
        write_text(target, page)
        return target

    def _taped(self) -> tuple[Host, Take | None]:
        """Host that runs the task, and the episode to show."""
        below = getattr(self, self._runs_on)
        if isinstance(below, Host):
            return below, below.tape.shown()
        inner = below.unwrapped
        if not isinstance(inner, ShowsEpisode):
            raise TypeError(f"{type(inner).__name__} keeps no actions: only environments of this package can be shown.")
        return inner._taped()


def _trace(host: Host, take: Take | None, policy: str) -> Trace:
    from powerzoo_jax.envs.trace.episode import build_trace, run_traced

    if take is None:
        raise RuntimeError("there is no step to show. Call env.reset(seed=...) and env.step(action) first.")
    sim, count = host.live, len(take.actions)
    starts = starting_at(sim.params.starts, jnp.int32(take.choice.day))
    drawn = draw_episode(take.key, starts, *map(jnp.asarray, take.choice[1:]))
    actions = np.zeros((sim.spec.horizon, *take.actions[0].shape), take.actions[0].dtype)
    actions[:count] = take.actions
    traced = run_traced(sim, Partial(_repeat, actions), jnp.int32(0), take.key, drawn)
    info = traced.steps.info
    over = np.flatnonzero(np.asarray(info.terminated | info.truncated))
    last = min(count, int(over[0]) + 1 if len(over) else count)
    steps = jax.tree.map(lambda x: x[:last], traced)
    return build_trace(sim, steps, policy=policy, episode=host.day_id(int(drawn.load_row)))


def _repeat(actions: Array, step: Array, obs: Array, key: Array) -> tuple[Any, Array]:
    """Policy that gives its actions (T, A, U) again, one after another."""
    del obs, key
    return step + 1, jnp.asarray(actions)[step]
