"""Cards of the tasks for docs/tasks.md: the facts needed to use or to quote a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.oracle import get_reference
from powerzoo_jax.oracle.baselines import CAUSAL, RULE, TRIVIAL
from powerzoo_jax.oracle.reference import BEST
from powerzoo_jax.tasks.score import gain

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


def cards(sims: Mapping[str, Sim], about: Mapping[str, str]) -> Iterator[str]:
    """Lines of one section per task."""
    yield "## Cards"
    yield ""
    yield "With the default keywords; `powerzoo-jax show TASK` prints every field. A reward is the sum of its terms,"
    yield "each times its weight. Entries of an action lie in [-1, 1] in the kernel; here they have the bounds of the"
    yield "device."
    for task, sim in sims.items():
        yield ""
        yield from _card(task, sim, about.get(task, ""))


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
    yield f"| tells apart | {_ladder(get_reference(task, 'test'))} |"
    yield f"| keywords | {_keywords(spec)} |"


def _ladder(record: Mapping[str, Any]) -> str:
    """Gains of what looks at nothing, of the rule, of what looks back and of what foresees, and what one is worth."""
    kept = record["feasible"]
    steps = (
        f"{name} {gain(record[name], record[RULE], record[BEST]):.3g}" if kept[name] else f"{name} breaks a budget"
        for name in (TRIVIAL, RULE, CAUSAL, BEST)
        if name in record
    )
    return f"gains on test: {', '.join(steps)}; a gain of 1 is {record[BEST] - record[RULE]:.4g} an episode"


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
