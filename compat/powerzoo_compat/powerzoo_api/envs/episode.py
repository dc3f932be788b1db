"""Running episode of a task on the host, for environments of one agent and of several alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from powerzoo_compat._host import Choice, Host, Reading
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.envs.info import InfoBuilder
from powerzoo_compat.powerzoo_api.envs.render import HUMAN, EpisodeViewer
from powerzoo_compat.powerzoo_api.envs.reports import Episode

SEED_BOUND = 2**32


class EpisodeOwner(ShowsEpisode):
    """A task on the host, its running episode and its budgets; subclasses add an interface.

    cost_thresholds, cost_threshold:  budgets of the selected channels, and their sum
    """

    render_mode: str | None
    _moving: ClassVar[tuple[str, ...]] = ("_episode", "_shown")

    def _own(self, host: Host) -> None:
        self._host, self._infos = host, InfoBuilder(host)
        self.cost_thresholds = tuple(self._infos.thresholds.values())
        self.cost_threshold = float(sum(self.cost_thresholds))
        self._episode: Episode | None = None
        self._viewer: EpisodeViewer | None = None

    def _begin(
        self, seed: int | None, choice: Choice, generator: Callable[[], np.random.Generator]
    ) -> tuple[Reading, dict[str, Any]]:
        """Begin an episode: (its opening, info). The generator draws the first seed where none is given."""
        if seed is None and not self._host.started:
            seed = int(generator().integers(SEED_BOUND))
        reading, start_row = self._host.reset(seed, choice)
        self._episode, info = self._infos.opening(reading, start_row)
        if self.render_mode is not None:
            self._watch(self.render_mode).begin()
        return reading, info

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._host.summary})"

    def render(self) -> str | np.ndarray | None:
        """Show the episode: a line of text ("ansi"), an image ("rgb_array"), a printed line and a window ("human").

        Raises RuntimeError before the first reset; see `EpisodeViewer.render` for the rest.
        """
        if self.render_mode is None:
            return None
        return self._watch(self.render_mode).render(self._running("render"))

    def close(self) -> None:
        """Close the window of the episode, if there is one; may be called twice."""
        if self._viewer is not None:
            self._viewer.close()

    def constraint_names(self) -> tuple[str, ...]:
        """Names of all cost channels, in the order of info["constraint_costs"]."""
        return self._infos.names

    def selected_constraint_names(self) -> tuple[str, ...]:
        """Names of the channels that have a budget, in the order of `cost_thresholds`."""
        return self._infos.selected

    def _show(self, executed: Reading | None = None) -> None:
        """Keep an executed step for the picture; "human" shows itself, as Gymnasium asks."""
        if self.render_mode is None:
            return
        if executed is not None:
            self._watch(self.render_mode).record(executed)
        if self.render_mode == HUMAN:
            self.render()

    @property
    def _shown(self) -> list[list[float]]:
        """Rows of the curves that a picture shows of the running episode."""
        return [] if self._viewer is None else self._viewer.rows

    @_shown.setter
    def _shown(self, rows: list[list[float]]) -> None:
        if self.render_mode is not None:
            self._watch(self.render_mode).begin(rows)

    def _watch(self, render_mode: str) -> EpisodeViewer:
        if self._viewer is None:
            self._viewer = EpisodeViewer(self._host, render_mode)
        return self._viewer

    def _running(self, method: str) -> Episode:
        if self._episode is None:
            raise RuntimeError(f"{method}() was called before reset(). Call env.reset(seed=...) first.")
        return self._episode
