"""`check` and `pf`: problems of a grid file, each with its remedy; its flows, dispatch and outages as tables."""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np

from powerzoo_jax.base.errors import printable, render_problems
from powerzoo_jax.cases import Case, ThreePhaseCase, scan_grid
from powerzoo_jax.cli.main import STUDY_ROWS
from powerzoo_jax.cli.table import STDOUT, ProgressBar, render, say, write_json
from powerzoo_jax.study import NetworkStudy, run_power_flow


def run_check(options: argparse.Namespace) -> int:
    """Print every problem of a case; 1 when there is an error among them."""
    name, case, problems = scan_grid(options.case)
    errors = sum(p.severity == "error" for p in problems)
    if options.json:
        found = [dataclasses.asdict(problem) for problem in problems]
        write_json({"case": name, "usable": not errors, "problems": found}, STDOUT)
        return int(errors > 0)
    if case is not None:
        say(_summary(case))
    if not problems:
        print("no problems found")
        return 0
    say(render_problems(name, problems, everything=True))
    verdict = "cannot be used as it is" if errors else "can be used"
    say(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}: {name} {verdict}")
    return int(errors > 0)


def _summary(case: Case | ThreePhaseCase) -> str:
    if isinstance(case, ThreePhaseCase):
        load = float(np.sum(case.load.p_kw))
        return (
            f"{case.name}: {case.n_node} nodes, {len(case.line)} lines, {len(case.transformer)} transformer units, "
            f"{len(case.regulator)} regulators, load {load:g} kW, base {case.base_mva:g} MVA"
        )
    load, supply = float(np.sum(case.load.p_mw)), float(np.sum(case.unit.p_max_mw[case.unit.in_service]))
    return (
        f"{case.name}: {case.n_bus} buses, {case.n_branch} branches, {len(case.unit)} units, "
        f"load {load:g} MW, capacity {supply:g} MW, base {case.base_mva:g} MVA"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def run_pf(options: argparse.Namespace) -> int:
    """Print the tables of a study, its totals and the limits that it breaks."""
    bar = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        bar = bar or ProgressBar("outages", total)
        bar.show(done)

    study = run_power_flow(options.case, opf=options.opf, n_minus_1=options.n_1, progress=progress)
    if bar is not None:
        bar.close()
    if options.json:
        write_json(_record(study), STDOUT)
    else:
        print(_tables(study, everything=options.all))
    return 0


def _tables(study: NetworkStudy, everything: bool) -> str:
    parts = []
    for table in study.tables.values():
        rows = table.text_rows(len(table) if everything else STUDY_ROWS)
        more = len(table) - len(rows)
        parts.append(render(table.header(), rows) + (f"\n... and {more} more rows (--all)" if more else ""))
    return "\n\n".join([*parts, printable(study.summary())])


def _record(study: NetworkStudy) -> dict[str, object]:
    tables: dict[str, object] = {name: table.records() for name, table in study.tables.items()}
    cost = None if study.cost_usd_per_h != study.cost_usd_per_h else study.cost_usd_per_h
    totals = {"p_loss_mw": study.p_loss_mw, "cost_usd_per_h": cost, "violations": list(study.violations)}
    totals["notes"] = list(study.notes)
    return {"case": study.case.name, **totals, **tables}
