"""Tianshou's PPO on its own vector of environments, whose wrapper normalises observations."""

from __future__ import annotations

import gymnasium
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  # ours
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, VectorEnvNormObs
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from torch import nn

from tests.foreign.scoring import BATTERY, Days, final_ends, run

LANES, BATCH, UPDATES = 8, 768, 26


def spread_out(told: tuple[torch.Tensor, torch.Tensor]) -> torch.distributions.Independent:
    """Normal distribution of the actions by what the actor tells."""
    return torch.distributions.Independent(torch.distributions.Normal(*told), 1)


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    np.random.seed(seed)  # noqa: NPY002 - Tianshou draws its batches from it
    torch.manual_seed(seed)
    name = "PowerZooJax/BatteryArbitrage-v1"  # ours
    lanes = VectorEnvNormObs(DummyVectorEnv([lambda: final_ends(gymnasium.make(name))] * LANES))
    lanes.seed(seed)
    observed, acted = lanes.observation_space[0].shape, lanes.action_space[0]
    body = [Net(state_shape=observed, hidden_sizes=[64, 64], activation=nn.Tanh) for _ in range(2)]
    actor = ContinuousActorProbabilistic(preprocess_net=body[0], action_shape=acted.shape, unbounded=True)
    with torch.no_grad():
        actor.sigma_param.fill_(-1.0)
        for weights in actor.mu.parameters():
            weights.mul_(0.01)  # begins near idle
    algorithm = PPO(
        policy=ProbabilisticActorPolicy(actor=actor, dist_fn=spread_out, action_space=acted),
        critic=ContinuousCritic(preprocess_net=body[1]),
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.999,
        ent_coef=0.0,
        max_grad_norm=0.5,
        return_scaling=True,
    )

    @torch.no_grad()
    def act(obs):
        return actor(lanes.get_obs_rms().norm(obs))[0][0].numpy()

    before = days.mean_return(act)
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=Collector(algorithm, lanes, VectorReplayBuffer(BATCH, LANES)),
            max_epochs=1,
            epoch_num_steps=UPDATES * BATCH,
            collection_step_num_env_steps=BATCH,
            update_step_num_repetitions=10,
            batch_size=192,
            verbose=False,
            show_progress=False,
        )
    )
    return before, days.mean_return(act)


if __name__ == "__main__":
    run("tianshou", train, BATTERY)
