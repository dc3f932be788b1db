"""The picture of the README, docs/picture.png: `python docs/picture.py`.

The optimal power flow of the 118-bus network at a load that fills lines, as one-line diagrams.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from powerzoo_jax import load_case
from powerzoo_jax.opf import ac_opf, prepare_ac_opf
from powerzoo_jax.plot import over_rating, plot_network, save_figure

TARGET = Path(__file__).with_name("picture.png")
LOAD = 1.15  # of nominal
COLOURS = 256  # of the file: what a README loads should be small


def draw() -> Path:
    """Solve, draw and write; returns the path."""
    case = load_case("pz_case118")
    load = [LOAD * jnp.asarray(part, jnp.float32) for part in (case.p_load_mw, case.q_load_mvar)]
    result = jax.jit(ac_opf)(prepare_ac_opf(case), *load)
    assert bool(result.optimal), int(result.status)
    flow = np.maximum(
        np.hypot(result.p_from_mw, result.q_from_mvar),
        np.hypot(result.p_to_mw, result.q_to_mvar),
    )
    title = f"Optimal power flow of the 118-bus network, {100 * LOAD:.0f} % load: voltages and prices"
    figure = plot_network(case, v_pu=result.v_pu, lmp=result.lmp, loading=over_rating(case, flow), title=title)
    save_figure(figure, TARGET, dpi=75)
    with Image.open(TARGET) as picture:
        small = picture.convert("RGB").quantize(COLOURS)
    small.save(TARGET, optimize=True)
    return TARGET


if __name__ == "__main__":
    print(draw())
