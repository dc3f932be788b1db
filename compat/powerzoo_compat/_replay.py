"""Running episode of a view: kept aside and restored, and shown as a trace and as a page.

What is shown is played again from its start with the actions that it was given: until then an environment keeps nothing
but these. Snapshots hold what resets and steps change, for search, curricula and what-if runs.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

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


class Snapshot(NamedTuple):
    """A view at one moment, for `restore`; nothing that happens later changes it. It copies and pickles.

    forms:   class and lanes of each layer, from the view inwards
    moving:  its attributes that move; those that only a reset makes are missing before it
    host:    the task below them
    """

    forms: tuple[tuple[type, int], ...]
    moving: tuple[dict[str, Any], ...]
    host: Host


class Restorable:
    """View whose state can be kept and put back.

    Classes name in `_runs_on` the attribute that the task runs on, a Host or another view of this kind, and in
    `_moving` those of their own attributes that resets and steps change; a subclass adds to the names of its parents.
    """

    _runs_on = "_host"
    _moving: ClassVar[tuple[str, ...]] = ()

    def snapshot(self) -> Snapshot:
        """The present state, with the stream of later episodes: what follows `restore` follows it bit for bit.

        Wrappers around this view keep their own counts, which a snapshot does not hold: Gymnasium's TimeLimit and
        RecordEpisodeStatistics go on counting.
        """
        layers, host = self._layers()
        moving = tuple(
            {name: getattr(layer, name) for name in _moving_of(layer) if hasattr(layer, name)} for layer in layers
        )
        return copy.deepcopy(Snapshot(tuple(map(_form, layers)), moving, host))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this view, or of another one of the same class and task; it can be used again.

        Raises ValueError for one of another class, task or number of lanes, TypeError for what is no snapshot.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"restore takes what snapshot() returned, got {type(snapshot).__name__}.")
        layers, host = self._layers()
        ours, given = ((each.sim.env, each.sim.spec) for each in (host, snapshot.host))
        if ours != given or snapshot.forms != tuple(map(_form, layers)):
            raise ValueError(
                f"the snapshot of a view of {snapshot.host.summary} does not fit {self!r}. Restore it on a view that "
                "is built alike, or on a copy of the one it was taken from."
            )
        kept = copy.deepcopy(snapshot)
        for layer, values in zip(layers, kept.moving, strict=True):
            for name in _moving_of(layer):
                if name in values:
                    setattr(layer, name, values[name])
                elif hasattr(layer, name):
                    delattr(layer, name)
        host.go_back(kept.host)

    def _layers(self) -> tuple[list[Restorable], Host]:
        """This view and those that it runs on, from the outside, and the task below them."""
        layers: list[Restorable] = [self]
        while True:
            below = getattr(layers[-1], layers[-1]._runs_on)
            while not isinstance(below, Host | Restorable):
                if not hasattr(below, "env"):
                    raise TypeError(
                        f"{type(below).__name__} cannot be restored: only environments of this package can."
                    )
                below = below.env
            if isinstance(below, Host):
                return layers, below
            layers.append(below)


class ShowsEpisode(Restorable):
    """Environment whose running episode can be shown, with bus voltages, branch loadings, prices, actions and costs."""

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


def _form(layer: Restorable) -> tuple[type, int]:
    return type(layer), getattr(layer, "num_envs", 1)


def _moving_of(layer: Restorable) -> tuple[str, ...]:
    return tuple(name for kind in type(layer).__mro__ for name in vars(kind).get("_moving", ()))


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
    episode = host.day_id(int(drawn.load_row))
    return build_trace(sim, steps, policy=policy, episode=episode, day=host.start_days[episode])


def _repeat(actions: Array, step: Array, obs: Array, key: Array) -> tuple[Any, Array]:
    """Policy that gives its actions (T, A, U) again, one after another."""
    del obs, key
    return step + 1, jnp.asarray(actions)[step]
