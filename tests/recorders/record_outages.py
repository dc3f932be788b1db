"""Record pandapower's power flows of case118 after every outage of a branch or a unit, on 50 random states.

Runs where pandapower is installed (`pip install .[bench]`). Every outage is a network of its own, solved from scratch.
One voltage and one flow of each, drawn at random, are committed; how far this package is off in all of them is
printed and stands in the README beside them. Without --write it prints the differences to what is committed.

Usage: python tests/recorders/record_outages.py [--write] [--states 50]
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.base.npz import write_npz  # noqa: E402
from powerzoo_jax.cases import Case  # noqa: E402
from powerzoo_jax.cases.library import load_case  # noqa: E402
from powerzoo_jax.powerflow import OutageResult, OutageStates, Status, n_minus_1, prepare_outages  # noqa: E402
from tests.recorders.record_dc import tables  # noqa: E402
from tests.references.meshed import MeshedStates, base_state  # noqa: E402
from tools.builder import compare_npz  # noqa: E402

NAME, STATES, SEED, SPAN, WINDOW = "case118", 50, 20_240_615, (0.8, 1.2), 0.01
DATA = ROOT / "tests" / "recorded" / "outages118"
DTYPES = ("float32", "float64")


class Outage(NamedTuple):
    """A network of its own: the case without what is lost, and what that takes off the injections (N,) [pu]."""

    case: Case
    lost: np.ndarray


def outage_list(case: Case) -> list[Outage]:
    """Every branch in service, then every unit, in the order of `prepare_outages`."""
    found, unit = [], case.unit
    for k in np.flatnonzero(case.branch.in_service):
        on = case.branch.in_service & (np.arange(case.n_branch) != k)
        branch = dataclasses.replace(case.branch, in_service=on)
        found.append(Outage(dataclasses.replace(case, branch=branch), np.zeros(case.n_bus, complex)))
    for k in np.flatnonzero(unit.in_service):
        on = unit.in_service & (np.arange(len(unit.bus_id)) != k)
        lost = np.zeros(case.n_bus, complex)
        lost[case.positions(unit.bus_id[k : k + 1])] = (unit.p_mw[k] + 1j * unit.q_mvar[k]) / case.base_mva
        found.append(Outage(dataclasses.replace(case, unit=dataclasses.replace(unit, in_service=on)), lost))
    return found


def draw(case: Case, count: int) -> MeshedStates:
    """Loads and set-points off the base state, in numbers that float32 holds."""
    rng = np.random.default_rng(SEED)
    nominal = base_state(case)
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    factor = rng.uniform(*SPAN, (count, case.n_bus))
    v_set = nominal.v_set + rng.uniform(-WINDOW, WINDOW, factor.shape)
    s = nominal.s - (factor - 1) * load
    return MeshedStates(s.astype(np.complex64).astype(complex), v_set.astype(np.float32).astype(float))


def places(case: Case, outages: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Bus and branch (O, B) whose voltage and flow are committed."""
    rng = np.random.default_rng(SEED + 1)
    return tuple(rng.integers(size, size=(outages, count)) for size in (case.n_bus, case.n_branch))  # type: ignore[return-value]


def solve(outages: Any, *given: Any) -> tuple[OutageResult, OutageStates]:
    found: tuple[OutageResult, OutageStates] = n_minus_1(outages, *given, states=True)
    return found


def package(case: Case, states: MeshedStates, dtype: str) -> tuple[Any, Any]:
    """OutageResult and OutageStates of (B, O, ...) host arrays; every branch is rated at 1 pu."""
    with jax.enable_x64(dtype == "float64"):
        outages = prepare_outages(case, rate_pu=np.ones(case.n_branch), dtype=dtype)
        given = (jnp.asarray(x, dtype) for x in (states.s.real, states.s.imag, states.v_set))
        found = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0)))(outages, *given)
        return jax.tree.map(np.asarray, found)  # type: ignore[no-any-return]


