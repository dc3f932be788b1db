"""Pictures of a feeder in NumPy, so that rendering needs no plotting library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from powerzoo_compat._host import Host
from powerzoo_compat.powerzoo_api.envs.reports import Episode

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


def render_episode(host: Host, episode: Episode, mode: str) -> str | np.ndarray | None:
    """Picture of an episode: a line of text ("ansi"), an image ("rgb_array"), or None after printing one ("human")."""
    if mode == "rgb_array":
        return draw_observation(host, host.seen[0])
    line = describe_episode(host, episode)
    if mode == "ansi":
        return line
    print(line)
    return None


def describe_episode(host: Host, episode: Episode) -> str:
    """Date, step, reward, import and voltages of an episode in one line of text."""
    spec, seen = host.sim.spec, episode.electrical
    row = episode.start_row + episode.steps
    minute = row % host.steps_per_day * host.minutes
    day = host.date_at(episode.start_row, episode.steps)
    line = (
        f"{spec.id} [{spec.split}] {day} {minute // 60:02d}:{minute % 60:02d}"
        f"  step {episode.steps}/{spec.horizon}  reward {episode.reward:.2f}  import {seen['p_slack_MW']:.3f} MW"
    )
    if "v_min_actual" not in seen:
        return line
    return f"{line}  voltage {seen['v_min_actual']:.4f} to {seen['v_max_actual']:.4f} pu"


def draw_observation(host: Host, obs: np.ndarray) -> np.ndarray:
    """Picture of the first agent's observation: bus voltages if it holds any, else each entry within its bounds."""
    fields = host.sim.env.fields.names
    values = dict(zip(fields, obs.tolist(), strict=True))
    v_pu = np.array([1 + 0.1 * x for name, x in values.items() if name.endswith("_v_norm")])
    if v_pu.size:
        grid = host.sim.params.grid
        band = float(np.min(grid.v_min)), float(np.max(grid.v_max))
        stores = [values[f"{device}_soc"] for device in host.surface.stores.ids if f"{device}_soc" in values]
        return draw_feeder(v_pu, band, stores)
    box = host.observation_box()
    share = (obs - box.low) / (box.high - box.low)
    return draw_feeder(1 + RANGE_PU * (2 * share - 1), (-np.inf, np.inf), [])
