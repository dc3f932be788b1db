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
    parts = [HEAD, _conditions(done), _returns(done), *_shifted(done), *_markets(done), COSTS, _costs(done)]
    if left:
        parts += ["## Not trained\n", *(f"- `{row['task']}-v{row['version']}`: {row['error']}" for row in left)]
    return "\n".join(parts) + "\n"


HEAD = """# Leaderboard

How near learners come to the best plans known, with several seeds each. A learner trains by the settings in `configs/`
and then plays the episodes of the references: every start of the test split once, or some of them, drawn with a seed,
where plans take long (`n` on the page of [tasks](tasks.md)). `powerzoo-jax leaderboard` writes this page.

- **Gain** is (return - rule) / (best - rule): 0 is the operator's rule, 1 the best plans known that foresee everything
  and keep the same budgets. It is that of the seeds that keep every budget on the split; a learner none of whose seeds
  does is listed last, without a gain.
- **Returns** are those of an episode, in the unit of the task's reward. The learner's columns are interquartile means
  over seeds, with the 95 % interval of their bootstrap (Agarwal et al. 2021).
- **trivial** is the better of the best constant action and the best clock plan, **causal** a planner that knows no more
  than learners do, **best** the best feasible plans known, and the **bound** is a return that no policy within the
  budgets exceeds. A star: that policy breaks a budget. All play the same episodes.
- **Budgets kept**: seeds whose mean costs meet every budget on val and on test, and the channels that others break.
- **Planner seen**: the planner whose plans the policy, or the run that it began with, was trained on, and the rule
  where it gives some columns of the action. A dash: it has learnt from the reward alone.
- **Times** are those of the clock, of all seeds together. CPU counts compiling, training and scoring, and tells more
  where the machine was shared.
- A row whose learner is `causal` shows the causal planner in the learner's place: nothing is trained there.
"""
NAMED = """
## Named splits

The same policies where days differ from training on purpose, beside their gain on the test split; the references play
the same days. A gain is a dash where the learner breaks a budget there, or the rule does (a star). A dash in the
learner's columns: the recorded run was not played there. New runs play every named split of their task;
`powerzoo-jax leaderboard TASK --split NAME` trains a recorded one again and fills its line.
"""
MARKETS = """
## Markets

Agents that earn for themselves are judged by two figures, and neither is the score. **Joint** is the gain above, of
their profits together: it measures collusion. **Equilibrium** is 1 - NashConv / NashConv(rule), where the NashConv sums
what each agent would gain by its best response found while the others stay: 1 where nobody gains by leaving, 0 as far
from it as bids at true costs. One search of constant bids answers every policy. A learner's NashConv is the
interquartile mean over seeds.
"""
COSTS = """
## Costs

Mean of each channel that has a budget over the episodes of the test split; the learner's as mean over seeds, and how
many seeds keep the budget.
"""


def _conditions(rows: Sequence[Row]) -> str:
    where = sorted({f"- {row['where']}, {row['date']}" for row in rows})
    return "Conditions:\n\n" + "\n".join(where) + "\n"


def _rank(row: Row) -> tuple[Any, ...]:
    """Order on the page: by task, then by gain, those without any last."""
    known = [s["gain"] for s in row["seeds"] if s["gain"] is not None]
    return row["task"], not known, -interquartile_mean(known).mean if known else 0.0, key_of(row)


def _returns(rows: Sequence[Row]) -> str:
    who = ("task", "learner", "seeds", "steps a seed")
    numbers = ("gain", "learner's return", *ANCHORS, "bound", "unit", "budgets kept")
    times = ("compile [s]", "training [s]", "CPU [s]")
    return _markdown((*who, *numbers, *times, "planner seen"), [_line(row) for row in rows])


def _line(row: Row) -> tuple[str, ...]:
    known, seeds = row["known"], row["seeds"]
    known_times = row["seconds"] is not None
    times = tuple(f"{x:.0f}" for x in (*row["seconds"][:2], row["cpu_s"])) if known_times else ("-",) * 3
    head = (
        f"`{row['task']}-v{row['version']}`",
        row["run"]["config"]["algorithm"],
        str(len(seeds)),
        f"{row['steps']:,}",
    )
    earned = (gains_of(seeds), _return(Result(known, seeds)))
    anchors = tuple(_anchor(known, name) for name in (*ANCHORS, "bound"))
    kept = ", ".join((kept_of(seeds), *_broken(row)))
    return (*head, *earned, *anchors, _unit(row["task"]), kept, *times, row.get("planner") or "-")


def _unit(task: str) -> str:
    """Unit of a return; a dash for a task that this process does not know."""
    try:
        return "$" if set(get_spec(task).term_weights) == {1.0} else "reward"
    except ValueError:
        return "-"


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
    header = ("task", "learner", "split", "gain", "gain on test", "learner's return", *ANCHORS, "bound")
    lines = [line for row in rows for line in _shifts(row)]
    return [NAMED, _markdown((*header, "budgets kept"), lines)] if lines else []


def _shifts(row: Row) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for split, played in row.get("named", {}).items():
        result = Result(played["known"], played["seeds"])
        anchors = (_anchor(result.known, name) for name in (*ANCHORS, "bound"))
        kept = kept_of(result.seeds) if result.seeds else "-"
        cells = (gains_of(result.seeds), gains_of(row["seeds"]), _return(result), *anchors, kept)
        lines.append((f"`{row['task']}`", row["run"]["config"]["algorithm"], split, *cells))
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
            lines.append((task, row["run"]["config"]["algorithm"], *cells, gains_of(row["seeds"])))
    return [MARKETS, _markdown(header, lines)] if lines else []


def _return(result: Result, form: str = ".4g") -> str:
    return _spell(interquartile_mean([s["return"] for s in result.seeds]), form) if result.seeds else "-"


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
    results = {row["run"]["config"]["algorithm"]: found for row in rows if (found := result_on(row, split)) is not None}
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
    header = ("task", "learner", "channel", "budget", "random", "rule", "learner", "best", "seeds within")
    return _markdown(header, [line for row in rows for line in _channels(row)])


def _channels(row: Row) -> list[tuple[str, ...]]:
    known = (row["known"] or {}).get("mean_costs", {})
    lines: list[tuple[str, ...]] = []
    for name, budget in budgets_of(row).items():
        if budget is None:
            continue
        mine = [s["costs"][name] for s in row["seeds"]]
        theirs = {k: f"{known[k][name]:.3g}" if name in known.get(k, ()) else "-" for k in ("random", "rule", "best")}
        within = f"{sum(bool(keeps(np.asarray(x), np.asarray(budget))) for x in mine)} of {len(mine)}"
        cells = (f"{budget:g}", theirs["random"], theirs["rule"], f"{np.mean(mine):.3g}", theirs["best"], within)
        lines.append((f"`{row['task']}`", row["run"]["config"]["algorithm"], f"{name} [{unit_of(name)}]", *cells))
    return lines


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
