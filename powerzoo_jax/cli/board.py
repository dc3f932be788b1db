"""Page of the leaderboard: its rows as Markdown tables, and as a table for a paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import trim_mean

from powerzoo_jax.base.errors import RunError
from powerzoo_jax.base.files.forms import require_form
from powerzoo_jax.base.textfile import read_json
from powerzoo_jax.cli.commands.evaluate import unit_of
from powerzoo_jax.families.market.equilibrium import equilibrium_score
from powerzoo_jax.oracle.baselines import RULE
from powerzoo_jax.tasks.registry import get_spec
from powerzoo_jax.tasks.score import gain, keeps

TEST = "test"
ANCHORS = ("random", "trivial", "rule", "causal", "best")  # from the least to the most that is usually earned
REWRITE = "Restore the file, or remove it and write it again."
RESAMPLES = 2000  # of the bootstrap: 50 of them lie beyond either end of a 95 % interval

Row = dict[str, Any]


NUMBER = (float, None)
KNOWN = (
    {
        **{"rule": float, "best": float, "feasible": {"rule": bool}, "episodes": str},
        **{name + "?": float for name in ("random", "trivial", "causal", "bound")},
        **{"mean_costs?": {str: {str: float}}, "nash_conv?": {"rule": float}},
    },
    None,
)
SEED = {"return": float, "gain": NUMBER, "costs": {str: float}, "kept": [bool], "nash_conv?": float}
ON_SPLIT = {"known": KNOWN, "episodes": str, "seeds": [SEED]}
SCORED = {
    **{"task": str, "version": int, "run": {"config": {"algorithm": str, "task": str}}, "steps": int},
    **{"seconds": ([float], None), "cpu_s": NUMBER, "known": KNOWN, "date": str, "where": str, "seeds": [SEED]},
    **{"budgets?": {str: NUMBER}, "planner?": (str, None), "named?": {str: ON_SPLIT}, "episodes?": str},
}
FAILED = {"task": str, "version": int, "error": str}


def require_row(row: Any, what: str) -> Row:
    """A row that somebody else may have written, looked through. Raises RunError.

    what:  subject of the message
    """
    require_form(row, FAILED if isinstance(row, dict) and "error" in row else SCORED, what, RunError, REWRITE)
    if "error" in row:
        return dict(row)
    limited = [name for name, budget in row.get("budgets", {}).items() if budget is not None]
    if not row["seeds"] or not all(seed["kept"] and seed["costs"].keys() >= set(limited) for seed in row["seeds"]):
        raise RunError(f"{what} is not what it should be: it has no seeds, or one without a verdict. {REWRITE}")
    return dict(row)


def read_rows(path: Path) -> list[Row]:
    """Rows of the file beside a page. Raises RunError where they are not what `leaderboard` writes."""
    rows = read_json(path, RunError, REWRITE)
    require_form(rows, [object], str(path), RunError, REWRITE)
    return [require_row(row, f"{path}, row {k + 1},") for k, row in enumerate(rows)]


class Result(NamedTuple):
    """Results of a row on one split: the references there, None without any, and those of every seed."""

    known: Row | None
    seeds: Sequence[Row]


class Interval(NamedTuple):
    """Interquartile mean over seeds, and its 95 % bootstrap interval; None with a single seed."""

    mean: float
    low: float | None
    high: float | None


def interquartile_mean(values: Sequence[float]) -> Interval:
    """Mean of the middle half of the seeds, resampled over seeds (Agarwal et al. 2021)."""
    x = np.asarray(values, np.float64)
    mean = float(trim_mean(x, 0.25))
    if len(x) == 1:
        return Interval(mean, None, None)
    draws = np.random.default_rng(0).integers(0, len(x), (RESAMPLES, len(x)))
    low, high = np.quantile(trim_mean(x[draws], 0.25, axis=1), [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def result_on(row: Row, split: str) -> Result | None:
    """Results of a row on a split; None where it was not scored there."""
    if split == TEST:
        return Result(row["known"], row["seeds"])
    found = row.get("named", {}).get(split)
    return None if found is None else Result(found["known"], found["seeds"])


def key_of(row: Row) -> tuple[str, str]:
    """Identity of a row on the page."""
    return row["task"], row["run"]["config"]["algorithm"] if "run" in row else ""


def gain_on(value: float, feasible: bool, known: Row | None) -> float | None:
    """Gain of a mean return; None where it breaks a budget, and where the rule does or nothing is better than it."""
    if known is None or not known["feasible"]["rule"] or known["best"] <= known["rule"]:
        return None
    return gain(value, known["rule"], known["best"], feasible=feasible)


def write_page(rows: Sequence[Row]) -> str:
    """The Markdown page: conditions, a line for each task, named split and cost channel, what could not be trained."""
    done = sorted((row for row in rows if "error" not in row), key=_rank)
    left = [row for row in rows if "error" in row]
    parts = [HEAD, _conditions(done), _gains(done), ENDS, _ends(done), *_shifted(done), *_markets(done)]
    parts += [COSTS, _costs(done), TIMES, _times(done)]
    if left:
        parts += ["## Not trained\n", *(f"- `{row['task']}-v{row['version']}`: {row['error']}" for row in left)]
    return "\n".join(parts) + "\n"


HEAD = """# Leaderboard

