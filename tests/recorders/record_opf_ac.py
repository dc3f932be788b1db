"""Record AC optimal power flows that PYPOWER solves: random loads of three cases with tightened ratings.

Runs where PYPOWER is installed (`pip install pypower`). Without --write it prints the differences to what is
committed; with --write it replaces the file.

Usage: python tests/recorders/record_opf_ac.py [--write]
"""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.base.npz import write_npz  # noqa: E402
from powerzoo_jax.cases import Case  # noqa: E402
from powerzoo_jax.cases.library import load_case  # noqa: E402
from tests.recorders.record_dc import tables  # noqa: E402
from tools.builder import compare_npz  # noqa: E402

SEED, COUNT, TOLERANCE = 23, 20, 1e-9
DATA = ROOT / "tests" / "recorded" / "opf_ac"
README = """# AC optimal power flows of three cases

States of `record_opf_ac.ac_states`: {count} a case, every load on its own (seed {seed}), ratings tightened so that some
bind. Solved by `runopf` of PYPOWER {version} (BSD-3-Clause; its PIPS interior point), tolerances {tolerance}, on the
case's tables in MATPOWER's columns.

- `<case>.cost` (B,): generation cost [USD/h], rounded to 1e-7; NaN where PYPOWER found no solution
- `<case>.lmp`, `<case>.lmp_reactive` (B, N): prices [USD/MWh], [USD/Mvarh], buses in the order of the case, to 1e-7
- `<case>.binding` (B,): how many branches end at their rating

Recorded by `tests/recorders/record_opf_ac.py --write`; without the flag it prints what would change.
"""


class Draw(NamedTuple):
    """Ratings times, and range of the load of all buses together, on top of 10 % of each on its own."""

    rating: float
    low: float
    high: float


DRAWS = {"pz_case14": Draw(0.45, 0.7, 1.3), "case30": Draw(0.9, 0.7, 1.05), "pz_case118": Draw(0.75, 0.8, 1.2)}


def ac_states(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loads (B, N) [MW], [Mvar] and ratings (L,) [MVA]."""
    draw, rng = DRAWS[case.name], np.random.default_rng(SEED)
    factor = rng.uniform(draw.low, draw.high, (COUNT, 1)) * rng.uniform(0.9, 1.1, (COUNT, case.n_bus))
    return factor * case.p_load_mw, factor * case.q_load_mvar, draw.rating * case.branch.rate_a_mva


def network(case: Case, rate: np.ndarray) -> dict[str, Any]:
    """The case in MATPOWER's columns, to be given loads."""
    bus, branch = tables(case)[0][:, :13].copy(), tables(case)[1][:, :13].copy()
    bus[:, 10] = 1
    branch[:, 5] = rate
    unit = case.unit
    gen = np.zeros((case.n_unit, 21))
    columns = (case.positions(unit.bus_id), unit.p_mw, unit.q_mvar, unit.q_max_mvar, unit.q_min_mvar, unit.v_set_pu)
    columns += (unit.base_mva, unit.in_service, unit.p_max_mw, unit.p_min_mw)
    gen[:, :10] = np.stack(columns, 1)
    terms = unit.cost.shape[1]
    gencost = np.c_[unit.cost_model, np.zeros((case.n_unit, 2)), np.full(case.n_unit, terms), unit.cost]
    return dict(version="2", baseMVA=case.base_mva, bus=bus, branch=branch, gen=gen, gencost=gencost)


def record(case: Case) -> dict[str, np.ndarray]:
    from pypower.api import ppoption, runopf

    options = ppoption(VERBOSE=0, OUT_ALL=0, OPF_ALG=560, OPF_VIOLATION=TOLERANCE)
    options |= {f"PDIPM_{key}TOL": TOLERANCE for key in ("FEAS", "GRAD", "COMP", "COST")}
    p_load, q_load, rate = ac_states(case)
    found: dict[str, list[Any]] = dict(cost=[], lmp=[], lmp_reactive=[], binding=[])
    for p, q in zip(p_load, q_load, strict=True):
        given = network(case, rate)
        given["bus"][:, 2], given["bus"][:, 3] = p, q
        out = runopf(given, options)
        loading = np.hypot(out["branch"][:, [13, 15]], out["branch"][:, [14, 16]]).max(1)
        found["cost"].append(np.round(out["f"], 7) if out["success"] else np.nan)
        found["lmp"].append(np.round(out["bus"][:, 13], 7))
        found["lmp_reactive"].append(np.round(out["bus"][:, 14], 7))
        found["binding"].append(np.sum((rate > 0) & (loading > rate - 1e-4)))
    return {key: np.array(rows) for key, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed file")
    args = parser.parse_args()
    arrays = {}
    for name in DRAWS:
        case = load_case(name)
        arrays |= {f"{case.name}.{key}": x for key, x in record(case).items()}
        print(case.name, np.isfinite(arrays[f"{case.name}.cost"]).sum(), arrays[f"{case.name}.binding"])
    for line in compare_npz(DATA / "expected.npz", arrays) or ["unchanged"]:
        print(line)
    if args.write:
        DATA.mkdir(parents=True, exist_ok=True)
        write_npz(DATA / "expected.npz", arrays)
        values = dict(version=metadata.version("pypower"), seed=SEED, count=COUNT, tolerance=TOLERANCE)
        (DATA / "README.md").write_text(README.format(**values))


if __name__ == "__main__":
    main()
