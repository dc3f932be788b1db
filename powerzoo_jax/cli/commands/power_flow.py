"""`pf`: power flow, optimal dispatch and outages of a grid file, as tables by bus and branch."""

from __future__ import annotations

import argparse

from powerzoo_jax.cli.main import STUDY_ROWS
from powerzoo_jax.cli.table import STDOUT, ProgressBar, render, write_json
from powerzoo_jax.study import NetworkStudy, run_power_flow


def run(options: argparse.Namespace) -> int:
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
        write_json(_plain(study), STDOUT)
    else:
        print(_text(study, everything=options.all))
    return 0


def _text(study: NetworkStudy, everything: bool) -> str:
    parts = []
    for table in study.tables.values():
        rows = table.text_rows(len(table) if everything else STUDY_ROWS)
        more = len(table) - len(rows)
        parts.append(render(table.header(), rows) + (f"\n... and {more} more rows (--all)" if more else ""))
    return "\n\n".join([*parts, study.summary()])


def _plain(study: NetworkStudy) -> dict[str, object]:
    tables: dict[str, object] = {name: table.records() for name, table in study.tables.items()}
    cost = None if study.cost_usd_per_h != study.cost_usd_per_h else study.cost_usd_per_h
    totals = {"p_loss_mw": study.p_loss_mw, "cost_usd_per_h": cost, "violations": list(study.violations)}
    return {"case": study.case.name, **totals, **tables}
