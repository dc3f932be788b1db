"""CleanRL's ppo_continuous_action.py from a checkout, with one line exchanged; it needs tyro and tensorboard.

Words: the path of the checkout
"""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import TransformObservation

from tests.foreign.checkout import Checkout
from tests.foreign.scoring import BATTERY, Days, run

FILE = "cleanrl/ppo_continuous_action.py"
NARROW = 3.0  # what the file's actions are divided by: its noise begins with a standard deviation of 1
NEW = (
    "from tests.foreign.scoring import final_ends; env = final_ends("
    f'gym.wrappers.RescaleAction(gym.make(f"powerzoo_compat.gymnasium_view:{{env_id}}"), -{NARROW}, {NARROW}))\n'
)
CHANGES = {"env = gym.make(env_id)\n": NEW}
SETTINGS = {
    "env-id": "PowerZooJax/BatteryArbitrage-v1",
    "num-envs": 4,
    "num-steps": 240,
    "num-minibatches": 5,
    "update-epochs": 8,
    "learning-rate": 2e-3,
    "gamma": 0.999,
}
STEPS = 57_600


def train(days: Days, seed: int, folder: str) -> tuple[float, float, dict]:
    """Returns of the mean action before and after, and what was run."""
    file = Checkout(folder, FILE, CHANGES)
    # the file is older than Gymnasium 1.0, where this wrapper's third argument has no default
    gymnasium.wrappers.TransformObservation = functools.partial(TransformObservation, observation_space=None)

    def score(steps):
        words = SETTINGS | {"seed": seed, "total-timesteps": steps}
        sys.argv = [FILE, *(f"--{key}={value}" for key, value in words.items())]
        with contextlib.chdir(place):  # it writes its curves beside itself
            names = file.run("__main__")
        env = names["envs"].envs[0]
        while not isinstance(env, gymnasium.wrappers.NormalizeObservation):
            env = env.env

        @torch.no_grad()
        def act(obs):
            normal = (obs - env.obs_rms.mean) / np.sqrt(env.obs_rms.var + env.epsilon)
            normal = torch.as_tensor(normal.clip(-10, 10), dtype=torch.float32)
            return names["agent"].actor_mean(normal).numpy() / NARROW

        return days.mean_return(act)

    with tempfile.TemporaryDirectory() as place:
        return score(0), score(STEPS), file.told()


if __name__ == "__main__":
    run("torch", train, BATTERY)