def brute_force(case: Case, states: MeshedStates, skip: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """pandapower's v (O, B, N), s_from and s_to (O, B, L) [pu]; NaN for outages to skip and states without solution."""
    from pandapower.pypower.makeYbus import makeYbus

    from tests.recorders.record_meshed import DEVICES, _solve

    bus, branch = tables(case)
    outages, starts = outage_list(case), None
    v = np.full((len(outages), len(states.s), case.n_bus), np.nan, complex)
    s_from, s_to = (np.full((*v.shape[:2], case.n_branch), np.nan, complex) for _ in range(2))
    f, t = (branch[:, k].astype(int) for k in (0, 1))
    nothing: dict[str, Any] = {name: np.zeros((0, 40)) for name in DEVICES}
    for k, outage in enumerate([Outage(case, np.zeros(case.n_bus, complex)), *outages]):
        if k and skip[k - 1]:
            continue
        rows = branch.copy()
        rows[:, 10] = outage.case.branch.in_service
        ybus, y_from, y_to = makeYbus(case.base_mva, bus, rows)
        held = (case.bus.kind != 1) & np.isin(case.bus.id, case.unit.bus_id[outage.case.unit.in_service])
        net = dict(baseMVA=case.base_mva, bus=bus, branch=rows, gen=np.zeros((0, 40)), internal={}, held=held)
        net |= dict(kind=case.bus.kind) | nothing
        flat = np.exp(1j * np.deg2rad(case.bus.angle_init_deg[case.slack_bus])) * np.ones(case.n_bus)
        found = np.full((len(states.s), case.n_bus), np.nan, complex)
        for b, (s, v_set) in enumerate(zip(*states, strict=True)):
            try:
                found[b] = _solve(net, ybus, s - outage.lost, v_set, [flat if starts is None else starts[b]])
            except RuntimeError:
                continue
        if k == 0:
            starts = found
            continue
        v[k - 1] = found
        s_from[k - 1] = found[:, f] * np.conj(y_from @ found.T).T
        s_to[k - 1] = found[:, t] * np.conj(y_to @ found.T).T
    return v, s_from, s_to


README = """# {name} after every outage: pandapower's power flows

{outages} outages of `{name}` (branches, then units) on {states} states, loads U({low}, {high}) and set-points within
{window} pu of those of the case. Each outage is a network of its own, solved by the `makeYbus` and `newtonpf` that
pandapower {version} (BSD-3-Clause) carries from PYPOWER. A unit that is the last one of its bus leaves it a PQ bus; the
slack makes up for its power. `v` and `s_from` (outages, states) [pu] are those of one bus and one branch of each, as
`record_outages.places` draws them, NaN where buses are cut off, the slack has no unit, or no solution exists.

Largest difference over all buses, branches (both ends), outages and states:

| dtype | voltage pu | flow pu |
|---|---|---|
{table}

Recorded by `tests/recorders/record_outages.py --write`; without the flag it prints what would change.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    parser.add_argument("--states", type=int, default=STATES)
    args = parser.parse_args()
    case = load_case(NAME)
    states = draw(case, args.states)
    rows, known = [], None
    for dtype in DTYPES:
        result, after = package(case, states, dtype)
        skip = (result.status == Status.ISLANDED).all(0)
        known = brute_force(case, states, skip) if known is None else known
        v, s_from, s_to = known
        solved = ~np.isnan(v).any(-1)
        assert (solved == (result.status == Status.CONVERGED).T).all()
        e_v = np.abs((after.v_re + 1j * after.v_im).swapaxes(0, 1) - v)[solved].max()
        ends = ((after.p_from, after.q_from, s_from), (after.p_to, after.q_to, s_to))
        e_s = max(np.abs((p + 1j * q).swapaxes(0, 1) - s)[solved].max() for p, q, s in ends)
        rows.append(f"| {dtype} | {e_v:.1e} | {e_s:.1e} |")
        print(
            f"{rows[-1]} {solved.sum()} of {solved.size} solved, {(~solved).sum() - skip.sum() * len(states.s)} without"
        )
    bus, branch = places(case, *v.shape[:2])
    arrays = {"v": np.take_along_axis(v, bus[..., None], 2)[..., 0]}
    arrays["s_from"] = np.take_along_axis(s_from, branch[..., None], 2)[..., 0]
    arrays = {name: x.astype(np.complex64) for name, x in arrays.items()}
    if (DATA / "expected.npz").exists():
        print("\n".join(compare_npz(DATA / "expected.npz", arrays) or ["unchanged"]))
    if args.write:
        DATA.mkdir(exist_ok=True)
        write_npz(DATA / "expected.npz", arrays)
        values = {"name": NAME, "outages": v.shape[0], "states": v.shape[1], "low": SPAN[0], "high": SPAN[1]}
        values |= {"window": WINDOW, "version": metadata.version("pandapower"), "table": "\n".join(rows)}
        (DATA / "README.md").write_text(README.format(**values))


if __name__ == "__main__":
    main()
