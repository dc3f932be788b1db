"""Training and evaluation of a policy from settings, by the JAX learners or Stable-Baselines3."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Self

import jax

from powerzoo_compat.powerzoo_api.benchmarks.evaluation import evaluate
from powerzoo_compat.powerzoo_api.benchmarks.policies import BasePolicy, trained_policy
from powerzoo_compat.powerzoo_api.rl.config import RLConfig
from powerzoo_compat.powerzoo_api.rl.front import make_env, resolve
from powerzoo_compat.powerzoo_api.tasks.catalog import SINGLE
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class, make_task, make_task_env
from powerzoo_jax.base.errors import missing_extra, unknown
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import ALGORITHMS as CONFIGS
from powerzoo_jax.rl.training.config import Config
from powerzoo_jax.rl.training.learners import LEARNERS, Learner

JAX, SB3 = "jax", "sb3"
NATIVE = {"PPO": "ppo", "SAC": "sac", "PPO_LAG": "ppo_lagrangian", "IPPO": "ippo", "MAPPO": "mappo"}
ALGORITHMS = {JAX: tuple(NATIVE), SB3: ("SAC", "PPO", "TD3")}
WRAPPED = ("normalize", "forecast_horizon", "reward", "custom_reward_fn")


class SB3Policy(BasePolicy):
    """A trained Stable-Baselines3 model, acting by its mean."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def act(self, obs: Any, info: Any = None) -> Any:
        return self.model.predict(obs, deterministic=True)[0]


class Trainer:
    """Training of a policy for one task.

    config:     whatever `make_env` takes
    backend:    "jax" (our learners: PPO, SAC, PPO_LAG, IPPO, MAPPO) or "sb3" (SAC, PPO, TD3 on single-agent tasks,
                extra `sb3`)
    overrides:  settings to replace
    Raises ValueError for an algorithm that the backend does not have, or wrappers that the JAX learners do not see.
    """

    def __init__(self, config: Any, *, backend: str = JAX, **overrides: Any) -> None:
        self.config: RLConfig = dataclasses.replace(resolve(config), **overrides)
        self.config.validate()
        if backend not in ALGORITHMS:
            raise ValueError(unknown("backend", backend, ALGORITHMS))
        if self.config.algorithm not in ALGORITHMS[backend]:
            raise ValueError(unknown(f"algorithm of backend {backend!r}", self.config.algorithm, ALGORITHMS[backend]))
        changed = [name for name in WRAPPED if getattr(self.config, name)]
        if backend == JAX and changed:
            raise ValueError(f"the JAX learners see the task itself, not {', '.join(changed)}. Use backend='sb3'.")
        if backend == SB3 and get_task_class(self.config.task).agent_mode != SINGLE:
            raise ValueError(f"{self.config.task} has several agents. Use backend='jax'.")
        self.backend = backend
        self.model: Any = None

    @classmethod
    def from_yaml(cls, path: str | Path, **overrides: Any) -> Self:
        """Settings of a YAML or TOML file."""
        return cls(RLConfig.from_yaml(path), **overrides)

    def get_env(self, split: str | None = None) -> Any:
        """The environment that the policy sees: the task for the JAX learners, wrapped for the others."""
        config = self.config
        if self.backend == JAX:
            return make_task_env(config.task, split or config.split, obs_mode=config.obs_mode, **config.task_kwargs)
        return make_env(config, split=split)

    def train(self) -> Any:
        """Train for `total_timesteps`, and return the model."""
        self.model = self._train_jax() if self.backend == JAX else self._train_sb3()
        if self.config.save_path is not None:
            self.save(self.config.save_path)
        return self.model

    def evaluate(self, n_episodes: int | None = None, split: str = "test") -> dict[str, Any]:
        """Play the trained policy; see `powerzoo.benchmarks.evaluate`. Raises RuntimeError before training."""
        env = self.get_env(split)
        return evaluate(self.policy(env), env, self.config.eval_episodes if n_episodes is None else n_episodes)

    def policy(self, env: Any) -> BasePolicy:
        """The trained policy for an environment of this task."""
        if self.model is None:
            raise RuntimeError("nothing is trained yet. Call train() or load(path) first.")
        if self.backend == SB3:
            return SB3Policy(self.model)
        settings, learner = self._settings(), self._learner
        return trained_policy(env, learner.act(settings, self._task().sim, learner.policy_of(self.model)))

    def train_il(self) -> Any:
        """Train independent learners, one policy an agent, that see their own rewards (IPPO)."""
        return self._train_as("IPPO")

    def train_marl_simultaneous(self) -> Any:
        """Train all agents at once with one critic for the team (MAPPO)."""
        return self._train_as("MAPPO")

    def save(self, path: str | Path) -> None:
        """Write the model: a folder (JAX) or a file (Stable-Baselines3)."""
        if self.backend == SB3:
            self.model.save(str(path))
        else:
            checkpoint.save(path, self.model, self._settings(), updates=self._settings().updates)  # type: ignore[attr-defined]

    def load(self, path: str | Path) -> Any:
        """Read a model that `save` wrote for the same settings."""
        if self.backend == SB3:
            self.model = self._sb3_class().load(str(path))
        else:
            sim = self._task().sim
            init, _ = self._learner.make_update(self._settings(), sim)
            like = jax.eval_shape(init, jax.random.key(0), sim)  # shapes of the model, without training a step
            self.model = checkpoint.restore(path, like)
        return self.model

    def _task(self) -> Any:
        config = self.config
        return make_task(config.task, config.split, obs_mode=config.obs_mode, **config.task_kwargs)

    @property
    def _learner(self) -> Learner:
        return LEARNERS[NATIVE[self.config.algorithm]]

    def _train_as(self, algorithm: str) -> Any:
        if self.backend != JAX:
            raise ValueError(f"{algorithm} is one of the JAX learners. Use backend='jax'.")
        self.config = dataclasses.replace(self.config, algorithm=algorithm)
        return self.train()

    def _settings(self) -> Config:
        config = self.config
        fixed = {"task": config.task, "split": config.split, "total_steps": config.total_timesteps}
        return CONFIGS[NATIVE[config.algorithm]].from_dict({**config.hyperparams, **fixed})

    def _train_jax(self) -> Any:
        sim = self._task().sim
        train = jax.jit(self._learner.make_train(self._settings(), sim))
        return train(jax.random.key(self.config.seed or 0), sim).state

    def _train_sb3(self) -> Any:
        config = self.config
        model = self._sb3_class()(config.policy, self.get_env(), seed=config.seed, **config.hyperparams)
        return model.learn(config.total_timesteps)

    def _sb3_class(self) -> Any:
        try:
            import stable_baselines3
        except ImportError as err:
            raise ImportError(missing_extra("backend='sb3'", "stable-baselines3", "sb3")) from err
        return getattr(stable_baselines3, self.config.algorithm)
