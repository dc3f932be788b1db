"""Reference policies of each task: its rules and its oracle, found by the task's id or by its builder.

The shipped reference returns: what a score is measured against.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import listing, unknown
from powerzoo_jax.base.exports import load_object
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.envs.family import get_family
from powerzoo_jax.envs.history import without_history
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.lagrangian import PricedPlanner
from powerzoo_jax.tasks import get_builder, get_spec, get_task, list_tasks
from powerzoo_jax.tasks.registry import SHIPPED, kind_of, relatives

FILE = Path(__file__).parent / "references.json"
COMMAND = "python -m powerzoo_jax.oracle.reference"
FUNCTION = "powerzoo_jax.oracle.reference.reference"

Table = dict[str, dict[str, dict[str, Any]]]
"""task id -> "v" + version -> split -> record, see `oracle.reference.reference`"""


@cache
def load_table() -> Table:
    """Read the shipped table once per process; do not change what it returns."""
    table: Table = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def version_key(task_id: str, version: int | None = None) -> str:
    """Name of a task's version in the shipped tables, "v1"; None takes that of `make`. Errors as in `get_spec`."""
    return f"v{get_spec(task_id, version).version}"


def get_reference(task_id: str, split: str = "test", *, version: int | None = None) -> dict[str, Any]:
    """Shipped record of a task: what its rule, its best feasible plans and others return on fixed episodes.

    version:  of the task; None takes that of `make`

    Valid for the task as registered: with keywords changed, or for a task of your own, compute your own by
    `oracle.reference.reference`, which says what a record holds.
    Raises ValueError for an unknown task and KeyError where the table has no such version or split.

    Example:
        from powerzoo_jax.tasks.score import gain
        record = get_reference("battery_arbitrage", "test")
        share = gain(6.0, record["rule"], record["best"])
    """
    key = version_key(task_id, version)
    splits = load_table().get(task_id, {}).get(key, {})
    if split not in splits:
        nothing = unknown("split", split, splits) if splits else f"The table holds nothing for {task_id!r} {key}."
        # another process knows no task that this one has registered
        shipped = any(task_id == task.spec.id for task in SHIPPED)
        option, argument = ("", "") if version is None else (f" --version {version}", f", version={version}")
        how = (
            f"{COMMAND} {task_id}{option} --split {split}"
            if shipped
            else f"{FUNCTION}({task_id!r}, {split!r}{argument})"
        )
        raise KeyError(f"{nothing} Compute it: {how}")
    return dict(splits[split])


def shipped_record(sim: Sim) -> dict[str, Any] | None:
    """Record of the shipped table for the task and split of a Sim; None where it has none.

    None too for a task of one's own, with keywords changed, or in an environment around that of the task, whose rewards
    may be others; a history of observations changes none.
    """
    spec = sim.spec
    if hasattr(without_history(sim).env, "env"):
        return None
    with contextlib.suppress(KeyError, ValueError):
        if replace(get_spec(spec.id, spec.version), split=spec.split) == spec:
            return get_reference(spec.id, spec.split, version=spec.version)
    return None


def gain_ends(record: Mapping[str, Any]) -> tuple[float, float] | None:
    """(rule, best) mean returns of a record; None where its rule breaks a budget or nothing is better than it."""
    fine = record["feasible"]["rule"] and record["best"] > record["rule"]
    return (record["rule"], record["best"]) if fine else None


def ends_of_episodes(sim: Sim, played: str) -> tuple[float, float] | None:
    """(rule, best) mean returns of the shipped table where it has played the same episodes, see `episode_hash`."""
    record = shipped_record(sim)
    return gain_ends(record) if record is not None and record["episodes"] == played else None


class Policy(NamedTuple):
    """Policy for `tasks.score.evaluate`: an Act, and its initial carry with leading axis B (() where it has none)."""

    act: Act
    carry: Any = ()


class OraclePlan(NamedTuple):
    """Plans made with the whole episode known, and what is known of them; (B,) each, in the units of the reward.

    policy:      follows the plans
    objective:   return that the planner expects
    bound:       no policy whatsoever returns more on the episode
    kept_bound:  no policy that breaks the physical limits of the episode by as little as the plan returns more; equal
                 to `bound` where the task has no limits beside its money
    """

    policy: Policy
    objective: np.ndarray
    bound: np.ndarray
    kept_bound: np.ndarray


Choose = Callable[[Sim, Draw, Array], Policy]
"""(sim, draws (B,), keys (B,)) -> policy for these episodes"""


