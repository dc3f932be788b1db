"""`check` and `pf`: problems of a grid file, each with its remedy; its flows, dispatch and outages as tables."""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np

from powerzoo_jax.base.errors import CaseError, printable, render_problems
from powerzoo_jax.cases import Case, ThreePhaseCase, read_grid, scan_grid
from powerzoo_jax.cases.threephase.library import is_feeder
from powerzoo_jax.cli.main import BEST, STUDY_ROWS
from powerzoo_jax.cli.table import STDOUT, ProgressBar, render, say, write_json
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host
from powerzoo_jax.study import NetworkStudy, StudyTable, run_power_flow

PHASES = 3  # nodes of higher number are neutrals


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
    """Print the tables of a study, its totals and the limits that it breaks; of a three-phase feeder its voltages."""
    if is_feeder(options.case):
        return _run_feeder(options)
    bar = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        bar = bar or ProgressBar("outages", total)
        bar.show(done)

    study = run_power_flow(
        options.case, opf=options.opf, n_minus_1=options.n_1, actions=options.actions, progress=progress
    )
    if bar is not None:
        bar.close()
    if options.json:
        write_json(_record(study), STDOUT)
    else:
        print(_tables(study, everything=options.all))
    return 0


def _run_feeder(options: argparse.Namespace) -> int:
    """Print the voltages of a three-phase feeder at its nominal loads. Raises CaseError for anything else."""
    feeder = read_grid(options.case)
    assert isinstance(feeder, ThreePhaseCase)
    if options.opf or options.n_1 or options.actions:
        raise CaseError(f"{feeder.name} is a three-phase feeder: --opf, --n-1 and --actions are of balanced networks.")
    v = solve_threephase_on_host(feeder)
    node = feeder.node
    columns = {"bus": node.bus, "phase": node.phase, "v_pu": np.abs(v), "angle_deg": np.degrees(np.angle(v))}
    units = {"bus": "", "phase": "", "v_pu": "pu", "angle_deg": "deg"}
    table = StudyTable("node", columns, units, [""] * len(v))
    if options.json:
        write_json({"case": feeder.name, "notes": list(feeder.notes), "node": table.records()}, STDOUT)
        return 0
    low, high = (f"{columns['v_pu'][k]:.4f} pu at {node.bus[k]}.{node.phase[k]}" for k in _extremes(feeder, v))
    say(_table(table, everything=options.all))
    say(f"\n{_summary(feeder)}\nvoltages from {low} to {high}")
    return 0


def _extremes(feeder: ThreePhaseCase, v: np.ndarray) -> tuple[int, int]:
    """Positions of the lowest and the highest voltage of a phase; neutrals do not count."""
    at = np.flatnonzero(feeder.node.phase <= PHASES)
    size = np.abs(v)[at]
    return int(at[np.argmin(size)]), int(at[np.argmax(size)])


def _table(table: StudyTable, everything: bool) -> str:
    ranked = table.name == "action"
    rows = table.text_rows(len(table) if everything or ranked else STUDY_ROWS)
    rows = rows[: 1 + BEST] if ranked and not everything else rows  # below the state as it is
    more = len(table) - len(rows)
    return render(table.header(), rows) + (f"\n... and {more} more rows (--all)" if more else "")


def _tables(study: NetworkStudy, everything: bool) -> str:
    parts = [_table(table, everything) for table in study.tables.values()]
    return "\n\n".join([*parts, printable(study.summary())])


def _record(study: NetworkStudy) -> dict[str, object]:
    tables: dict[str, object] = {name: table.records() for name, table in study.tables.items()}
    cost = None if study.cost_usd_per_h != study.cost_usd_per_h else study.cost_usd_per_h
    totals = {"p_loss_mw": study.p_loss_mw, "cost_usd_per_h": cost, "violations": list(study.violations)}
    totals["notes"] = list(study.notes)
    return {"case": study.case.name, **totals, **tables}
