"""skrl's PPO on lanes of one program, with its own scalers of observations and values."""

from __future__ import annotations

import gymnasium
import powerzoo_compat.gymnasium_view  # noqa: F401  # ours
import torch
from gymnasium.vector import AutoresetMode
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from torch import nn

from tests.foreign.scoring import BATTERY, Days, final_ends, run

LANES, ROLLOUT, UPDATES = 16, 48, 26


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Policy(GaussianMixin, Model):
    """Means by a network that begins near idle, and a spread that depends on nothing."""

    def __init__(self, **spaces) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = network(self.num_observations, self.num_actions)
        self.log_std = nn.Parameter(torch.full((self.num_actions,), -1.0))
        with torch.no_grad():
            self.net[-1].weight.mul_(0.01)
            self.net[-1].bias.zero_()

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    """Value of an observation."""

    def __init__(self, **spaces) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = network(self.num_observations, 1)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    set_seed(seed)
    name = "PowerZooJax/BatteryArbitrage-v1"  # ours
    lanes = gymnasium.make_vec(name, LANES, autoreset_mode=AutoresetMode.SAME_STEP)
    env = wrap_env(final_ends(lanes), wrapper="gymnasium", verbose=False)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
    agent = PPO(
        models={"policy": Policy(**spaces), "value": Value(**spaces)},
        memory=RandomMemory(memory_size=ROLLOUT, num_envs=LANES, device=env.device),
        **spaces,
        cfg={
            "rollouts": ROLLOUT,
            "learning_epochs": 10,
            "mini_batches": 4,
            "learning_rate": 1e-3,
            "discount_factor": 0.999,
            "observation_preprocessor": RunningStandardScaler,
            "observation_preprocessor_kwargs": {"size": env.observation_space, "device": env.device},
            "value_preprocessor": RunningStandardScaler,
            "value_preprocessor_kwargs": {"size": 1, "device": env.device},
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
    )
    trainer = SequentialTrainer(
        env=env,
        agents=agent,
        cfg={"timesteps": UPDATES * ROLLOUT, "headless": True, "disable_progressbar": True},
    )

    @torch.no_grad()
    def act(obs):
        seen = agent._observation_preprocessor(torch.as_tensor(obs))
        return agent.policy.act({"observations": seen}, role="policy")[1]["mean_actions"].numpy()

    before = days.mean_return(act)
    trainer.train()
    return before, days.mean_return(act)


if __name__ == "__main__":
    run("skrl", train, BATTERY)
