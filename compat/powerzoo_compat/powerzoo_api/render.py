"""Pictures of a feeder in NumPy, so that rendering needs no plotting library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RENDER_MODES = ("human", "ansi", "rgb_array")
HALF_HEIGHT = 60  # pixels from 1 pu to the edge
BAR, GAUGE, GAP = 5, 12, 4  # pixels
RANGE_PU = 0.12
PAPER, AXIS, FINE, OUTSIDE, ENERGY, EMPTY = (
    np.array(colour, np.uint8)
    for colour in ((255, 255, 255), (90, 90, 90), (70, 120, 190), (200, 60, 50), (80, 160, 90), (225, 225, 225))
)


def draw_feeder(v_pu: np.ndarray, band: tuple[float, float], soc: Sequence[float]) -> np.ndarray:
    """Draw bus voltages as bars around 1 pu, red outside the band, and one gauge of charge a device.

    v_pu:  (N,) voltages;  band: (v_min, v_max) [pu];  soc: states of charge in [0, 1]
    Returns a (H, W, 3) uint8 image.
    """
    height = 2 * HALF_HEIGHT + 1
    width = GAP + BAR * len(v_pu) + (GAUGE + GAP) * len(soc) + GAP
    image = np.broadcast_to(PAPER, (height, width, 3)).copy()
    ends = HALF_HEIGHT - np.round(np.clip((v_pu - 1) / RANGE_PU, -1, 1) * HALF_HEIGHT).astype(int)
    for k, (v, end) in enumerate(zip(v_pu, ends.tolist(), strict=True)):
        left = GAP + BAR * k
        colour = FINE if band[0] <= v <= band[1] else OUTSIDE
        image[min(end, HALF_HEIGHT) : max(end, HALF_HEIGHT) + 1, left : left + BAR - 1] = colour
    image[HALF_HEIGHT, GAP : GAP + BAR * len(v_pu)] = AXIS
    for k, share in enumerate(soc):
        left = GAP + BAR * len(v_pu) + (GAUGE + GAP) * k + GAP
        image[:, left : left + GAUGE] = EMPTY
        image[height - round(share * height) :, left : left + GAUGE] = ENERGY
    return image
