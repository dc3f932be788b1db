"""CleanRL's sac_continuous_action.py from a checkout, with one line exchanged; it needs tyro and tensorboard.

Words: the path of the checkout
"""

from __future__ import annotations

import contextlib
import sys
import tempfile

import torch

from tests.foreign.checkout import Checkout
from tests.foreign.scoring import BATTERY, Days, run

FILE = "cleanrl/sac_continuous_action.py"
NEW = (
    "from tests.foreign.scoring import final_ends; "
    'env = final_ends(gym.make(f"powerzoo_compat.gymnasium_view:{env_id}"))\n'
)
CHANGES = {"env = gym.make(env_id)\n": NEW}
SETTINGS = {
    "env-id": "PowerZooJax/BatteryArbitrage-v1",
    "buffer-size": 20_000,
    "learning-starts": 960,
    "gamma": 0.999,
    "policy-lr": 1e-3,
}
STEPS = 9_600


def train(days: Days, seed: int, folder: str) -> tuple[float, float, dict]:
    """Returns of the mean action before and after, and what was run."""
    file = Checkout(folder, FILE, CHANGES)
    sys.path.insert(0, folder)  # for its cleanrl_utils

    def score(steps):
        words = SETTINGS | {"seed": seed, "total-timesteps": steps}
        sys.argv = [FILE, *(f"--{key}={value}" for key, value in words.items())]
        with contextlib.chdir(place):  # it writes its curves beside itself
            names = file.run("__main__")

        @torch.no_grad()
        def act(obs):
            return names["actor"].get_action(torch.as_tensor(obs))[2].numpy()

        return days.mean_return(act)

    with tempfile.TemporaryDirectory() as place:
        return score(0), score(STEPS), file.told()


if __name__ == "__main__":
    run("torch", train, BATTERY)
