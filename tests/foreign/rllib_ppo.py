"""RLlib's PPO on its new API stack, sampling in this process.

Words: single (a Gymnasium environment), multi (one policy for the agents) or heron (the same from a HERON creator)
"""

from __future__ import annotations

import gymnasium
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  # ours: single
import ray
import torch
from powerzoo_compat import heron_view, rllib_view  # ours: multi heron
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.filter import RunningStat
from ray.tune.registry import register_env

from tests.foreign.scoring import BATTERIES, BATTERY, Days, final_ends, run

SHARED = "shared"
ROWS = 160
BATCH = {"single": 960, "multi": 480, "heron": 480}
ITERATIONS = {"single": 30, "multi": 16, "heron": 16}
LANES = {"single": 8, "multi": 4, "heron": 4}


class Quiet(DefaultPPOTorchRLModule):
    """RLlib's own networks; the policy begins near idle and with little noise."""

    def setup(self) -> None:
        super().setup()
        with torch.no_grad():
            self.pi.log_std.fill_(-1.0)
            for weights in self.pi.net.parameters():
                weights.mul_(0.01)


def created(mode: str) -> PPOConfig:
    """Settings of the algorithm on an environment that RLlib creates."""
    config = PPOConfig()
    module = RLModuleSpec(
        module_class=Quiet,
        model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False, free_log_std=True),
    )
    if mode == "single":
        name = "PowerZooJax/BatteryArbitrage-v1"  # ours: single
        register_env("day", lambda config: final_ends(gymnasium.make(name)))  # ours: single
        return config.environment("day").rl_module(rl_module_spec=module)
    if mode == "multi":
        register_env("day", lambda config: final_ends(rllib_view.env_creator(config)))  # ours: multi
    else:
        register_env("day", lambda config: final_ends(heron_view.parallel_env(**config)))  # ours: heron
    task = {"task": "marl_der_arbitrage", "reward_type": "individual"}  # ours: multi heron
    config.environment("day", env_config=task)
    config.multi_agent(policies={SHARED}, policy_mapping_fn=lambda agent, episode, **kwargs: SHARED)
    return config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={SHARED: module}))


def train(days: Days, seed: int, mode: str) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    filters = []

    def connect(env, spaces, device):
        filters.append(MeanStdFilter(multi_agent=mode != "single"))
        return filters[-1]

    config = (
        created(mode)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=LANES[mode], env_to_module_connector=connect)
        .learners(num_learners=0)
        .training(
            gamma=0.999,
            lambda_=0.95,
            lr=1e-3,
            train_batch_size_per_learner=BATCH[mode],
            minibatch_size=ROWS,
            num_epochs=10,
            use_kl_loss=False,
            entropy_coeff=0.0,
            vf_clip_param=100.0,
            grad_clip=0.5,
        )
        .debugging(seed=seed)
    )
    algo = config.build_algo()
    module = algo.get_module(DEFAULT_MODULE_ID if mode == "single" else SHARED)

    @torch.no_grad()
    def act(obs):
        agents = [RunningStat.from_state(told["running_stats"][0]) for told in filters[0].get_state().values()]
        if agents[0].n:  # rows are of one agent after the other
            copies = (len(obs) // len(agents), 1)
            mean, spread = (np.tile(rows, copies) for rows in zip(*((a.mean, a.std) for a in agents), strict=True))
            obs = np.clip((obs - mean) / (spread + 1e-8), -10, 10)
        batch = {"obs": torch.as_tensor(obs, dtype=torch.float32)}
        told = module.forward_inference(batch)["action_dist_inputs"].numpy()
        return told[:, : told.shape[1] // 2]  # means come first; RLlib stretches [-1, 1] over the box

    before = days.mean_return(act)
    for _ in range(ITERATIONS[mode]):
        algo.train()
    after = days.mean_return(act)
    algo.stop()
    ray.shutdown()
    return before, after


if __name__ == "__main__":
    run("ray", train, {"single": BATTERY, "multi": BATTERIES, "heron": BATTERIES})
