"""RL-Zoo's command for training, with our module as a package of environments."""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path

import yaml
from rl_zoo3.train import train as zoo_train
from stable_baselines3 import PPO

from tests.foreign.scoring import BATTERY, Days, run

NAME = "PowerZooJax/BatteryArbitrage-v1"  # ours
PACKAGE = "powerzoo_compat.gymnasium_view"  # ours
UPDATES, LANES, STEPS = 26, 8, 96
ROLLOUT = LANES * STEPS
SETTINGS = {
    NAME: {
        "policy": "MlpPolicy",
        "n_timesteps": UPDATES * ROLLOUT,
        "n_envs": LANES,
        "n_steps": STEPS,
        "batch_size": 192,
        "learning_rate": 1e-3,
        "gamma": 0.999,
        "normalize": {"norm_obs": True, "norm_reward": True},
        "policy_kwargs": {"log_std_init": -1.0},
        "env_wrapper": "tests.foreign.scoring.final_ends",
    }
}


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after, of the models that the command has stored."""

    def score(updates):
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "settings.yml"
            file.write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
            words = {"algo": "ppo", "env": NAME, "seed": seed, "conf-file": file, "log-folder": place, "device": "cpu"}
            words |= {"n-timesteps": updates * ROLLOUT, "eval-freq": -1, "verbose": 0, "gym-packages": PACKAGE}
            sys.argv = ["train", *(f"--{key}={value}" for key, value in words.items())]
            zoo_train()
            (model_file,) = Path(place).glob("ppo/*/*.zip")
            (normal_file,) = Path(place).glob("ppo/*/*/vecnormalize.pkl")
            model = PPO.load(model_file, device="cpu")
            normal = pickle.loads(normal_file.read_bytes())
        return days.mean_return(lambda obs: model.predict(normal.normalize_obs(obs), deterministic=True)[0])

    return score(1), score(UPDATES)


if __name__ == "__main__":
    run("rl_zoo3", train, BATTERY)
