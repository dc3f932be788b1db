"""PPO in the shape of CleanRL's files on Gymnasium's own vectors, in this process or one process an environment.

Words: sync or async
"""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  # ours
import torch
from gymnasium.wrappers.vector import NormalizeObservation, NormalizeReward, TransformObservation

from tests.compat_e1 import cleanrl_loop
from tests.foreign.scoring import BATTERY, Days, final_ends, run

LANES = {"sync": 8, "async": 3}
BATCH, UPDATES = 768, 25
GAMMA = 0.999
KEPT: list[gymnasium.vector.VectorEnv] = []  # Gymnasium closes a vector when any wrapper of it is collected


def clipped(obs: np.ndarray) -> np.ndarray:
    """Observations without the extremes that few steps' statistics make."""
    return np.clip(obs, -10, 10)


@functools.cache
def lanes_of(mode: str) -> gymnasium.vector.VectorEnv:
    """The vector that all seeds share: its workers can be forked only before JAX has run here."""
    name = "PowerZooJax/BatteryArbitrage-v1"  # ours
    return gymnasium.make_vec(name, LANES[mode], vectorization_mode=mode, wrappers=[final_ends])  # ours


def train(days: Days, seed: int, mode: str) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    seen = NormalizeObservation(lanes_of(mode))
    envs = NormalizeReward(TransformObservation(seen, clipped), gamma=GAMMA)
    KEPT.append(envs)

    def score(agent):
        @torch.no_grad()
        def act(obs):
            normal = (obs - seen.obs_rms.mean) / np.sqrt(seen.obs_rms.var + seen.epsilon)
            return agent.actor(torch.as_tensor(clipped(normal), dtype=torch.float32)).numpy()

        return days.mean_return(act)

    settings = {"steps": BATCH // LANES[mode], "epochs": 8, "seed": seed, "gamma": GAMMA, "log_std": -1.0}
    before = score(cleanrl_loop.train(envs, 0, **settings))
    after = score(cleanrl_loop.train(envs, UPDATES, **settings))
    return before, after


if __name__ == "__main__":
    run("gymnasium", train, BATTERY)
