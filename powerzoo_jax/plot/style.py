"""What every picture shares: colours that any eye tells apart, figures without a window, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Okabe and Ito's palette: told apart with any colour vision; line styles repeat the distinction in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
HATCHES = ("", "//", "..", "\\\\", "xx", "--", "++", "oo")
LIMIT = "#000000"
ALARM = "#D55E00"
LIMIT_LINE = {"color": LIMIT, "linestyle": (0, (1, 2)), "linewidth": 1.0}


def new_figure(width: float, height: float) -> Any:
    """A matplotlib Figure [inch] without pyplot: no window, no global state, no change of a notebook's backend.

    Raises ImportError, naming the extra, where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ImportError("plots need matplotlib: pip install 'powerzoo-jax[viz]'") from err
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: str | Path, dpi: int = 120) -> Path:
    """Write a figure to a file, whose ending is the format, in a folder that is made if need be; returns the path."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=dpi)
    return target


def look(k: int) -> dict[str, Any]:
    """Colour and line style of the k-th line of a picture."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k % len(STYLES)], "linewidth": 1.6}
