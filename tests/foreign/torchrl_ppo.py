"""TorchRL's GymEnv and PPO, put together as in its tutorial: collector, generalised advantages, clipped loss."""

from __future__ import annotations

import powerzoo_compat.gymnasium_view  # noqa: F401  # ours
import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, ObservationNorm, TransformedEnv
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from tests.foreign.scoring import BATTERY, Days, run

FRAMES, BATCH, EPOCHS, ROWS = 9_600, 960, 10, 96


def network(outputs: int, *more: nn.Module) -> nn.Sequential:
    """Two hidden layers."""
    layers = (nn.LazyLinear(64), nn.Tanh(), nn.LazyLinear(64), nn.Tanh(), nn.LazyLinear(outputs))
    return nn.Sequential(*layers, *more)


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the most likely action before and after."""
    torch.manual_seed(seed)
    env = TransformedEnv(
        GymEnv("PowerZooJax/BatteryArbitrage-v1"),  # ours
        ObservationNorm(in_keys=["observation"], standard_normal=True),
    )
    env.set_seed(seed)
    env.transform.init_stats(num_iter=480, reduce_dim=0, cat_dim=0)
    loc, scale = env.transform.loc, env.transform.scale + 1e-2
    env.transform.scale.copy_(scale)
    actor = ProbabilisticActor(
        module=TensorDictModule(
            network(2, NormalParamExtractor(scale_mapping="biased_softplus_0.4")),
            in_keys=["observation"],
            out_keys=["loc", "scale"],
        ),
        spec=env.action_spec,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": env.action_spec.space.low, "high": env.action_spec.space.high},
        return_log_prob=True,
    )
    value = ValueOperator(network(1), in_keys=["observation"])
    actor(env.reset())
    with torch.no_grad():
        for weights in actor.module[0].module[-2].parameters():
            weights.mul_(0.01)  # begins near idle
    value(env.reset())

    @torch.no_grad()
    def act(obs):
        return torch.tanh(actor.module[0].module((torch.as_tensor(obs) - loc) / scale)[0]).numpy()

    before = days.mean_return(act)
    advantage = GAE(gamma=0.999, lmbda=0.95, value_network=value, average_gae=True)
    loss = ClipPPOLoss(actor, value, clip_epsilon=0.2, entropy_bonus=False, loss_critic_type="l2")
    optimizer = torch.optim.Adam(loss.parameters(), 2e-3)
    for batch in Collector(
        env, actor, frames_per_batch=BATCH, total_frames=FRAMES, auto_register_policy_transforms=False
    ):
        batch["next", "terminated"] = batch["next", "done"]  # what is stored is settled at the end of a day
        for _ in range(EPOCHS):
            advantage(batch)
            for rows in torch.randperm(BATCH).split(ROWS):
                told = loss(batch[rows])
                optimizer.zero_grad()
                (told["loss_objective"] + told["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
                optimizer.step()
    return before, days.mean_return(act)


if __name__ == "__main__":
    run("torchrl", train, BATTERY)
