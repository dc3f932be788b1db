"""Measure the DC-OPF on 1,000 load states of four cases against HiGHS, and record what HiGHS says.

HiGHS solves bus angles instead of distribution factors. Costs of three cases are quadratic: there it minimises the cost
linearised at our dispatch x, and by convexity no dispatch costs less than cost(x) less what it gains. Its multipliers
are those of the quadratic optimum where they are unique.

Without --write the table is printed; with it the rows, bounds and prices are written, and the table into the README.

Usage: python tests/recorders/record_opf_dc.py [--write]
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from powerzoo_jax.base.npz import write_npz  # noqa: E402
from powerzoo_jax.cases import Case  # noqa: E402
from powerzoo_jax.cases.library import load_case  # noqa: E402
from powerzoo_jax.opf import DcOpfResult, OpfStatus, binding_rows, dc_opf, prepare_dc_opf  # noqa: E402
from tests.references.opf_dc import Cleared, clear_with_highs  # noqa: E402

COUNT, SEED, VOLL = 1000, 8, 10_000.0
PRICED = 50  # states whose prices are recorded
SAMPLE = 300  # states that the branches of the programme are sought with
DATA = ROOT / "tests" / "recorded" / "opf_dc"
README = """# DC optimal power flows of four cases

States of `record_opf_dc.dc_states`: {count} a case, every load on its own (seed {seed}), ratings tightened so that
some bind, and for pz_case5 drawn too, with loads beyond the capacity. Solved by SciPy's HiGHS on bus angles.

- `<case>.rows` (R,): branches whose limits enter our programme; all branches are checked after it
- `<case>.bound` (B,): least cost that HiGHS allows [USD/h]
- `<case>.lmp` ({priced}, N), `<case>.unique` (B,): its prices [USD/MWh] of the first states, and where they are unique

| case | dtype | optimal | lines bind in | unserved in | cost error | violation pu | unique prices | price error |
|---|---|---|---|---|---|---|---|---|
{table}

Largest errors over the optimal lanes: cost relative to the bound, violation of balance and all ratings, price relative
to the largest of the state. Recorded by `tests/recorders/record_opf_dc.py --write`.
"""


class Draw(NamedTuple):
    """Ranges of the load of all buses together and of each on its own, and of the ratings, times nominal."""

    load: tuple[float, float]
    bus: tuple[float, float]
    rating: tuple[float, float]


DRAWS = {
    "pz_case5": Draw((0.5, 1.7), (0.8, 1.2), (0.6, 1.2)),
    "pz_case14": Draw((0.7, 1.3), (0.8, 1.2), (0.5, 0.5)),
    "case30": Draw((0.7, 1.3), (0.8, 1.2), (0.6, 0.6)),
    "pz_case118": Draw((0.7, 1.3), (0.8, 1.2), (0.7, 0.7)),
}


class States(NamedTuple):
    """Loads (B, N) and ratings (B, L) [MW] of one case."""

    case: Case
    load: np.ndarray
    rate: np.ndarray


@cache
def dc_states(name: str) -> States:
    case, draw, rng = load_case(name), DRAWS[name], np.random.default_rng(SEED)
    load = rng.uniform(*draw.load, (COUNT, 1)) * rng.uniform(*draw.bus, (COUNT, case.n_bus)) * case.p_load_mw
    return States(case, load, rng.uniform(*draw.rating, (COUNT, 1)) * case.branch.rate_a_mva)


@cache
def program(solver: str = "auto") -> Any:
    return jax.jit(jax.vmap(lambda f, load, rate: dc_opf(f, load, rate_mva=rate, solver=solver), in_axes=(None, 0, 0)))


def solve_states(name: str, rows: np.ndarray, dtype: str, solver: str = "auto") -> DcOpfResult:
    """All states of a case in one batch, as NumPy arrays."""
    case, load, rate = dc_states(name)
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_dc_opf(case, rows=rows, dtype=dtype)
        out = program(solver)(factors, jnp.asarray(load, dtype), jnp.asarray(rate, dtype))
        return jax.tree.map(np.asarray, out)


def ask_highs(name: str, k: int, p_mw: np.ndarray, shed_mw: np.ndarray, spill_mw: np.ndarray) -> tuple[float, Cleared]:
    """Least cost [USD/h] of state k, proven from the dispatch given, and HiGHS' solution of the linearised problem."""
    case, load, rate = dc_states(name)
    cost = np.array([np.polyval(c[:n], p) for c, n, p in zip(case.unit.cost, case.unit.cost_terms, p_mw, strict=True)])
    slope = np.array(
        [np.polyval(np.polyder(c[:n]), p) for c, n, p in zip(case.unit.cost, case.unit.cost_terms, p_mw, strict=True)]
    )
    found = clear_with_highs(case, load[k], slope, rate=rate[k], voll=VOLL)
    mine = slope @ p_mw + VOLL * shed_mw.sum() + 500.0 * spill_mw.sum()
    return cost.sum() + VOLL * shed_mw.sum() + 500.0 * spill_mw.sum() - (mine - found.cost), found


