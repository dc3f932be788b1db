"""Cards of the tasks for docs/tasks.md: the facts needed to use or to quote a task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.oracle.baselines import CAUSAL, RULE, TRIVIAL
from powerzoo_jax.oracle.reference import BEST
from powerzoo_jax.oracle.registry import load_table, version_key
from powerzoo_jax.tasks.score import gain

POLICIES = ("random", TRIVIAL, RULE, CAUSAL, BEST)
# heading of each family, in the order of the page
FAMILIES = {
    "feeder": "Feeder tasks",
    "transmission": "Transmission tasks",
    "market": "Market tasks",
    "joint": "Tasks on both voltage levels",
    "microgrid": "Island tasks",
}
SHOWN = 3  # names of a block that are spelled out
# formulas of reward terms, all [$] but those that say otherwise; P power, E energy, dt step
MEANING = {
    "energy_sales": "price P dt, P > 0 sold",
    "degradation": "-wear abs(P) dt",
    "settlement": "in the last step: value of the change of stored energy since the start",
    "unserved_energy": "-VOLL E_unserved",
    "network_loss": "-price P_loss dt",
    "curtailed_energy": "-[price]+ E_curtailed",
    "comfort": "-comfort price E_shed",
    "deferral": "-deferral price E_shifted",
    "terminal_buffer": "in the last step: -cost of load still deferred",
    "unmet_energy": "-price of a trip's energy that the battery did not hold",
    "site_energy": "price P dt of the site, P < 0 bought",
    "job_misses": "-price of a job that missed its deadline",
    "missed_jobs": "-price of a job that missed its deadline",
    "backlog": "in the last step: -price of GPU hours of work left",
    "pue_bonus": "[target - PUE]+ [-]",
    "generation": "-cost of output dt",
    "surplus": "-price of output beyond the load",
    "no_load": "-cost of running units dt",
    "startup": "-cost of starts",
    "shutdown": "-cost of stops",
    "revenue": "price at the own bus P dt",
    "generation_cost": "-cost of output dt",
    "fuel": "-fuel price P_diesel dt",
    "carbon": "-emission [kg]",
    "zone_heat": "in the last step: -price of the electricity that would bring the room back to its first temperature",
    "stored_carbon": "in the last step: -emission of the diesel energy that room and battery lack [kg]",
}


def by_family(sims: Mapping[str, Sim]) -> dict[str, str]:
    """Heading of each task's family, tasks in the order of the page."""
    order = {task: list(FAMILIES).index(sim.spec.family) for task, sim in sims.items()}
    return {task: FAMILIES[sims[task].spec.family] for task in sorted(sims, key=lambda task: (order[task], task))}


def cards(sims: Mapping[str, Sim], about: Mapping[str, str]) -> Iterator[str]:
    """Lines of one section per family, with a card for each task."""
    told = ""
    for task, heading in by_family(sims).items():
        if heading != told:
            yield from (f"## {heading}", "")
            told = heading
        yield from (*_card(task, sims[task], about.get(task, "")), "")


def _card(task: str, sim: Sim, about: str) -> Iterator[str]:
    spec = sim.spec
    yield f"### {task}"
    yield ""
    yield about
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| identity | `{spec.id}`, version {spec.version}, family {spec.family}, grid {spec.case} |"
    yield f"| episode | {spec.horizon} steps of {60 * spec.dt_hours:g} min |"
    yield f"| agents | {_listed(spec.agents)} |"
    yield f"| action | {_actions(sim)} |"
    yield f"| observation | {_observation(sim)} |"
    for name, weight in zip(spec.term_names, spec.term_weights, strict=True):
        yield f"| reward: {name.replace('_', ' ')} | {weight:g} x ({MEANING.get(name, name.replace('_', ' '))}) |"
    yield f"| costs | {', '.join(map(_channel, spec.cost_names, spec.cost_budget))} |"
    yield f"| keywords | {_keywords(spec)} |"
    records = sorted(load_table().get(task, {}).get(version_key(task), {}).items())
    if records:
        yield from ("", *_returns(records), "", *_bounds(records))


def _returns(records: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Mean returns split by split."""
    yield f"| split, episodes | {' | '.join(POLICIES)} |"
    yield f"|---|{'---:|' * len(POLICIES)}"
    for split, record in records:
        returns = {name: _number(record.get(name)) for name in POLICIES}
        kept = record["feasible"]
        cells = (shown if kept.get(name, True) else f"({shown})" for name, shown in returns.items())
        yield f"| {split}, {record['n']} | {' | '.join(cells)} |"


def _bounds(records: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Bounds, gaps and gains split by split; a bound of scores where one is known on some split."""
    scores = any("bound_of_actions" in record for _, record in records)
    header = ("bound", *(("bound of scores",) if scores else ()), "gap", "gain of trivial", "gain of causal")
    yield f"| split | {' | '.join(header)} |"
    yield f"|---|{'---:|' * len(header)}"
    for split, record in records:
        cells = [_number(record["bound"]), *([_number(record.get("bound_of_actions"))] if scores else [])]
        cells.append("-" if record["gap"] is None else f"{round(100 * record['gap'], 2) + 0.0:.2f} %")
        cells += [_number(_gain(record, name)) for name in (TRIVIAL, CAUSAL)]
        yield f"| {split} | {' | '.join(cells)} |"


def _gain(record: Mapping[str, Any], name: str) -> float | None:
    """Gain of a reference; None where it is not known, or where it or the rule breaks a budget."""
    if name not in record or not record["feasible"]["rule"]:
        return None
    return gain(record[name], record[RULE], record[BEST], feasible=record["feasible"][name])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _channel(name: str, budget: float) -> str:
    return name if math.isinf(budget) else f"**{name} {budget:g} {UNITS[name]}**"


def _listed(names: tuple[str, ...]) -> str:
    """Names, the long list by its ends."""
    if len(names) <= SHOWN + 1:
        return ", ".join(f"`{name}`" for name in names)
    return f"`{names[0]}` to `{names[-1]}`, {len(names)} of them"


def _actions(sim: Sim) -> str:
    layout = getattr(sim.env, "layout", None)
    if layout is None:
        return f"{sim.env.dims.act} an agent"
    return "; ".join(
        f"{block.kind}: "
        + ", ".join(f"{n} [{a:g}, {b:g}]" for n, a, b in zip(block.names, block.low, block.high, strict=True))
        for block in layout.table.blocks
    )


def _observation(sim: Sim) -> str:
    blocks = (
        f"{_listed(b.names)} in [{np.min(b.low):g}, {np.max(b.high):g}]" for b in sim.env.fields.blocks if b.names
    )
    return f"{sim.env.dims.obs} entries: " + "; ".join(blocks)


def _keywords(spec: TaskSpec) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in spec.overrides) or "none beside the defaults"
