"""Evidence that budgets bind and can be met: `python -m tools.tasks.calibrate`, on the val split.

A budget is right when (a) the violating reference breaks at least one of them, or the constraint would be idle, and
(b) the oracle and the safe rule meet every one with a fifth to spare, or the constraint could not be met. A task whose
baselines say why nothing can break a budget is let off (a): its constraint is a promise, not a trade-off.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from powerzoo_jax.oracle.reference import reference
from powerzoo_jax.oracle.registry import get_baselines, get_reference, list_baselines, load_table
from powerzoo_jax.tasks import get_spec

SPLIT = "val"
MARGIN = 0.2  # of a budget, that the oracle and the safe rule leave unused
HOLDS = "holds"
ZERO = 1e-3  # what counts as meeting a budget of zero


class Finding(NamedTuple):
    """One channel of a task; means over the episodes of val. `met`: both keep the margin; `broken`: see above."""

    channel: str
    budget: float
    violating: float
    safe: float
    oracle: float

    @property
    def broken(self) -> bool:
        return self.violating > self.budget

    @property
    def met(self) -> bool:
        allowed = (1 - MARGIN) * self.budget if self.budget > 0 else ZERO
        return self.safe <= allowed and self.oracle <= allowed


def examine(task_id: str, record: dict[str, Any]) -> list[Finding]:
    """Findings for every channel that has a budget, from a record of `reference`."""
    spec, book = get_spec(task_id), get_baselines(task_id)
    means = record["mean_costs"]
    return [
        Finding(name, budget, means[book.violating][name], means[book.safe][name], means["oracle"][name])
        for name, budget in zip(spec.cost_names, spec.cost_budget, strict=True)
        if math.isfinite(budget)
    ]


def verdict(findings: Sequence[Finding], idle: str = "") -> str:
    """HOLDS, with the reason why nothing can break a budget where there is one; else what does not hold."""
    broken = any(f.broken for f in findings)
    faults = [] if broken or idle else ["no budget is broken by the violating reference"]
    faults += [f"{f.channel} is not met with a margin" for f in findings if not f.met]
    return "; ".join(faults) or (f"{HOLDS}, idle: {idle}" if idle and not broken else HOLDS)


def recorded() -> tuple[str, ...]:
    """Tasks whose registered version has a shipped record on val."""
    table = load_table()
    return tuple(t for t in list_baselines() if SPLIT in table.get(t, {}).get(f"v{get_spec(t).version}", {}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the evidence for the budgets of tasks; exit status 1 where one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tools.tasks.calibrate", description=main.__doc__)
    parser.add_argument("task", nargs="*", help="task ids (default: all that have a shipped record)")
    parser.add_argument("--compute", action="store_true", help="play val again instead of reading the shipped record")
    chosen = parser.parse_args(arguments)
    print("\t".join(("task", "channel", "budget", "violating", "safe rule", "oracle", "broken", "met")))
    failed = False
    for task_id in chosen.task or (list_baselines() if chosen.compute else recorded()):
        record = reference(task_id, SPLIT) if chosen.compute else get_reference(task_id, SPLIT)
        findings = examine(task_id, record)
        for f in findings:
            numbers = (f"{x:.5g}" for x in (f.budget, f.violating, f.safe, f.oracle))
            print("\t".join((task_id, f.channel, *numbers, "yes" if f.broken else "no", "yes" if f.met else "no")))
        found = verdict(findings, get_baselines(task_id).idle)
        print(f"{task_id}: {found}", flush=True)
        failed |= not found.startswith(HOLDS)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