def has_unique_prices(name: str, k: int, out: DcOpfResult) -> bool:
    """At least as many variables strictly between their bounds as there are equations that hold."""
    case, load, rate = dc_states(name)
    room = 1e-4
    low, high = np.r_[case.unit.p_min_mw, 0 * load[k]], np.r_[case.unit.p_max_mw, load[k]]
    x = np.r_[out.unit_power_mw[k], out.shed_mw[k]]
    between = np.sum((x > low + room) & (x < high - room))
    at_limit = (rate[k] > 0) & (np.abs(out.line_flow_mw[k]) > rate[k] - room)
    clear = out.line_price[k][at_limit] > room  # a line that only touches its limit leaves its price open
    return bool(clear.all() and between >= 1 + at_limit.sum())


def record(name: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays of one case, and its lines of the table."""
    case, load, rate = dc_states(name)
    rows = np.flatnonzero(case.branch.rate_a_mva > 0)
    if case.n_bus > 30:
        rows = binding_rows(case, load[:SAMPLE], rate_mva=rate[0] * 0.95)
    exact = solve_states(name, rows, "float64")
    told = [ask_highs(name, k, exact.unit_power_mw[k], exact.shed_mw[k], exact.spill_mw[k]) for k in range(COUNT)]
    bound = np.array([item[0] for item in told])
    unique = np.array([has_unique_prices(name, k, exact) for k in range(COUNT)])
    lmp = np.array([item[1].lmp for item in told])
    lines = [_line(name, "float64", exact, bound, lmp, unique)]
    lines.append(_line(name, "float32", solve_states(name, rows, "float32"), bound, lmp, unique))
    arrays = dict(rows=rows, bound=np.round(bound, 6), lmp=np.round(lmp[:PRICED], 6), unique=unique)
    return {f"{name}.{key}": value for key, value in arrays.items()}, lines


def _line(name: str, dtype: str, out: DcOpfResult, bound: np.ndarray, lmp: np.ndarray, unique: np.ndarray) -> str:
    good = out.status == OpfStatus.OPTIMAL
    error = np.abs(out.objective / bound - 1)[good].max()
    base = dc_states(name).case.base_mva
    violation = np.maximum(out.overload_mw / base, out.primal_residual)[good].max()
    off = np.abs(out.lmp - lmp).max(1) / np.abs(lmp).max(1)
    at = good & unique
    binds, short = (out.line_price.max(1) > 1e-3).sum(), (out.shed_mw.sum(1) > 1e-3).sum()
    cells = (name, dtype, f"{good.sum()}", f"{binds}", f"{short}", f"{error:.1e}", f"{violation:.1e}")
    return "| " + " | ".join((*cells, f"{at.sum()}", f"{off[at].max():.1e}")) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    args = parser.parse_args()
    arrays, table = {}, []
    for name in DRAWS:
        found, lines = record(name)
        arrays |= found
        table += lines
        print("\n".join(lines), flush=True)
    if args.write:
        write_npz(DATA / "expected.npz", arrays)
        text = README.format(count=COUNT, seed=SEED, priced=PRICED, table="\n".join(table))
        (DATA / "README.md").write_text(text)


if __name__ == "__main__":
    main()
