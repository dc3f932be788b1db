"""Policies on the host: random, the rules of a task, its oracle, and trained policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

from powerzoo_compat.powerzoo_api.tasks.central import CentralisedEnv
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.episode import first_carry
from powerzoo_jax.oracle import get_baselines
from powerzoo_jax.oracle.registry import Choose, Policy

RULE, ORACLE, RANDOM = "rule", "oracle", "random"
# names of the contract -> names of the baselines
RULES = {"battery_tod": RULE, "no_curtail": "no_control", "volt_droop": "droop", "merit_order": RULE}

# the policy is an argument, a Partial whose arrays are traced: another plan of the same rule compiles nothing
_apply = jax.jit(lambda act, carry, obs, key: act(carry, obs, key))


class BasePolicy:
    """Base class of the policies that `evaluate` plays: `act(obs, info)` and `reset()`."""

    def act(self, obs: Any, info: Any = None) -> Any:
        """Action for an observation, in the environment's own space."""
        raise NotImplementedError

    def reset(self) -> None:
        """A new episode has begun."""

    def bind(self, env: Any) -> BasePolicy:
        """The same policy for another environment; stateless ones serve any."""
        return self


class RandomPolicy(BasePolicy):
    """Uniform random policy over a space, or over a dict of spaces.

    seed:  fixes the actions
    """

    def __init__(self, action_space: Any, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        self._space, self._seed = action_space, seed

    def act(self, obs: Any, info: Any = None) -> Any:
        if hasattr(self._space, "keys"):
            return {agent: self._uniform(self._space[agent]) for agent in self._space}
        return self._uniform(self._space)

    def bind(self, env: Any) -> BasePolicy:
        return RandomPolicy(getattr(env, "action_spaces", None) or env.action_space, self._seed)

    def _uniform(self, box: Any) -> np.ndarray:
        return self._rng.uniform(box.low, box.high).astype(box.dtype)


class ActPolicy(BasePolicy):
    """A JAX policy, called from the host.

    env:     an environment of the contract, wrapped or not
    choose:  (sim, draws, keys) -> policy for these episodes; called once an episode
    """

    def __init__(self, env: Any, choose: Choose) -> None:
        inner = env.unwrapped
        self._inner = inner.agents_env if isinstance(inner, CentralisedEnv) else getattr(inner, "_env", inner)
        self._joined = isinstance(inner, CentralisedEnv)
        self._choose = choose
        self._act: Partial | None = None
        self._carry: Any = None
        self._key: Any = None

    def bind(self, env: Any) -> BasePolicy:
        return ActPolicy(env, self._choose)

    def reset(self) -> None:
        """Make the policy of the running episode: a planner sees all of it."""
        host = self._inner._host
        draws, keys = host.drawn()
        policy = self._choose(host.live, draws, keys)
        self._act = policy.act if isinstance(policy.act, Partial) else Partial(policy.act)
        self._carry = first_carry(self._act, jax.tree.map(lambda x: x[0], policy.carry))
        self._key = keys[0]

    def act(self, obs: Any, info: Any = None) -> Any:
        if self._act is None:
            self.reset()
        host = self._inner._host
        self._key, key = jax.random.split(self._key)
        self._carry, action = _apply(self._act, self._carry, host.seen, key)
        parts = host.public_action(np.asarray(action))
        if self._joined:
            return np.concatenate(parts)
        agents = getattr(self._inner, "possible_agents", None)
        return parts[0] if agents is None else dict(zip(agents, parts, strict=True))


class RuleBasedPolicy(ActPolicy):
    """One of the task's baseline rules.

    policy_type:  None takes the task's rule; else its name, see `rule_names`
    Raises ValueError for a task without rules, or another name.
    """

    def __init__(self, env: Any, policy_type: str | None = None) -> None:
        super().__init__(env, _nothing)
        baselines = get_baselines(self._inner._host.sim.spec.id)
        name = RULE if policy_type is None else RULES.get(policy_type, policy_type)
        if name not in baselines.rules:
            raise ValueError(unknown("policy_type", str(policy_type), baselines.rules))
        self.policy_type, self._choose = policy_type, baselines.rules[name]

    def bind(self, env: Any) -> BasePolicy:
        return RuleBasedPolicy(env, self.policy_type)


class OraclePolicy(ActPolicy):
    """The task's oracle: a plan made at every reset with the whole episode known. ValueError where there is none."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, _nothing)
        baselines = get_baselines(self._inner._host.sim.spec.id)
        self._choose = lambda sim, draws, keys: baselines.oracle(sim, draws, keys).policy

    def bind(self, env: Any) -> BasePolicy:
        return OraclePolicy(env)


def rule_names(task: str) -> tuple[str, ...]:
    """Names of a task's rules. Raises ValueError for a task without any."""
    return tuple(get_baselines(task).rules)


def trained_policy(env: Any, act: Callable[..., Any]) -> ActPolicy:
    """A policy trained by a JAX learner, on the host."""
    return ActPolicy(env, lambda sim, draws, keys: Policy(act))


def _nothing(sim: Any, draws: Any, keys: Any) -> Policy:
    raise RuntimeError("a policy without a plan was asked to act.")
