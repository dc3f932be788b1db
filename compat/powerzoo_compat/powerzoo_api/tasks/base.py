"""Task classes of the contract; an instance is a task on a split with its keywords."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from powerzoo_compat._apart import make, on_device
from powerzoo_compat.powerzoo_api.envs.constraint import ConstraintSpec
from powerzoo_compat.powerzoo_api.envs.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.tasks.cards import budgets_of, card_of, eval_protocol
from powerzoo_compat.powerzoo_api.tasks.catalog import DROP_IN, FRAMEWORKS, MULTI, SINGLE
from powerzoo_compat.powerzoo_api.tasks.observation import FLATTENED
from powerzoo_compat.powerzoo_api.tasks.registration import with_id
from powerzoo_compat.powerzoo_api.tasks.splits import split_dates, splits_of
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.envs.core import Sim

RLLIB = "ray.rllib"
MULTI_ONLY = ("pettingzoo", "rllib")
CORE_ONLY = ("dims", "dtype")  # keywords of powerzoo_jax.make that a host view has no use for
MDP_OR_CMDP = "cmdp_env_plus_mdp_fallback"
SAFE = "cmdp_env_plus_scalar_safe_projection"


class Task:
    """Base class of tasks: subclasses name and describe one, `build` makes its simulation.

    split:     train, val, test or a named split
    obs_mode:  observation mode; `observation_mode` is an alias
    kwargs:    task keywords, and `render_mode`
    Raises ValueError for an unknown split or mode, TypeError for an unknown keyword.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    difficulty: ClassVar[str] = "simple"
    agent_mode: ClassVar[str]
    training_contract: ClassVar[str] = MDP_OR_CMDP
    VALID_TIGHTNESS: ClassVar[tuple[str, ...]] = ("loose", "standard", "strict")

    def __init__(
        self,
        split: str = "train",
        obs_mode: str | None = None,
        *,
        observation_mode: str | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        for key in CORE_ONLY:
            if key in kwargs:
                raise TypeError(
                    f"{self.name} got an unexpected keyword argument {key!r}. "
                    "Call powerzoo_jax.make for another layout."
                )
        if obs_mode is not None and observation_mode is not None and obs_mode != observation_mode:
            raise ValueError(f"obs_mode={obs_mode!r} and observation_mode={observation_mode!r} differ. Give one.")
        mode = observation_mode if obs_mode is None else obs_mode
        self.obs_mode, self.render_mode, self.keywords = mode, render_mode, kwargs
        self.given = {"split": split, **kwargs} | ({} if mode is None else {"obs_mode": mode})
        self.given |= {} if render_mode is None else {"render_mode": render_mode}
        self._built = self.build(split, **self._with_mode(mode, kwargs))

    def _with_mode(self, mode: str | None, kwargs: dict[str, Any]) -> dict[str, Any]:
        return kwargs if mode is None else {**kwargs, "obs_mode": mode}

    def build(self, split: str, **kwargs: Any) -> Sim:
        """Make the simulation; a task of your own overrides this."""
        return make(self.name, split=split, **kwargs)

    @property
    def sim(self) -> Sim:
        """Simulation of the core; the first use of it starts JAX."""
        return on_device(self._built)

    @property
    def spec(self) -> TaskSpec:
        """Specification of the task, which a paper must quote."""
        return self._built.spec

    @property
    def version(self) -> int:
        """Raised when the numbers that a policy sees change."""
        return self.spec.version

    @property
    def split(self) -> str:
        """Split that episodes come from."""
        return self.spec.split

    @property
    def SPLITS(self) -> tuple[str, ...]:
        """Names of all splits."""
        return splits_of(self.spec)

    @property
    def SPLIT_DATES(self) -> dict[str, dict[str, Any]]:
        """First and last day, and number of days, of each split."""
        return split_dates(self.spec)

    @property
    def eval_protocol(self) -> dict[str, Any]:
        """Split, first seed and number of episodes of a comparable evaluation."""
        return eval_protocol(self.spec)

    def constraint_spec(self) -> ConstraintSpec:
        """Channels with a budget."""
        return budgets_of(self.spec)

    @property
    def effective_cost_thresholds(self) -> tuple[float, ...]:
        """Budgets after tightness and keywords, in the order of the selected channels."""
        return self.constraint_spec().thresholds

    @property
    def effective_cost_threshold(self) -> float:
        """Sum of the effective budgets."""
        return float(sum(self.effective_cost_thresholds))

    def get_scenario_config(self) -> dict[str, Any]:
        """Grid, step and horizon."""
        spec = self.spec
        return {"case": spec.case, "dt_hours": spec.dt_hours, "max_steps": spec.horizon, "split": spec.split}

    def get_agents_config(self) -> dict[str, Any]:
        """Agents of the task and their mode."""
        return {"agent_mode": self.agent_mode, "agents": list(self.spec.agents)}

    def get_reward_config(self) -> dict[str, float]:
        """Weight of each reward term."""
        return dict(zip(self.spec.term_names, self.spec.term_weights, strict=True))

    def get_observation_config(self) -> dict[str, Any]:
        """Mode and fields."""
        return {"mode": self.obs_mode, "fields": list(self._built.env.fields.names)}

    def get_config(self) -> dict[str, Any]:
        """All of the above, and the keywords in force."""
        return {
            "name": self.name,
            "episode": self.get_scenario_config(),
            "agents": self.get_agents_config(),
            "reward": self.get_reward_config(),
            "observation": self.get_observation_config(),
            "keywords": dict(self.spec.overrides),
        }

    def info(self) -> dict[str, Any]:
        """Card of the task, as `get_task_info` gives it."""
        return card_of(type(self))

    @classmethod
    def check_framework(cls, framework: str) -> None:
        """Raise ValueError for a framework that this task does not have."""
        if framework not in FRAMEWORKS:
            raise ValueError(unknown("framework", framework, FRAMEWORKS))

    def create_env(self, framework: str = "auto") -> Any:
        """Build the environment; ValueError for a framework that this task does not have."""
        raise NotImplementedError


class SingleAgentTask(Task):
    """A task with one agent: a Gymnasium environment."""

    agent_mode = SINGLE

    def _with_mode(self, mode: str | None, kwargs: dict[str, Any]) -> dict[str, Any]:
        if mode not in (None, FLATTENED):
            raise ValueError(unknown(f"observation mode of {self.name}", mode, (FLATTENED,)))
        return kwargs

    @classmethod
    def check_framework(cls, framework: str) -> None:
        super().check_framework(framework)
        if framework in MULTI_ONLY:
            raise ValueError(
                f"{cls.name} has one agent, framework={framework!r} needs several. Use 'auto' or 'gymnasium'."
            )

    def create_env(self, framework: str = "auto") -> SingleAgentEnv:
        self.check_framework(framework)
        return self.create_single_agent_env()

    def create_single_agent_env(self) -> SingleAgentEnv:
        """The Gymnasium environment."""
        env = SingleAgentEnv(self._built, render_mode=self.render_mode)
        return with_id(env, DROP_IN, self.name, self.given)


class MultiAgentTask(Task):
    """A task with several agents: dicts by agent."""

    agent_mode = MULTI

    @classmethod
    def check_framework(cls, framework: str) -> None:
        super().check_framework(framework)
        if framework == "gymnasium":
            raise ValueError(f"{cls.name} has several agents, a Gymnasium env has one. Use 'auto' or 'pettingzoo'.")

    def create_env(self, framework: str = "auto") -> Any:
        self.check_framework(framework)
        if framework == "pettingzoo":
            from powerzoo_compat.powerzoo_api.envs.parallel import TaskPettingZooWrapper

            return TaskPettingZooWrapper(self.create_multi_agent_env())
        # 'auto' is RLlib's class only where RLlib runs already, so that it never pays for that import
        if framework == "rllib" or RLLIB in sys.modules:
            from powerzoo_compat.powerzoo_api.envs.rllib import RLlibTaskEnv

            return RLlibTaskEnv(self._built, render_mode=self.render_mode)
        return self.create_multi_agent_env()

    def create_multi_agent_env(self) -> MultiAgentTaskEnv:
        """The adapter that every framework shares."""
        return MultiAgentTaskEnv(self._built, render_mode=self.render_mode)
