"""Walks through the source: calls, files and moves between files of one traced step, as a reader follows them.

`python tools/walks.py` traces one `step` of a task of each family with `jax.make_jaxpr`, and the way of a MATPOWER
file to its power flow, and counts the Python calls into `powerzoo_jax` (without `base/`, the vocabulary of every
layer). A move is two successive calls in different files. Nothing is compiled; the counts do not depend on the machine.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402  after the path, so that this checkout is read
import jax.numpy as jnp  # noqa: E402

import powerzoo_jax as pz  # noqa: E402

PACKAGE = Path(pz.__file__).parent
TASKS = {
    "feeder step": "battery_arbitrage",
    "feeder fleet step": "marl_ders_benchmark",
    "microgrid step": "dc_microgrid",
    "bid to price": "gencos_bidding",
    "units by score step": "marl_opf",
    "operator step": "comparison_tso_centralized",
    "joint step": "joint_trans_dist",
}


class Walk(NamedTuple):
    """calls: calls into the package; files: the files entered, in order of first entry; moves: changes of file."""

    calls: int
    files: tuple[str, ...]
    moves: int


def follow(run: Callable[[], Any]) -> Walk:
    """Walk of one call: every Python function of the package that it enters, `base/` left out."""
    entered: list[str] = []

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        file = Path(frame.f_code.co_filename)
        if not file.is_relative_to(PACKAGE) or frame.f_code.co_name.startswith("<"):
            return  # comprehensions and lambdas belong to the line that a reader is on
        name = file.relative_to(PACKAGE).as_posix()
        if not name.startswith("base/"):
            entered.append(name)

    sys.setprofile(enter)
    try:
        run()
    finally:
        sys.setprofile(None)
    moves = sum(here != there for here, there in itertools.pairwise(entered))
    return Walk(len(entered), tuple(dict.fromkeys(entered)), moves)


def step_walk(task: str) -> Walk:
    """Walk of one traced step of a task; the state comes from `init`, which is not counted."""
    sim = pz.make(task)
    state, obs = jax.eval_shape(sim.init, jax.random.key(0))
    dims = sim.env.dims
    action = jax.ShapeDtypeStruct((dims.agent, dims.act), obs.dtype)
    return follow(lambda: jax.make_jaxpr(lambda s, a: sim.step(s, a))(state, action))


def file_walk() -> Walk:
    """Walk of a MATPOWER file to its AC power flow."""
    from powerzoo_jax import cases, powerflow

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case14.m"
        cases.to_matpower(cases.load_case("case14"), path)

        def solve() -> Any:
            case = cases.read_matpower(path)
            factors = powerflow.prepare_meshed(case)
            injection = jnp.zeros(factors.n_bus)
            return jax.make_jaxpr(lambda p, q: powerflow.solve_meshed(factors, p, q))(injection, injection)

        return follow(solve)


def main() -> None:
    """Print a row per walk; with --files also the files that it enters."""
    parser = argparse.ArgumentParser(prog="python tools/walks.py", description=main.__doc__)
    parser.add_argument("--files", action="store_true", help="list the files of each walk")
    options = parser.parse_args()
    print("walk\tcalls\tfiles\tmoves")
    for name, task in TASKS.items():
        show(name, step_walk(task), options.files)
    show("MATPOWER file to solution", file_walk(), options.files)


def show(name: str, walk: Walk, files: bool) -> None:
    print(f"{name}\t{walk.calls}\t{len(walk.files)}\t{walk.moves}")
    if files:
        print("".join(f"  {file}\n" for file in walk.files), end="")


if __name__ == "__main__":
    main()
