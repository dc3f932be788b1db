"""Selection of policies: of all that a run has passed through, the one that did best on the validation split.

Every `select_every` updates each policy of the run plays the fixed episodes of split val. One that keeps the budgets
goes before one that does not; among those that keep them the higher mean return wins, among the others the smaller
excess. The winner is kept beside the checkpoint of the last state, and is what the run is scored with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.cli.log import Log, row_of
from powerzoo_jax.cli.runs import SELECTED, VAL_LOG, Run, as_acts, load_state, open_run
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.constraint import budget_scales
from powerzoo_jax.oracle.baselines import RULE
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import CloneConfig, Config
from powerzoo_jax.rl.training.warmstart import start_at
from powerzoo_jax.tasks.score import Evaluation

SPLIT = "val"


@struct.dataclass(kw_only=True)
class Selection:
    """Best policies so far, one a row (R).

    policy:  pytree, leading axis R      weights and scaling
    total:   (R,) [unit of the reward]   mean return on val
    excess:  (R,) [-]                    largest mean cost above its budget, as a share of it; 0 where all are kept
    update:  (R,)                        after which update it was met
    """

    policy: Any
    total: Array
    excess: Array
    update: Array


def excess_of(record: Evaluation) -> float:
    """Largest mean cost above its budget as a share of that budget [-]; 0 for a feasible policy."""
    if record.feasible:
        return 0.0
    limited = {name: budget for name, budget in record.cost_thresholds.items() if budget is not None}
    over = np.array([record.mean_costs_by_constraint[name] - budget for name, budget in limited.items()])
    return float(np.max(over / budget_scales(tuple(limited), tuple(limited.values()))))


def candidate(policy: Any, records: Sequence[Evaluation], update: int) -> Selection:
    """Selection of the policies of one update with their records on val."""
    count = len(records)
    return Selection(
        policy=policy,
        total=jnp.asarray([record.mean_reward for record in records]),
        excess=jnp.asarray([excess_of(record) for record in records]),
        update=jnp.full(count, update, jnp.int32),
    )


def better_of(old: Selection, new: Selection) -> Selection:
    """Row by row the better one: the smaller excess, then the higher return; the older one of two alike."""
    wins = (new.excess < old.excess) | ((new.excess == old.excess) & (new.total > old.total))
    best: Selection = where_done(wins, new, old)
    return best


class Selector:
    """Keeps the selection of a run up to date in its folder; a resumed run goes on with what is there.

    judge:  (task on val, policies) -> the record of each, on the fixed episodes of the split
    """

    def __init__(self, run: Run, sim: Sim, judge: Callable[[Sim, Sequence[Partial]], list[Evaluation]]) -> None:
        """Run to select for, its simulation of training (policies have its spaces), and the judge, see the class."""
        self.run, self.sim, self.judge = run, sim, judge
        self.every, self.total = run.config.select_every, run.config.updates
        self.val = run.make(SPLIT) if self.every else None
        self.best, self.done = stored_selection(run, sim) if self.every else (None, 0)
        self.per_update = run.rows * run.learner.batch_steps(run.config, sim)
        speaks = self.every and jax.process_index() == 0
        self.log = Log(run.folder / VAL_LOG, self.done) if speaks else None

    def look(self, state: Any, done: int) -> None:
        """Judge the policies after `done` updates, if it is time; what was judged before a stop is not played again."""
        if self.val is None or done <= self.done or (done % self.every and done < self.total):
            return
        policy = jax.device_get(self.run.learner.policy_of(state))
        new = candidate(policy, self.judge(self.val, as_acts(self.run, self.sim, policy)), done)
        self.best, self.done = new if self.best is None else better_of(self.best, new), done
        if self.log is not None:  # first: what the selection does not know of yet is judged and written again
            row = row_of({"return": new.total}, self.sim, self.run.labels)
            self.log.write(done, done * self.per_update, row)
        checkpoint.save(self.run.folder / SELECTED, self.best, self.run.config, updates=done)

    def close(self) -> None:
        """Close the log of the split."""
        if self.log is not None:
            self.log.close()


def stored_selection(run: Run, sim: Sim) -> tuple[Selection | None, int]:
    """Selection in the folder of a run and the updates judged for it; (None, 0) where there is none."""
    folder = run.folder / SELECTED
    if not checkpoint.exists(folder):
        return None, 0
    init = run.programs(sim)[0]

    def blank() -> Selection:
        row = jnp.zeros(run.rows)
        policy = run.learner.policy_of(init(run.keys, run.varied(sim), sim))
        return Selection(policy=policy, total=row, excess=row, update=jnp.zeros(run.rows, jnp.int32))

    like = jax.eval_shape(blank)
    return checkpoint.restore(folder, like), checkpoint.load_config(folder)[1]


def chosen_weights(run: Run, sim: Sim, state: Any) -> Any:
    """Policies that a run stands for as arrays, leading axis one a row: see `chosen_policies`."""
    best = stored_selection(run, sim)[0] if run.config.select_every else None
    return jax.device_get(run.learner.policy_of(state) if best is None else best.policy)


def chosen_policies(run: Run, sim: Sim, state: Any) -> list[Partial]:
    """Policies that a run stands for, one a row: those selected on val where settings say so, else the last ones."""
    return as_acts(run, sim, chosen_weights(run, sim, state))


def begun_state(run: Run, state: Any) -> Any:
    """First state of a run, with the policies of the run that its settings start from, if any.

    Row i takes the policy of row i there, from the beginning again where there are fewer. Raises DataMissing or
    RunError where that run cannot be read, SettingsError where its policies have other weights.
    """
    if not run.config.start_from:
        return state
    source = open_run(Path(run.config.start_from))
    sim = source.make()
    found = chosen_weights(source, sim, load_state(source, sim)[0])
    rows = np.arange(run.rows) % source.rows
    return start_at(state, jax.tree.map(lambda x: x[rows], found))


def planner_seen(config: Config) -> str:
    """Planner that a policy has learnt from, itself or by the run that it started from; "" where none.

    That of a policy with columns that a rule of the operator gives is the rule, and so it is of one that acts through a
    safety filter and has learnt from nobody.
    """
    if getattr(config, "column_rule", ""):
        return RULE
    if isinstance(config, CloneConfig):
        return config.teacher
    if getattr(config, "safety_filter", "") and not config.start_from:
        return RULE
    return planner_seen(open_run(Path(config.start_from)).config) if config.start_from else ""


def policies_of_run(run: Run) -> list[Partial]:
    """The trained policies of a run in its folder, one a row."""
    sim = run.make()
    return chosen_policies(run, sim, load_state(run, sim)[0])