@dataclass(frozen=True)
class ColumnRule:
    """Rule that gives some columns of an action and reads the observation alone, beside a learner of the others.

    columns:  of an agent's action
    of:       sim -> function of observations (A, O), which gives actions (A, U) in [-1, 1]; only `columns` count
    """

    columns: tuple[int, ...]
    of: Callable[[Sim], Callable[[Array], Array]]


Correct = Callable[[Any, Array, Array], tuple[Any, Array]]
"""(memory, obs (A, O), action (A, U)) -> (memory, the action that is played)"""


@dataclass(frozen=True)
class SafetyFilter:
    """Rule of the operator between a policy and a task: what it does not allow, it mends.

    of:  sim -> (memory before an episode, all zeros; function that mends an action by what is observed;
         (A, U) bool, the columns of an action that it looks at)
    """

    of: Callable[[Sim], tuple[Any, Correct, np.ndarray]]


@dataclass(frozen=True)
class Baselines:
    """Reference policies of a task.

    rules:      by name; "no_control" and "rule" are always among them; the rule keeps every budget with a margin, and
                gains are measured from it
    oracle:     plans that know the whole episode
    splits:     that the shipped table covers
    violating:  policy that must break a budget, or the constraint would be idle
    idle:       why no policy whatsoever can break a budget; empty where `violating` must
    headline:   named split that is shown beside val and test; empty where none is
    columns:    rules of some columns, by name, that learners may leave to them
    filters:    safety filters, by name, that policies may act through
    """

    rules: Mapping[str, Choose]
    oracle: Callable[[Sim, Draw, Array], OraclePlan]
    splits: tuple[str, ...] = ("train", "val", "test")
    violating: str = "random"
    idle: str = ""
    headline: str = ""
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    filters: Mapping[str, SafetyFilter] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all policies: random first, the oracle last."""
        return ("random", *self.rules, "oracle")


class PlanCarry(NamedTuple):
    """Carry of `plan_act`: the step and the actions (T, A, U) of the episode."""

    t: Array
    action: Array


def plan_act(carry: PlanCarry, obs: Array, key: Array) -> tuple[PlanCarry, Array]:
    """Follow a plan made before the episode: action (A, U) [-]; the observation is not looked at."""
    del obs, key
    return PlanCarry(carry.t + 1, carry.action), carry.action[carry.t]


def follow(sim: Sim, actions: np.ndarray) -> Policy:
    """Policy that plays kernel actions (B, T, A, U) [-], in [-1, 1]."""
    dtype = sim.spaces()[1].low.dtype  # type: ignore[union-attr]
    return Policy(plan_act, PlanCarry(jnp.zeros(len(actions), jnp.int32), jnp.asarray(np.asarray(actions, dtype))))


def repeat_action(sim: Sim, draws: Draw, action: np.ndarray) -> Policy:
    """Policy that plays one kernel action (A, U) [-] in every step, as a plan: it shares the program of all plans."""
    return follow(sim, np.broadcast_to(action, (draws.load_row.shape[0], sim.spec.horizon, *action.shape)))


class EpisodePlan(NamedTuple):
    """Plan of one episode that the environment can execute; bounds as in `OraclePlan`.

    action:  (T, A, U) [-]  kernel actions
    """

    action: np.ndarray
    objective: float
    bound: float
    kept_bound: float


def follow_plans(sim: Sim, plans: Sequence[EpisodePlan]) -> OraclePlan:
    """The plans of a batch of episodes, one each."""
    action, *figures = (np.stack(part) for part in zip(*plans, strict=True))
    return OraclePlan(follow(sim, action), *figures)


_OWN: dict[str, str] = {}


def register_baselines(task_id: str, where: str) -> None:
    """Give a task baselines of its own, "module:NAME". Raises ValueError for a second one."""
    known = _OWN.get(task_id) or _listed(task_id, "baselines")
    if known:
        raise ValueError(f"task {task_id!r} has baselines already, {known}.")
    _OWN[task_id] = where


def _listed(task_id: str, what: str) -> str | None:
    """Place of what the record of a task names, None for a task that is not there or names nothing."""
    own = _OWN.get(task_id) if what == "baselines" else None
    return own or (getattr(get_task(task_id), what) or None if task_id in list_tasks() else None)


def get_causal(task_id: str) -> Choose:
    """Causal planner of a task, (sim, draws, keys) -> policy: a rolling horizon on what has been observed so far.

    Its forecasts come from the days of training alone. Not one of the rules: no score is measured against it.
    Found like the baselines of a task, see `get_baselines`. Raises ValueError where no planner is known.

    Example:
        from powerzoo_jax.oracle import evaluate_baseline
        record = evaluate_baseline(powerzoo_jax.make("battery_arbitrage", split="test"), "causal", n_episodes=2)
    """
    where = _where(task_id, "causal")
    if where is None:
        raise ValueError(
            f"no causal planner is known for {task_id!r}, a task of family {get_spec(task_id).family!r}: name one in "
            f"its Task, causal='module:NAME'. There is one for {listing(list_causal())}."
        )
    planner: Choose = load_object(where)
    return planner


def list_causal() -> tuple[str, ...]:
    """Ids of the registered tasks that have a causal planner, sorted."""
    return tuple(task for task in list_tasks() if has_causal(task))


def has_causal(task_id: str) -> bool:
    """Whether a task has a causal planner; errors as in `get_baselines`."""
    return _where(task_id, "causal") is not None


ORACLE_PLANS = "powerzoo_jax.oracle.foresight:OraclePlans"


def get_priced(task_id: str) -> Callable[[Sim, Draw, Array], PricedPlanner]:
    """Planner of a task with foresight at prices of its cost channels, (sim, draws, keys) -> planner of the episodes.

    Found like the baselines of a task, see `get_baselines`; where none prices the channels, it is the task's oracle.
    Raises ValueError for a task without baselines.
    """
    get_baselines(task_id)
    planner: Callable[[Sim, Draw, Array], PricedPlanner] = load_object(_where(task_id, "priced") or ORACLE_PLANS)
    return planner


def list_priced() -> tuple[str, ...]:
    """Ids of the registered tasks whose planner prices cost channels, sorted."""
    return tuple(task for task in list_tasks() if _where(task, "priced") is not None)


def get_baselines(task_id: str) -> Baselines:
    """Baselines of a task: its own, or that of the tasks it is a variant of, see `register`.

    Raises ValueError for an unknown task, naming the nearest, and for one that no baselines are known for.

    Example:
        import dataclasses
        mine = dataclasses.replace(get_spec("battery_arbitrage"), id="my_battery", case="case69")
        powerzoo_jax.register(mine, get_builder("battery_arbitrage"))
        names = get_baselines("my_battery").names
    """
    where = _where(task_id, "baselines")
    if where is None:
        raise ValueError(
            f"no reference policies are known for {task_id!r}, a task of family {get_spec(task_id).family!r} built by "
            f"{get_builder(task_id)!r}. Give it some: oracle.register_baselines({task_id!r}, 'module:NAME')."
        )
    baselines: Baselines = load_object(where)
    return baselines


def get_column_rule(task_id: str, name: str) -> ColumnRule:
    """Rule of some columns of a task's actions, by name; errors as in `get_baselines`, ValueError for another name."""
    known = get_baselines(task_id).columns
    if name not in known:
        raise ValueError(unknown(f"rule of columns of {task_id!r}", name, known))
    return known[name]


