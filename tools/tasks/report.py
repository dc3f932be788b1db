"""The page docs/tasks.md, made from the catalog and the reference table.

`python -m tools.tasks.report [--write] [FILE]`: without --write it compares the page with FILE and exits 1 when
they differ.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.oracle.baselines import CAUSAL, TRIVIAL
from powerzoo_jax.oracle.registry import load_table, version_key
from powerzoo_jax.tasks import list_tasks, make
from powerzoo_jax.tasks.score import gain
from tools.builder import run_page
from tools.tasks.cards import cards

PAGE = Path("docs") / "tasks.md"
COMMAND = "python -m tools.tasks.report --write"
POLICIES = ("random", TRIVIAL, "rule", CAUSAL, "best")

ABOUT = {
    "battery_arbitrage": "One battery earns on day-ahead prices within the limits of its feeder.",
    "comparison_tso_centralized": "One operator commits and dispatches 54 units against load, wind and sun.",
    "dc_microgrid": "An islanded data centre places its jobs, cools, and covers itself by sun, battery and diesel.",
    "dc_microgrid_safe": "The same with missed jobs as a constraint instead of a price.",
    "dc_scheduling": "A data centre on a feeder starts its jobs and cools by price, deadline and temperature.",
    "dc_scheduling_7d": "The same over a week.",
    "dso": "A distribution company calls on six flexible loads to keep the voltage band at least cost.",
    "gencos_bidding": "Five generators bid against each other; each earns at the price of its own bus.",
    "joint_trans_dist": "Five generators above, and the batteries of a feeder below one of their buses.",
    "joint_trans_dist_7d": "The same over a week.",
    "marl_der_arbitrage": "Three batteries trade energy and share a tight voltage band.",
    "marl_der_arbitrage_5bat": "The same with five batteries.",
    "marl_der_arbitrage_7d": "The same over a week.",
    "marl_ders_benchmark": "Batteries, plants and flexible loads on one feeder, with reactive power.",
    "marl_ev_v2g": "Five vehicles charge for their trips and sell back what they can spare, over a week.",
    "marl_ev_v2g_10ev": "The same with ten vehicles.",
    "marl_ev_v2g_1d": "The same over a day.",
    "marl_opf": "Five generators share the load by score; lines must not be overloaded.",
    "marl_opf_118": "The same on the 118-bus network, at its load ratios and budgets.",
    "marl_opf_7d": "The same over a week.",
    "marl_uc": "`marl_opf` with on and off, minimum times and starts.",
    "opf_118": "Fifty-four generators on the 118-bus network.",
    "opf_118_7d": "The same over a week.",
}

HEAD = f"""\
# Tasks

`powerzoo_jax.make(task, split=...)` builds the array kernel, `powerzoo.make_task_env(task, split=...)` the Gymnasium or
PettingZoo view. Every task has the splits train, val and test, whose days do not overlap, and named ones that differ
from training on purpose; `powerzoo-jax show TASK` prints keywords, units and observation fields, and asking for an
unknown split names the valid ones. Rewards hold no penalties: costs are physical channels beside them, with budgets per
episode where the task constrains them. `{COMMAND}` writes this page.

"""

REFERENCES = """\
Mean returns of an episode in the unit of the reward, all on the same episodes, by `powerzoo-jax reference TASK`. The
best plans known have foresight and the budgets that learners have; no policy within the budgets returns more than the
bound, and the gap is (bound - best) / (best - rule). The gain is 0 for the rule and 1 for the best. A return in
brackets breaks a budget and has no gain; a best in brackets is of the plans that break budgets least, where none are
known that keep them. Trivial is the better of the best constant action and the best clock plan, causal a planner that
knows no more than learners do. Where units share the load by their scores, the bound holds for every dispatch, also for
those that no scores lead to, so that plans cannot close the whole gap; the bound of actions is that of what scores can
reach, where one is known. How far rules stay below budgets stands in
`benchmarks/results/margins.tsv`, by `python -m tools.tasks.margins`.
"""


def page() -> str:
    """The whole page."""
    sims = {task: make(task) for task in list_tasks()}
    parts = (_overview(sims), _channels(sims), _references(), cards(sims, ABOUT))
    return HEAD + "\n\n".join("\n".join(part) for part in parts) + "\n"


def _overview(sims: dict[str, Sim]) -> Iterator[str]:
    yield "| task | what it asks | grid | agents | steps | observation | action | version |"
    yield "|---|---|---|---:|---|---:|---:|---:|"
    for task, sim in sims.items():
        spec, dims = sim.spec, sim.env.dims
        steps = f"{spec.horizon} x {_minutes(spec)} min"
        yield (
            f"| `{task}` | {ABOUT.get(task, '')} | {spec.case} | {len(spec.agents)} | {steps} | {dims.obs} | {dims.act}"
            f" | {spec.version} |"
        )


def _channels(sims: dict[str, Sim]) -> Iterator[str]:
    yield "## Costs and budgets"
    yield ""
    yield "Sums over an episode; a channel without a number is reported and not constrained."
    yield ""
    yield "| task | channels |"
    yield "|---|---|"
    for task, sim in sims.items():
        spec = sim.spec
        parts = [_channel(name, budget) for name, budget in zip(spec.cost_names, spec.cost_budget, strict=True)]
        yield f"| `{task}` | {', '.join(parts)} |"


def _references() -> Iterator[str]:
    yield "## Reference returns"
    yield ""
    yield from REFERENCES.splitlines()
    yield ""
    columns = ("episodes", *POLICIES, "bound", "of actions", "gap", "gain of trivial", "gain of causal")
    yield f"| task | split | {' | '.join(columns)} |"
    yield f"|---|---|{'---:|' * len(columns)}"
    for task, versions in sorted(load_table().items()):
        for split, record in sorted(versions.get(version_key(task), {}).items()):
            yield f"| `{task}` | {split} | {record['n']} | {' | '.join(_between(record))} |"


def _between(record: dict[str, Any]) -> Iterator[str]:
    """Cells of a record: returns of policies, bounds and gap, gains of those that look at nothing and at the past."""
    for name in POLICIES:
        shown = _number(record.get(name))
        yield shown if record["feasible"].get(name, True) else f"({shown})"
    yield _number(record["bound"])
    yield _number(record.get("bound_of_actions"))
    yield "-" if record["gap"] is None else f"{round(100 * record['gap'], 2) + 0.0:.2f} %"
    for name in (TRIVIAL, CAUSAL):
        known = name in record and record["feasible"]["rule"]
        share = gain(record[name], record["rule"], record["best"], feasible=record["feasible"][name]) if known else None
        yield _number(share)


def _minutes(spec: TaskSpec) -> int:
    return round(60 * spec.dt_hours)


def _channel(name: str, budget: float) -> str:
    return name if math.isinf(budget) else f"**{name} {budget:g} {UNITS[name]}**"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare the page; returns the exit status."""
    return run_page(page, PAGE, COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
