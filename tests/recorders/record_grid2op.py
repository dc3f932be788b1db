"""Record the world of five substations that the tests write, with Grid2Op on LightSimBackend.

Runs where grid2op is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the files.

Usage: python tests/recorders/record_grid2op.py [--write]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.base.npz import write_npz  # noqa: E402
from powerzoo_jax.families.operation.grid2op.example import EPISODES, ROWS, write_world  # noqa: E402
from tools.builder import compare_npz  # noqa: E402
from tools.record_grid2op import record  # noqa: E402

DATA = ROOT / "tests" / "recorded" / "grid2op"
SPLIT = {"set_bus": {"substations_id": [(2, [1, 2, 2, 1, 1, 1])]}}
ALONE = {"set_bus": {"loads_id": [(3, 2)]}}
# Grid2Op's dicts; what is illegal by a cooldown follows the action that starts it
SCRIPT: tuple[dict[str, Any], ...] = (
    {},
    {"set_line_status": [(4, -1)]},
    {"set_line_status": [(4, 1)]},  # cooldown
    {"set_line_status": [(0, -1), (1, -1)]},  # two lines
    {"set_line_status": [(4, 1)], "change_line_status": [4]},  # ambiguous
    {"set_bus": {"lines_or_id": [(4, 2)]}},  # closes the line, its origin alone on a busbar
    {"set_bus": {"loads_id": [(0, 1)]}},  # where it is, and yet a cooldown
    {"set_bus": {"loads_id": [(0, 1)]}},
    {"set_storage": [(0, 8.0)]},
    {"set_bus": {"lines_or_id": [(4, 1)]}, "set_storage": [(0, 8.0)]},
    {"set_storage": [(0, 8.0)]},
    {"set_storage": [(0, 8.0)]},  # more than it holds
    {"curtail": [(2, 0.3)]},
    {"redispatch": [(1, 3.0)]},
    SPLIT,
    {"redispatch": [(1, -2.0)], "set_storage": [(0, -8.0)]},
    {"change_bus": {"substations_id": [(2, [False, True, True, False, True, False])]}},  # cooldown
    {"curtail": [(2, 0.6)]},
    {"change_bus": {"substations_id": [(2, [False, True, True, False, True, True])]}},  # all but a load and a storage
    {"set_storage": [(0, -4.0)]},
    {"set_storage": [(0, 9.0)]},  # ambiguous, as the next two
    {"curtail": [(0, 0.5)]},
    {"redispatch": [(2, 1.0)]},
    {"redispatch": [(1, 5.0)]},
    {"curtail": [(2, 1.0)], "redispatch": [(0, -3.0)]},
    {"change_line_status": [1]},
    {"set_bus": {"storages_id": [(0, -1)]}},
    {"set_storage": [(0, 2.0)]},  # a storage that is out
    ALONE,
)
BY_AREA: tuple[dict[str, Any], ...] = (
    {"set_line_status": [(0, -1), (4, -1)]},  # one line in each area
    {"set_line_status": [(1, -1), (2, -1)]},  # two in the first, by their origins
    {"set_bus": {"loads_id": [(0, 1), (2, 1)]}},  # one substation in each
    *[{}] * (ROWS - 4),
)
RUNS: dict[str, dict[str, Any]] = {
    "script": {"script": SCRIPT, "simulations": 2},
    "nothing": {"mode": "nothing"},
    "random": {"mode": "random", "episodes": 8, "chance": 0.5, "simulations": 3},
    "dispatch": {"mode": "dispatch", "episodes": 6, "chance": 0.3, "simulations": 2},
    "attack": {"mode": "attack", "episodes": 4},
    "sampled": {"mode": "sampled", "episodes": 16},
    "drawn": {"script": BY_AREA, "episodes": 8, "simulations": 1},
}
SEED = 13
README = """# A made-up world of five substations, played by Grid2Op

Recordings of `tools.record_grid2op` of the example world, `powerzoo_jax.families.operation.write_world`
({versions}, seed {seed}): a script of every kind of action, doing nothing, random actions on lines and busbars, random
dispatch, attacks, Grid2Op's own sampling; and, in steps of an hour, drawn maintenance with rules by area. The arrays
are described at `tools.record_grid2op.record`. Recorded by `tests/recorders/record_grid2op.py --write`; without the
flag it prints what would change.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory() as folder:
        for name, options in RUNS.items():
            drawn = name == "drawn"
            world = write_world(Path(folder) / ("five_drawn" if drawn else "five"), drawn=drawn)
            arrays = record(world, **{"episodes": len(EPISODES), "steps": ROWS - 1, "seed": SEED, **options})
            path = DATA / f"{name}.npz"
            print(name, *(compare_npz(path, arrays) or ["unchanged"]), sep="\n  ")
            if write:
                write_npz(path, arrays)
    if write:
        (DATA / "README.md").write_text(README.format(versions=arrays["versions"], seed=SEED), encoding="utf-8")


if __name__ == "__main__":
    main()
