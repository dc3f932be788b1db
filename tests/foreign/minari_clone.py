"""Days of a rule collected by Minari with all infos, read back from its store, and cloned by a network."""

from __future__ import annotations

import os
import tempfile

import gymnasium
import minari
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  # ours
import torch
from torch import nn

from tests.foreign.scoring import BATTERY, Days, rule, run

EPISODES, PASSES, ROWS = 150, 40, 256
NAME = "battery/rule-v0"


def collect(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations (R, O) and actions (R, 1) of a dataset that Minari has stored and read."""
    env = minari.DataCollector(gymnasium.make("PowerZooJax/BatteryArbitrage-v1"), record_infos=True)  # ours
    names = env.unwrapped.get_observation_fields()  # ours
    prices = [k for k, name in enumerate(names) if name.startswith("price_")]
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=seed * EPISODES + episode)
        ended = False
        while not ended:
            obs, _, terminated, truncated, _ = env.step(rule(obs[None, prices])[0].astype(np.float32))
            ended = terminated or truncated
    env.create_dataset(NAME)
    env.close()
    found = list(minari.load_dataset(NAME).iterate_episodes())
    assert len(found) == EPISODES and "cost" in found[0].infos
    return np.concatenate([e.observations[:-1] for e in found]), np.concatenate([e.actions for e in found])


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the network before and after it has learnt the actions."""
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as store:
        os.environ["MINARI_DATASETS_PATH"] = store
        obs, actions = (torch.as_tensor(part, dtype=torch.float32) for part in collect(seed))
    mean, spread = obs.mean(0), obs.std(0) + 1e-2
    net = nn.Sequential(nn.Linear(obs.shape[1], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)

    @torch.no_grad()
    def act(seen):
        return net((torch.as_tensor(seen) - mean) / spread).numpy()

    before = days.mean_return(act)
    for _ in range(PASSES):
        for rows in torch.randperm(len(obs)).split(ROWS):
            loss = ((net((obs[rows] - mean) / spread) - actions[rows]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return before, days.mean_return(act)


if __name__ == "__main__":
    run("minari", train, BATTERY)