How close learners come to the best plans known. Each is trained with several seeds by its settings in `configs/`, and
then plays the same episodes as the references: every start of the test split once, or a drawn sample of them for tasks
whose plans take long to compute (the page of [tasks](tasks.md) gives the numbers).

- **Gain** is (return - rule) / (best - rule): 0 is the operator's rule, 1 the best plans known, which foresee the whole
  episode and keep the same budgets. Only seeds that keep every budget count. A learner without such a seed has no gain
  and is listed last.
- **Return** is that of an episode, in $ where it says so and else in the scaled reward of the task.
- Gains and returns are interquartile means over seeds, with a 95 % bootstrap interval (Agarwal et al. 2021).
- **Budgets kept** counts the seeds whose mean costs meet every budget on val and on test. Channels that the other seeds
  break are named.
- **Planner seen** names the planner whose plans the policy, or the run it started from, was trained on. It says rule
  where the rule sets a part of the action. A dash: the policy has learnt from the reward alone.
- **causal** in the column of learners is no learner: it is the causal planner, shown for comparison.
"""
CONDITIONS = """\
`powerzoo-jax leaderboard` writes this page, and `powerzoo-jax leaderboard TASK:LEARNER --page mine.md` plays one of its
rows again. It was written under these conditions:

"""
ENDS = """
## References

Returns of random play, of the better of the best constant action and the best clock plan (trivial), of the operator's
rule, of a planner that knows no more than learners do (causal), and of the best plans known. No policy within the
budgets returns more than the bound. A star: that policy breaks a budget.
"""
NAMED = """
## Named splits

The same policies on days that differ from training on purpose. There is no gain where the learner or the rule breaks a
budget. A dash as return: the recorded run was not played there. New runs play every named split of their task;
`powerzoo-jax leaderboard TASK --split NAME` trains a recorded one again and fills its line.
"""
MARKETS = """
## Markets

Where every agent earns for itself, two more figures describe the outcome. **Joint** is the gain above, of the profits
of all agents together: it measures collusion. **Equilibrium** is 1 - NashConv / NashConv(rule). The NashConv adds up
what each agent could gain by its best response while the others keep their bids. Equilibrium is 1 where no agent gains
by changing its bids, and 0 where they gain as much as they would from bids at true costs. The best responses are
searched among constant bids, the same ones for every policy. A learner's NashConv is the interquartile mean over seeds.
"""
COSTS = """
## Costs

Mean cost of an episode of the test split in each channel that has a budget. Behind the mean of a learner: how many of
its seeds keep the budget.
"""
TIMES = """
## Training

