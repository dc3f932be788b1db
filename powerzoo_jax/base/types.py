"""Plain data types that all layers share.

Shape alphabet, without batch axis (vmap adds it in front):
N bus, L branch, G unit, A agent, O observation field, U action, M discrete choice, C cost channel, K reward term.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import Budget, Count, Finite, Range, Whole
from powerzoo_jax.base.struct import brief


@dataclass(frozen=True)
class Dims:
    """Static sizes of a simulation."""

    bus: int
    branch: int
    unit: int
    agent: int
    obs: int
    act: int
    choice: int
    cost: int
    term: int


@struct.dataclass(kw_only=True)
class Masks:
    """Masks that tell real entries from padding; False reads 0 and costs 0.

    agent:  (A,)    bool
    obs:    (A, O)  bool
    act:    (A, U)  bool
    cost:   (C,)    bool
    term:   (A, K)  bool
    """

    agent: Array
    obs: Array
    act: Array
    cost: Array
    term: Array


def no_padding(dims: Dims) -> Masks:
    """Masks of a simulation in which everything is real."""
    return Masks(
        agent=jnp.ones(dims.agent, bool),
        obs=jnp.ones((dims.agent, dims.obs), bool),
        act=jnp.ones((dims.agent, dims.act), bool),
        cost=jnp.ones(dims.cost, bool),
        term=jnp.ones((dims.agent, dims.term), bool),
    )


@struct.dataclass(kw_only=True)
class EnvState:
    """State of an environment between two steps. Families add leaves by subclass.

    t:    ()  int32   steps taken in this episode
    key:  (2,) uint32  the episode's key; `init` derives every draw from it
    """

    t: Array
    key: Array


@struct.dataclass(kw_only=True)
class Info:
    """Report of a step beside reward and cost; the same tree from every step.

    terminated:   ()      bool   the task ended for a physical reason (power-flow failure)
    truncated:    ()      bool   the horizon was reached
    pf_status:    ()      int32  powerflow.Status
    pf_residual:  ()      [pu]   largest power mismatch of the solve
    legal:        (A, M)  bool   legality of the next discrete action (M = 0 in continuous tasks)
    terms:        (A, K)         reward terms before weighting
    nan_actions:  ()      int32  entries of the action that were no finite numbers: what they command is left alone. A
                                 policy that has diverged shows here; None in an environment that does not count
    """

    terminated: Array
    truncated: Array
    pf_status: Array
    pf_residual: Array
    legal: Array
    terms: Array
    nan_actions: Array | None = None


class Step(NamedTuple):
    """Result of one step.

    state:   EnvState  what to act on next, unless the episode ended
    obs:     (A, O)    observation after the step, in the units of the task's field table; with `split_observations`
                       the same in two parts, `envs.SharedObs`
    reward:  (A,)      [$] where the terms of the task are money
    cost:    (C,)      what limits were exceeded by, each channel in its own unit; 0 = satisfied
    info:    Info      flags, solver status and what the family reports
    """

    state: Any
    obs: Array
    reward: Array
    cost: Array
    info: Any

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True)
class TaskSpec:
    """Definition of a task, with all that a paper must report about it; hashable.

    `split` takes no part in equality, so that train, validation and test share one compiled program.
    A budget of inf means that the channel is reported and not constrained.
    """

    id: str
    version: Whole
    family: str
    case: str
    horizon: Count
    dt_hours: Annotated[float, Range(0, 24, open_low=True)]
    split: str = field(compare=False)
    agents: tuple[str, ...]
    cost_names: tuple[str, ...]
    cost_budget: tuple[Budget, ...]
    term_names: tuple[str, ...]
    term_weights: tuple[Finite, ...]
    overrides: tuple[tuple[str, Any], ...] = ()
