"""The picture of docs/contingency.md, docs/actions.png: `python docs/actions.py`.

Every single action of the 118-bus network at its nominal load: largest loading and losses after it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from powerzoo_jax import run_power_flow
from powerzoo_jax.plot import save_figure
from powerzoo_jax.plot.layout import COLOURS, LIMIT_LINE, new_figure

TARGET = Path(__file__).with_name("actions.png")
CASE = "pz_case118"
MOST_LOADING, MOST_LOSS = 200, 200  # [%], [MW] of the picture; what lies beyond is counted
KINDS = {"split": "split a substation", "open": "open a line"}


def draw() -> Path:
    """Solve, draw and write; returns the path."""
    table = run_power_flow(CASE, actions=True).action
    assert table is not None
    kind = np.array([name.partition(" ")[0] for name in table["action"]])
    loading, loss = table["loading"], table["p_loss_mw"]
    inside = (loading < MOST_LOADING) & (loss < MOST_LOSS)
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    for (name, label), colour, size in zip(KINDS.items(), COLOURS, (6, 14), strict=False):
        mine = (kind == name) & inside
        shown = f"{label}: {mine.sum()} of {np.sum(kind == name)}"
        axes.scatter(loss[mine], loading[mine], s=size, color=colour, alpha=0.7, linewidths=0, label=shown)
    axes.scatter(loss[:1], loading[:1], s=90, marker="*", color="#000000", label="as it is", zorder=3)
    axes.axhline(100, **LIMIT_LINE)
    axes.set(xlabel="losses [MW]", ylabel="largest loading [%]")
    axes.set_title("118-bus network after every single action", fontsize=10)
    axes.legend(fontsize=7, loc="upper right")
    save_figure(figure, TARGET, dpi=90)
    with Image.open(TARGET) as picture:
        small = picture.convert("RGB").quantize(64)
    small.save(TARGET, optimize=True)
    return TARGET


if __name__ == "__main__":
    print(draw())
