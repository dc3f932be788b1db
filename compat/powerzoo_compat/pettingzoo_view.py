"""PettingZoo: multi-agent tasks as Parallel and native AEC environments, and PettingZoo's own wrappers by name.

Example:
    from powerzoo_compat.pettingzoo_view import parallel_env
    env = parallel_env("marl_der_arbitrage")
    obs, infos = env.reset(seed=0)
    while env.agents:
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        obs, rewards, terminations, truncations, infos = env.step(actions)
"""

from __future__ import annotations

from typing import Any

from powerzoo_jax.base.errors import missing_extra

try:
    from pettingzoo import AECEnv
    from pettingzoo import ParallelEnv as ParallelEnv
    from pettingzoo.utils.conversions import aec_to_parallel as aec_to_parallel
    from pettingzoo.utils.conversions import parallel_to_aec as parallel_to_aec
    from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper as AssertOutOfBoundsWrapper
    from pettingzoo.utils.wrappers import BaseParallelWrapper as BaseParallelWrapper
    from pettingzoo.utils.wrappers import BaseWrapper as BaseWrapper
    from pettingzoo.utils.wrappers import CaptureStdoutWrapper as CaptureStdoutWrapper
    from pettingzoo.utils.wrappers import ClipOutOfBoundsWrapper as ClipOutOfBoundsWrapper
    from pettingzoo.utils.wrappers import OrderEnforcingWrapper as OrderEnforcingWrapper
    from pettingzoo.utils.wrappers import TerminateIllegalWrapper as TerminateIllegalWrapper
except ImportError as err:
    raise ImportError(missing_extra("The view for PettingZoo", "pettingzoo", "pettingzoo")) from err

from powerzoo_compat._apart import make
from powerzoo_compat.pettingzoo_aec import TaskAECEnv
from powerzoo_compat.powerzoo_api.envs.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.parallel import LevelledTask
from powerzoo_compat.powerzoo_api.envs.parallel import TaskPettingZooWrapper as TaskPettingZooWrapper


def parallel_env(
    task: str,
    *,
    split: str | None = None,
    max_cycles: int | None = None,
    render_mode: str | None = None,
    pad: bool = False,
    levels: int | None = None,
    **kwargs: Any,
) -> TaskPettingZooWrapper:
    """A multi-agent task as a ParallelEnv.

    split:       None takes the task's default
    max_cycles:  end episodes after so many steps
    pad:         give all agents the same spaces, with actions in [-1, 1]
    levels:      replace the actions of a commitment task by Discrete(1 + levels), see `LevelledTask`
    kwargs:      task keywords
    Raises ValueError for an unknown task or one with a single agent, else as `powerzoo_jax.make`.
    """
    sim = make(task, split=split, **kwargs)
    if len(sim.spec.agents) == 1:
        raise ValueError(f"{task} has one agent. Use gymnasium: make_task_env({task!r}).")
    adapter = MultiAgentTaskEnv(sim, pad=pad, render_mode=render_mode)
    if levels is None:
        return TaskPettingZooWrapper(adapter, max_cycles)
    return LevelledTask(adapter, levels, max_cycles)


def raw_env(task: str, **kwargs: Any) -> TaskAECEnv:
    """A multi-agent task as an AEC environment without the checks on the order of calls; see `parallel_env`."""
    return TaskAECEnv(parallel_env(task, **kwargs))


def env(task: str, **kwargs: Any) -> AECEnv[str, Any, Any]:
    """A multi-agent task as an AEC environment; see `parallel_env`."""
    return OrderEnforcingWrapper(raw_env(task, **kwargs))
