"""OmniSafe's PPOLag on a class of its CMDP over the view of six values; the scalar cost has the limit 1.

OmniSafe 0.5 asks for a pandas without NumPy 2, which JAX needs. It runs here beside newer packages, without
safety_gymnasium, whose MuJoCo environments are not used.
"""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any, ClassVar

import torch
from powerzoo_compat.safety_view import make_safe_env  # ours

from tests.foreign.checkout import stand_in
from tests.foreign.scoring import BATTERY, Days, run

stand_in({"safety_gymnasium": {}})
import omnisafe  # noqa: E402
from omnisafe.envs.core import CMDP, env_register  # noqa: E402

BATCH, UPDATES = 768, 26


@env_register
class Battery(CMDP):
    """The task in tensors. What is stored at its end is settled, so the end is told as final."""

    _support_envs: ClassVar[list[str]] = [BATTERY]
    need_auto_reset_wrapper, need_time_limit_wrapper = True, False
    _num_envs = 1

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        super().__init__(env_id)
        self._env = make_safe_env(env_id)  # ours
        self._observation_space, self._action_space = self._env.observation_space, self._env.action_space

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        obs, reward, cost, terminated, truncated, _ = self._env.step(action.numpy())
        told = (torch.as_tensor(value, dtype=torch.float32) for value in (obs, reward, cost))
        return *told, torch.as_tensor(terminated or truncated), torch.as_tensor(False), {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict]:
        return torch.as_tensor(self._env.reset(seed=seed)[0], dtype=torch.float32), {}

    def set_seed(self, seed: int) -> None:
        self.reset(seed=seed)

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):  # it writes its curves there
        settings = {
            "seed": seed,
            "train_cfgs": {"total_steps": UPDATES * BATCH, "torch_threads": 1},
            "algo_cfgs": {
                "steps_per_epoch": BATCH,
                "update_iters": 10,
                "batch_size": 192,
                "gamma": 0.999,
                "cost_gamma": 0.999,
                "reward_normalize": True,
                "kl_early_stop": False,
            },
            "model_cfgs": {"linear_lr_decay": False, "actor": {"lr": 1e-3}, "critic": {"lr": 1e-3}},
            "lagrange_cfgs": {"cost_limit": 1.0},
            "logger_cfgs": {"use_wandb": False, "use_tensorboard": False},
        }
        agent = omnisafe.Agent("PPOLag", BATTERY, custom_cfgs=settings).agent
        actor = agent._actor_critic.actor
        with torch.no_grad():
            actor.log_std.fill_(-1.0)
            for weights in list(actor.mean.parameters())[-2:]:
                weights.mul_(0.01)  # begins near idle
        normal = agent._env.save()["obs_normalizer"]

        def act(obs):
            seen = torch.as_tensor(obs, dtype=torch.float32)
            seen = ((seen - normal.mean) / (normal.std + 1e-8)).clamp(-5, 5) if normal._count else seen
            return actor.predict(seen, deterministic=True).detach().numpy()

        before = days.mean_return(act)
        agent.learn()
        return before, days.mean_return(act)


if __name__ == "__main__":
    run("omnisafe", train, BATTERY)
