"""The page docs/tasks.md, made from the catalog and the reference table.

`python -m tools.tasks.report [--write] [FILE]`: without --write it compares the page with FILE and exits 1 when
they differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.tasks import list_tasks, make
from tools.builder import run_page
from tools.tasks.cards import by_family, cards

PAGE = Path("docs") / "tasks.md"
COMMAND = "python -m tools.tasks.report --write"

ABOUT = {
    "battery_arbitrage": "One battery earns money at day-ahead prices within the limits of its feeder.",
    "comparison_tso_centralized": "One operator commits and dispatches 54 units against load, wind and sun.",
    "dc_microgrid": "An islanded data centre schedules jobs and cooling on solar power, a battery and diesel.",
    "dc_microgrid_safe": "`dc_microgrid` with a budget for missed jobs instead of a price.",
    "dc_scheduling": "A data centre on a feeder schedules jobs and cooling by price, deadline and temperature.",
    "dc_scheduling_7d": "`dc_scheduling` over a week.",
    "dso": "A distribution company calls on six flexible loads to keep the voltage band at least cost.",
    "gencos_bidding": "Five generators bid against each other; each earns at the price of its own bus.",
    "joint_trans_dist": "Five generators on a transmission grid, and three batteries on a feeder below it.",
    "joint_trans_dist_7d": "`joint_trans_dist` over a week.",
    "marl_der_arbitrage": "Three batteries trade energy and share a tight voltage band.",
    "marl_der_arbitrage_5bat": "`marl_der_arbitrage` with five batteries.",
    "marl_der_arbitrage_7d": "`marl_der_arbitrage` over a week.",
    "marl_ders_benchmark": "Batteries, solar plants and flexible loads on one feeder, with reactive power.",
    "marl_ev_v2g": "Five vehicles charge for their trips and sell back what they can spare, over a week.",
    "marl_ev_v2g_10ev": "`marl_ev_v2g` with ten vehicles.",
    "marl_ev_v2g_1d": "`marl_ev_v2g` over a day.",
    "marl_opf": "Five generators share the load by scores without overloading lines.",
    "marl_opf_118": "`marl_opf` on the 118-bus network, with load ratios and budgets of its own.",
    "marl_opf_7d": "`marl_opf` over a week.",
    "marl_uc": "`marl_opf` with units that switch on and off, with minimum times and start-up costs.",
    "opf_118": "Fifty-four generators share the load of the 118-bus network.",
    "opf_118_7d": "`opf_118` over a week.",
}

HEAD = """\
# Tasks

`powerzoo_jax.make(task, split=...)` builds a task for array programs, `powerzoo.make_task_env(task, split=...)` the
same one as a Gymnasium or PettingZoo environment. Every task has the splits train, val and test, whose days do not
overlap. Named splits, such as `price_stress`, differ from training on purpose. Rewards hold no penalties: limits that
are broken count as costs in physical units, some with a budget for an episode. `powerzoo-jax show TASK` prints the
splits, keywords, units and observation fields of a task. Observation and action in the table are the numbers of entries
of one agent.

"""

READING = f"""\
## How to read the cards

They show each task with its default keywords. A reward is the sum of its terms, each times its weight. An action entry
lies in [-1, 1] in the kernel; the cards give the bounds of the device. Costs are sums over an episode. Those in bold
have a budget, the others are only reported.

**Returns** are means over the same episodes, in the unit of the reward, from `powerzoo-jax reference TASK`.

- *random* plays random actions, *rule* is an operator's rule.
- *trivial* looks at nothing: it is the better of the best constant action and the best fixed daily schedule.
- *causal* is a planner that knows no more than a learner does.
- *best* are the best plans known. They foresee the episode and keep the same budgets as learners.
- A return in brackets breaks a budget and has no gain. Where the best stands in brackets, no plans are known that keep
  the budgets, and these break them least.

**Bounds**: no policy within the budgets returns more than the bound. The gap is (bound - best) / (best - rule). In some
tasks units share the load by scores. Their bound holds for every dispatch, also for those that no scores lead to, so
plans cannot close that gap; a tighter bound, of what scores can reach, is given where one is known.

**Gain** is 0 for the rule and 1 for the best. `benchmarks/results/margins.tsv` shows how far rules stay below the
budgets (`python -m tools.tasks.margins`). `{COMMAND}` writes this page.
"""


def page() -> str:
    """The whole page."""
    sims = {task: make(task) for task in list_tasks()}
    return (
        HEAD
        + "\n\n".join("\n".join(part) for part in (_overview(sims), READING.splitlines(), cards(sims, ABOUT)))
        + "\n"
    )


def _overview(sims: dict[str, Sim]) -> Iterator[str]:
    yield "| task | what it asks | grid | agents | steps | observation, action |"
    yield "|---|---|---|---:|---:|---:|"
    for task in by_family(sims):
        spec, dims = sims[task].spec, sims[task].env.dims
        steps = f"{spec.horizon} x {_minutes(spec)} min"
        yield (
            f"| [`{task}`](#{task}) | {ABOUT.get(task, '')} | {spec.case} | {len(spec.agents)} | {steps}"
            f" | {dims.obs}, {dims.act} |"
        )


def _minutes(spec: TaskSpec) -> int:
    return round(60 * spec.dt_hours)


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare the page; returns the exit status."""
    return run_page(page, PAGE, COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
