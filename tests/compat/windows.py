"""A matplotlib backend whose windows are kept in memory, for tests of what a display would show."""

from __future__ import annotations

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

shown: list[FigureManagerBase] = []


class FigureManager(FigureManagerBase):
    def show(self):
        shown.append(self)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager
