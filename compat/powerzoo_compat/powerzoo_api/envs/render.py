"""Rendering of episodes: a line of text, a picture, or a window.

matplotlib (extra `viz`) draws the pictures; it is imported with the first one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from powerzoo_compat._host import Host, Reading
from powerzoo_compat.powerzoo_api.envs.picture import DPI, HIGH_PX, WIDE_PX, Curve, EpisodePicture, curves_of
from powerzoo_compat.powerzoo_api.envs.reports import Episode
from powerzoo_jax.base.errors import missing_extra

HUMAN, ANSI, IMAGE = RENDER_MODES = ("human", "ansi", "rgb_array")
NO_DISPLAY = (
    "render_mode='human' opens a window with the matplotlib backend that was chosen, and that failed: {}. "
    "Unset MPLBACKEND, then lines are printed where there is no display, or take render_mode='rgb_array'."
)


class EpisodeViewer:
    """View of the running episode of a host: its line of text, and the figure that all its frames share.

    render_mode:  one of RENDER_MODES
    rows:         values of the curves, then the reward, a row a step of the running episode
    """

    def __init__(self, host: Host, render_mode: str) -> None:
        self._host, self._mode = host, render_mode
        self._curves: tuple[Curve, ...] | None = None
        self.rows: list[list[float]] = []
        self._picture: EpisodePicture | None = None
        self._window: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what draws: a copy makes a figure of its own."""
        return vars(self) | {"_curves": None, "_picture": None, "_window": None}

    def begin(self, rows: list[list[float]] | None = None) -> None:
        """Forget the last episode, or go on in one of which `rows` have been recorded."""
        self.rows = list(rows or ())
        if self._picture is not None:
            self._picture.forget()

    def record(self, reading: Reading) -> None:
        """Keep what the curves show of an executed step."""
        if self._curves is None:
            self._curves = curves_of(reading.info)
        self.rows.append([*(curve.read(reading.info) for curve in self._curves), float(reading.reward.mean())])

    def render(self, episode: Episode) -> str | np.ndarray | None:
        """The line ("ansi"), the image ("rgb_array"), or None after printing the line ("human").

        "human" shows the image in a window, too, where matplotlib is installed and has a display.
        Raises ImportError, naming the extra, for an image without matplotlib, RuntimeError for a window on a display
        that cannot be opened.
        """
        if self._mode == IMAGE:
            return self._image(episode)
        line = describe_episode(self._host, episode)
        if self._mode == ANSI:
            return line
        print(line)
        self._show(episode)
        return None

    def close(self) -> None:
        """Close the window and drop the figure; a later frame makes them again."""
        if self._window is not None:
            from matplotlib import pyplot

            pyplot.close(self._window)
        self._window = self._picture = None

    def _image(self, episode: Episode) -> np.ndarray:
        return np.array(self._drawn(episode, _figure).figure.canvas.buffer_rgba())[..., :3]

    def _show(self, episode: Episode) -> None:
        if self._picture is None:
            self._window = _open_window()
        if self._window is not None:
            # the window answers between two steps
            self._drawn(episode, lambda: self._window).figure.canvas.flush_events()

    def _drawn(self, episode: Episode, figure: Any) -> EpisodePicture:
        """The picture with the present step in it."""
        host = self._host
        if self._picture is None:
            unit = "$" if set(host.sim.spec.term_weights) == {1.0} else ""
            reward = Curve("reward so far", unit, lambda info: float("nan"), held=False)
            self._picture = EpisodePicture(figure(), host.sim, [*curves_of(host.reading.info), reward])
        heading = f"{host.sim.spec.id.replace('_', ' ')}  \N{MIDDLE DOT}  {clock_of(host, episode)}"
        self._picture.update(heading, self._remark(episode), host.network_readings(), self._series())
        return self._picture

    def _remark(self, episode: Episode) -> str:
        spec = self._host.sim.spec
        begun = f"step {episode.steps} of {spec.horizon}" if episode.steps else "before the first step, all at rest"
        return f"{spec.split} split, {begun}, reward so far {episode.reward:.4g}"

    def _series(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(hours, values) of every panel: corners of a held value, ends of the steps for the rest."""
        curves = self._curves or curves_of(self._host.reading.info)
        table = np.array(self.rows, float).reshape(-1, len(curves) + 1)
        hours = self._host.sim.spec.dt_hours * np.arange(len(table) + 1)
        series = [
            (np.repeat(hours, 2)[1:-1], np.repeat(column, 2)) if curve.held else (hours[1:], column)
            for curve, column in zip(curves, table.T, strict=False)
        ]
        return [*series, (hours, np.append(0.0, np.cumsum(table[:, -1])))]


def _figure() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ImportError(missing_extra("render_mode='rgb_array'", "matplotlib", "viz")) from err
    figure = Figure(figsize=(WIDE_PX / DPI, HIGH_PX / DPI), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def _open_window() -> Any:
    """A figure in a window that is shown; None where matplotlib or a display is missing."""
    try:
        from matplotlib import pyplot
        from matplotlib.backends import BackendFilter, backend_registry
    except ImportError:
        return None
    try:
        figure = pyplot.figure(figsize=(WIDE_PX / DPI, HIGH_PX / DPI), dpi=DPI)
    except ImportError as err:
        raise RuntimeError(NO_DISPLAY.format(err)) from err
    if pyplot.get_backend().lower() in backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE):
        pyplot.close(figure)
        return None
    pyplot.show(block=False)
    return figure


def clock_of(host: Host, episode: Episode) -> str:
    """Date and time that an episode has reached."""
    row = episode.start_row + episode.steps
    minute = row % host.steps_per_day * host.minutes
    return f"{host.date_at(episode.start_row, episode.steps)} {minute // 60:02d}:{minute % 60:02d}"


def describe_episode(host: Host, episode: Episode) -> str:
    """Date, step, reward, import and voltages of an episode in one line of text."""
    spec, seen = host.sim.spec, episode.electrical
    line = (
        f"{spec.id} [{spec.split}] {clock_of(host, episode)}"
        f"  step {episode.steps}/{spec.horizon}  reward {episode.reward:.2f}  import {seen['p_slack_MW']:.3f} MW"
    )
    if "v_min_actual" not in seen:
        return line
    return f"{line}  voltage {seen['v_min_actual']:.4f} to {seen['v_max_actual']:.4f} pu"