def get_safety_filter(task_id: str, name: str) -> SafetyFilter:
    """Safety filter of a task by name; errors as in `get_column_rule`."""
    known = get_baselines(task_id).filters
    if name not in known:
        raise ValueError(unknown(f"safety filter of {task_id!r}", name, known))
    return known[name]


def list_baselines() -> tuple[str, ...]:
    """Ids of the registered tasks that have baselines, sorted."""
    return tuple(task for task in list_tasks() if _where(task, "baselines") is not None)


def _where(task_id: str, what: str) -> str | None:
    """Location of what a task has of a kind: as its record names it, with the shipped tasks of its builder, or with
    those of its family.

    what:  field of `Task`
    Where these `relatives` have several, they are those of the tasks which pay for the same and, like it, have one
    agent or several, and then those on the same grid, or else of the first such task. Where that leaves none, the
    family may have some for any task; else None.
    """
    spec, own = get_spec(task_id), _listed(task_id, what)
    if own or any(task_id == task.spec.id for task in SHIPPED if task.baselines):
        return own
    alike = list(relatives(task_id))
    if len({_listed(other.id, what) for other in alike}) > 1:
        alike = [other for other in alike if kind_of(other) == kind_of(spec)]
    if len({_listed(other.id, what) for other in alike}) > 1:
        alike = [other for other in alike if other.case == spec.case] or alike[:1]
    found = {_listed(other.id, what) for other in alike}
    return found.pop() if len(found) == 1 else getattr(get_family(spec.family), what) or None
