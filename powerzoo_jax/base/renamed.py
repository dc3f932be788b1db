"""Former import paths and names, kept for one release: each still works and warns with its new place.

A module that moved is found by a finder at the end of `sys.meta_path`, which is asked only where Python found nothing;
a name that changed is looked up by the `__getattr__` of its package.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# former module -> module
MODULES = {
    "powerzoo_jax.base.pins": "tools.pins",
    "powerzoo_jax.cases.build_feeders": "tools.cases.build_feeders",
    "powerzoo_jax.cases.build_tables": "tools.cases.build_tables",
    "powerzoo_jax.cases.readers.opendss_commands": "powerzoo_jax.cases.readers.opendss.commands",
    "powerzoo_jax.cases.readers.opendss_file": "powerzoo_jax.cases.readers.opendss.script",
    "powerzoo_jax.cases.readers.opendss_lines": "powerzoo_jax.cases.readers.opendss.lines",
    "powerzoo_jax.cases.readers.opendss_rules": "powerzoo_jax.cases.readers.opendss.rules",
    "powerzoo_jax.cases.readers.opendss_terminal": "powerzoo_jax.cases.readers.opendss.terminal",
    "powerzoo_jax.cases.readers.opendss_values": "powerzoo_jax.cases.readers.opendss.values",
    "powerzoo_jax.data.build_bundle": "tools.data.build_bundle",
    "powerzoo_jax.data.builders": "tools.data",
    "powerzoo_jax.data.report": "tools.data.report",
    "powerzoo_jax.data.synthetic_fit": "tools.data.synthetic_fit",
    "powerzoo_jax.envs.transgrid": "powerzoo_jax.envs.transmission.operator",
    "powerzoo_jax.oracle.bounds": "powerzoo_jax.oracle.storage.plan",
    "powerzoo_jax.oracle.calibrate": "tools.tasks.margins",
    "powerzoo_jax.oracle.report": "tools.tasks.report",
    "powerzoo_jax.rl.apg": "powerzoo_jax.rl.algorithms.apg",
    "powerzoo_jax.rl.checkpoint": "powerzoo_jax.rl.training.checkpoint",
    "powerzoo_jax.rl.config": "powerzoo_jax.rl.training.config",
    "powerzoo_jax.rl.lagrangian": "powerzoo_jax.rl.algorithms.lagrangian",
    "powerzoo_jax.rl.learners": "powerzoo_jax.rl.training.learners",
    "powerzoo_jax.rl.parallel": "powerzoo_jax.rl.training.parallel",
    "powerzoo_jax.rl.ppo": "powerzoo_jax.rl.algorithms.ppo",
    "powerzoo_jax.rl.sac": "powerzoo_jax.rl.algorithms.sac",
    "powerzoo_jax.tasks.build": "powerzoo_jax.tasks.feeder.storage",
    "powerzoo_jax.tasks.build_storage_market": "powerzoo_jax.tasks.market.storage",
    "powerzoo_jax.tasks.build_transgrid": "powerzoo_jax.tasks.transmission.operator",
    "powerzoo_jax.tasks.feeder_settings": "powerzoo_jax.tasks.feeder.settings",
}


class Renamed(MetaPathFinder, Loader):
    """Finder and loader of former modules: the module that is there now, under both names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Spec of a former module, None for any other name."""
        return ModuleSpec(fullname, self) if fullname in MODULES else None

    def create_module(self, spec: ModuleSpec) -> None:
        """No module of its own: `exec_module` puts the present one in its place."""

    def exec_module(self, module: ModuleType) -> None:
        """Import the present module, warn, and register it under the former name too.

        Raises ModuleNotFoundError for developers' tools where the sources of the project are not at hand.
        """
        old = module.__name__
        new = MODULES[old]
        try:
            present = importlib.import_module(new)
        except ModuleNotFoundError as err:
            if new.startswith("tools") and (err.name or "").startswith("tools"):
                message = f"{old} is now {new}, a developers' tool: run it from a checkout of the project."
                raise ModuleNotFoundError(message, name=old) from err
            raise
        warnings.warn(f"{old} is now {new}; the former path goes with the next release.", DeprecationWarning, 4)
        sys.modules[old] = present


def install() -> None:
    """Let former modules be found; asked once, on import of the package."""
    if not any(isinstance(finder, Renamed) for finder in sys.meta_path):
        sys.meta_path.append(Renamed())


def former(package: str, names: dict[str, str], scope: dict[str, Any], name: str) -> Any:
    """Object behind a former public name of a package: the body of the package's `__getattr__`.

    package: dotted name; names: former name -> present name; scope: the package's globals; name: what was asked for
    Raises AttributeError, worded as Python's, for every other name.
    """
    if name not in names:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    present = names[name]
    warnings.warn(
        f"{package}.{name} is now {package}.{present}; the former name goes with the next release.",
        DeprecationWarning,
        3,
    )
    return scope[present]
