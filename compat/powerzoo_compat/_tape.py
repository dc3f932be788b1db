"""Tape of a view: the start of its running episode and the actions that followed, which is enough to play it again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array


class Take(NamedTuple):
    """One episode.

    key:      () of the episode, or (B,) of all lanes
    choice:   settings of its reset
    actions:  (A, U) each, in [-1, 1]; NaN leaves its unit alone
    """

    key: Array
    choice: Any
    actions: list[np.ndarray]


class EpisodeTape:
    """The running episode and the one before it.

    most:  actions that are kept of an episode; an environment that is stepped on after its end would fill the memory
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._now: Take | None = None
        self._before: Take | None = None

    def begin(self, key: Array, choice: Any) -> None:
        """Start an episode."""
        if self._now is not None and self._now.actions:
            self._before = self._now
        self._now = Take(key, choice, [])

    def keep(self, action: np.ndarray) -> None:
        """Add an action, which nobody may change from then on."""
        assert self._now is not None  # an environment refuses steps before its first reset
        actions = self._now.actions
        if len(actions) < self._most:
            actions.append(action)

    def shown(self) -> Take | None:
        """The running episode; until its first step the one before it, which loops that reset at once still want."""
        return self._now if self._now is not None and self._now.actions else self._before