Times are wall-clock times of all seeds together. CPU counts compiling, training and scoring; it is the better measure
where the machine was shared.
"""


def _conditions(rows: Sequence[Row]) -> str:
    """Machines and versions, each with its first and its last day."""
    lines = []
    for where in sorted({row["where"] for row in rows}):
        days = sorted({row["date"] for row in rows if row["where"] == where})
        lines.append(f"- {where}, {' to '.join(dict.fromkeys((days[0], days[-1])))}")
    return CONDITIONS + "\n".join(lines) + "\n"


def _rank(row: Row) -> tuple[Any, ...]:
    """Sort key of a row of the page: its task, then its gain, rows without any last."""
    known = [s["gain"] for s in row["seeds"] if s["gain"] is not None]
    return row["task"], not known, -interquartile_mean(known).mean if known else 0.0, key_of(row)


def _gains(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        kept = ", ".join((kept_of(row["seeds"]), *_broken(row)))
        earned = (gains_of(row["seeds"]), _return(Result(row["known"], row["seeds"]), unit=_unit(row["task"])))
        lines.append((f"`{row['task']}-v{row['version']}`", _learner(row), *earned, kept, row.get("planner") or "-"))
    return _markdown(("task", "learner", "gain", "return", "budgets kept", "planner seen"), lines)


def _learner(row: Row) -> str:
    return str(row["run"]["config"]["algorithm"])


def _ends(rows: Sequence[Row]) -> str:
    """Returns of the references, a line for each task and split."""
    lines: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows:
        for split in (TEST, *row.get("named", {})):
            result = result_on(row, split)
            known = None if result is None else result.known
            cells = tuple(_anchor(known, name) for name in (*ANCHORS, "bound"))
            lines.setdefault((row["task"], split), (f"`{row['task']}` {split}", *cells))
    return _markdown(("task and split", *ANCHORS, "bound"), list(lines.values()))


def _times(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        if row["seconds"] is not None:
            times = (f"{x:.0f}" for x in (*row["seconds"][:2], row["cpu_s"]))
            lines.append((f"`{row['task']}`", _learner(row), f"{len(row['seeds'])} x {row['steps']:,}", *times))
    return _markdown(("task", "learner", "seeds x steps", "compile [s]", "training [s]", "CPU [s]"), lines)


def _unit(task: str) -> str:
    """Unit of a return, with the blank before it; none for a scaled reward and for an unknown task."""
    try:
        return " $" if set(get_spec(task).term_weights) == {1.0} else ""
    except ValueError:
        return ""


def _anchor(known: Row | None, name: str) -> str:
    """Return of a reference; starred where it breaks a budget."""
    if known is None or name not in known:
        return "-"
    return f"{known[name]:.4g}{'' if known['feasible'].get(name, True) else '*'}"


def kept_of(seeds: Sequence[Row]) -> str:
    return f"{sum(all(s['kept']) for s in seeds)} of {len(seeds)}"


def _broken(row: Row) -> list[str]:
    """Channels whose budget some seed breaks on the test split."""
    limits = {name: budget for name, budget in budgets_of(row).items() if budget is not None}
    return [
        n for n, b in limits.items() if not all(keeps(np.asarray(s["costs"][n]), np.asarray(b)) for s in row["seeds"])
    ]


def gains_of(seeds: Sequence[Row]) -> str:
    """Gain of the seeds that have one, as text."""
    known = [s["gain"] for s in seeds if s["gain"] is not None]
    return _spell(interquartile_mean(known), ".3f") if known else "-"


def _shifted(rows: Sequence[Row]) -> list[str]:
    """The section of named splits; nothing where no task has any."""
    header = ("task", "learner", "split", "gain", "return", "budgets kept")
    lines = [line for row in rows for line in _shifts(row)]
    return [NAMED, _markdown(header, lines)] if lines else []


def _shifts(row: Row) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for split, played in row.get("named", {}).items():
        result = Result(played["known"], played["seeds"])
        kept = kept_of(result.seeds) if result.seeds else "-"
        lines.append((f"`{row['task']}`", _learner(row), split, gains_of(result.seeds), _return(result), kept))
    return lines


def _markets(rows: Sequence[Row]) -> list[str]:
    """The section of markets; nothing where no row knows what its agents would gain by leaving."""
    header = ("task", "policy", "NashConv [$]", "equilibrium", "joint")
    lines: list[tuple[str, ...]] = []
    for row in rows:
        known, mine = row["known"] or {}, [s["nash_conv"] for s in row["seeds"] if "nash_conv" in s]
        conv = known.get("nash_conv", {})
        task = f"`{row['task']}`"
        for name in conv if mine else ():
            share = gain_on(known[name], known["feasible"].get(name, False), known) if name in known else None
            scored = f"{equilibrium_score(conv[name], conv[RULE]):.3f}"
            lines.append((task, name, f"{conv[name]:,.0f}", scored, "-" if share is None else f"{share:.3f}"))
        if mine:
            scores = [equilibrium_score(x, conv[RULE]) for x in mine]
            cells = (_spell(interquartile_mean(mine), ",.0f"), _spell(interquartile_mean(scores), ".3f"))
            lines.append((task, _learner(row), *cells, gains_of(row["seeds"])))
    return [MARKETS, _markdown(header, lines)] if lines else []


def _return(result: Result, form: str = ".4g", unit: str = "") -> str:
    return _spell(interquartile_mean([s["return"] for s in result.seeds]), form) + unit if result.seeds else "-"


def latex(rows: Sequence[Row]) -> str:
    """The results as a LaTeX table: learners between the references of their task, split by split; needs booktabs."""
    lines = []
    done = [row for row in rows if "error" not in row]
    for task in dict.fromkeys(row["task"] for row in done):
        mine = [row for row in done if row["task"] == task]
        for split in dict.fromkeys((TEST, *(split for row in mine for split in row.get("named", {})))):
            lines += [r"\midrule", *_latex_block(mine, task, split)]
    head = ("task", "split", "policy", "return", "gain", "budgets kept")
    body = [r"\begin{tabular}{lllrrr}", r"\toprule", _latex_line(head), *lines, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(body) + "\n"


def _latex_block(rows: Sequence[Row], task: str, split: str) -> list[str]:
    """Lines of one task on one split: the references without foresight, the learners, the best."""
    results = {_learner(row): found for row in rows if (found := result_on(row, split)) is not None}
    known = next((result.known for result in results.values()), None)
    anchors = {} if known is None else {name: known[name] for name in ANCHORS if name in known}
    lines = {}
    for name, value in anchors.items():
        share = gain_on(value, known["feasible"].get(name, False), known) if known is not None else None
        lines[name] = (name, f"{value:.2f}", "-" if share is None else f"{share:.3f}", "")
    for name, result in results.items():
        lines[name] = (name, _return(result, ".2f"), gains_of(result.seeds), kept_of(result.seeds))
    order = [name for name in dict.fromkeys((*ANCHORS[:-1], *results, ANCHORS[-1])) if name in lines]
    return [_latex_line((*((task, split) if k == 0 else ("", "")), *lines[name])) for k, name in enumerate(order)]


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cell.replace("_", r"\_") for cell in cells) + r" \\"


def _costs(rows: Sequence[Row]) -> str:
    lines: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows:
        for name, budget in budgets_of(row).items():
            if budget is not None:
                key = row["task"], name
                lines[key] = (*lines.get(key, _channel(row, name, budget)), _mine(row, name, budget))
    # the learners of a task share its last cell
    cells = [(*line[:5], "<br>".join(line[5:])) for line in lines.values()]
    return _markdown(("task", "channel and budget", "random", "rule", "best", "learners"), cells)


def _channel(row: Row, name: str, budget: float) -> tuple[str, ...]:
    """Cells of a channel: its budget and what references cost."""
    known = (row["known"] or {}).get("mean_costs", {})
    theirs = (f"{known[k][name]:.3g}" if name in known.get(k, ()) else "-" for k in ("random", "rule", "best"))
    return f"`{row['task']}`", f"{name} {budget:g} {unit_of(name)}", *theirs


def _mine(row: Row, name: str, budget: float) -> str:
    costs = [s["costs"][name] for s in row["seeds"]]
    within = sum(bool(keeps(np.asarray(x), np.asarray(budget))) for x in costs)
    return f"{_learner(row)} {np.mean(costs):.3g}, {within} of {len(costs)}"


def budgets_of(row: Row) -> dict[str, float | None]:
    """Budget of each cost channel, None without one; rows written before they held it are of shipped tasks."""
    if "budgets" in row:
        return dict(row["budgets"])
    spec = get_spec(row["task"])
    return {n: None if math.isinf(b) else b for n, b in zip(spec.cost_names, spec.cost_budget, strict=True)}


def _spell(x: Interval, form: str) -> str:
    return (
        f"{x.mean:{form}}" if x.low is None or x.high is None else f"{x.mean:{form}} [{x.low:{form}}, {x.high:{form}}]"
    )


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["-"] * len(header), *rows]
    return "\n".join("|" + "|".join(line) + "|" for line in lines)
