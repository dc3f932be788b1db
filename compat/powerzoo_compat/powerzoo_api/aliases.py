"""Modules of PowerZooPy that its README, pages and examples import, out of one table: served here, or refused.

Only names stand here. A module that `powerzoo` has of its own comes first.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

CLASSES = "powerzoo_compat.powerzoo_api.tasks.classes"
# module there -> module here that has its names
SERVED = {
    **dict.fromkeys((f"powerzoo.benchmarks.{x}" for x in ("offline", "policies", "viz")), "powerzoo.benchmarks"),
    **dict.fromkeys(
        (f"powerzoo.case.distribution{x}" for x in ("", ".Case33bw", ".Case118zh", ".Case123", ".Case141")),
        "powerzoo.case",
    ),
    **dict.fromkeys(
        (f"powerzoo.case.transmission{x}" for x in ("", ".Case5", ".Case14", ".Case118", ".Case300")), "powerzoo.case"
    ),
    "powerzoo.data.data_loader": "powerzoo.data",
    **dict.fromkeys((f"powerzoo.envs.grid.{x}" for x in ("trans", "dist", "dist_3phase")), "powerzoo.envs.grid"),
    "powerzoo.tasks.atomic": "powerzoo.tasks",
    **dict.fromkeys(
        (
            "powerzoo.tasks.simple",
            "powerzoo.tasks.simple.task1_marl_opf",
            "powerzoo.tasks.simple.task2_marl_der_arbitrage",
            "powerzoo.tasks.simple.task3_marl_ev",
            "powerzoo.tasks.middle",
            "powerzoo.tasks.middle.comparison_tso",
        ),
        CLASSES,
    ),
    "powerzoo.tasks.rewards.base": "powerzoo.tasks.rewards",
    **dict.fromkeys((f"powerzoo.wrappers.{x}" for x in ("flatten", "safe_rl_wrapper")), "powerzoo.wrappers"),
}
SOLVER = "{module} is a solver of PowerZooPy, which takes and returns its tables. Use {instead}, see docs/{page}.md."
# module there -> what is used in its place, and the page that tells of it
REFUSED = {
    "powerzoo.envs.grid.cal_pf_dist": ("powerzoo_jax.powerflow.solve_feeder", "powerflow"),
    "powerzoo.envs.grid.cal_pf_dist_3phase": ("powerzoo_jax.powerflow.solve_threephase", "powerflow"),
    "powerzoo.envs.grid.cal_pf_trans": ("powerzoo_jax.powerflow.solve_meshed", "powerflow"),
    "powerzoo.envs.grid.cal_dcopf_trans": ("powerzoo_jax.opf.economic_dispatch", "opf"),
}


class AliasFinder(MetaPathFinder, Loader):
    """Import of the modules in SERVED; ImportError with a sentence for those in REFUSED."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Spec of a served module, None for one that the table does not know."""
        if fullname in REFUSED:
            instead, page = REFUSED[fullname]
            raise ImportError(SOLVER.format(module=fullname, instead=instead, page=page), name=fullname)
        if fullname not in SERVED:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names of the one that serves it, on demand."""
        source, name = SERVED[module.__name__], module.__name__

        def lookup(wanted: str) -> Any:
            found = importlib.import_module(source)
            if wanted.startswith("_") or not hasattr(found, wanted):
                raise AttributeError(f"module {name!r} has no attribute {wanted!r}; its names are those of {source}.")
            return getattr(found, wanted)

        module.__doc__ = f"Names of {source}."
        module.__getattr__ = lookup  # type: ignore[method-assign]


def install() -> None:
    """Let the aliases be imported; a second call changes nothing."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(AliasFinder())  # last: what exists comes first
