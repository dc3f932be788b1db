"""Every public solver is reached from a task, an environment, an oracle, a command or a view, or is named here.

Read from the source with `ast`: a top-level definition reaches what the names in it are imported as, step by step
through packages' `__init__` and other definitions. Nothing is imported to find out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOLVERS = ("powerzoo_jax.powerflow", "powerzoo_jax.opf")
DOORS = (*(f"powerzoo_jax/{layer}" for layer in ("tasks", "envs", "oracle", "families", "cli")), "compat")

# Public functions without a door, by what will use them or who calls them.
KEPT = {
    "topology operation: switching, N-1 before and after a switch, networks as data": {
        *("prepare_switching", "solve_switched", "is_radial"),
        *("prepare_outages", "n_minus_1", "screen_outages", "worst_outages"),
        *("prepare_dc", "solve_dc", "pad_dc", "scheduled_injection", "slack_share"),
        *("prepare_dc_outages", "outage_flows", "unit_outage_flows"),
        *("worst_outage_loading", "worst_unit_outage_loading"),
        *("prepare_secure_dc_opf", "secure_dc_opf", "secure_programme", "dc_programme"),
        *("with_branches", "stack_meshed", "pad_injections"),
    },
    "quadratic programmes of one's own, and the proof of their gap": {"solve_qp", "dual_bound"},
    "volt-var control": {"prepare_regulators", "solve_regulated", "split_reactive"},
    "what a user asks of a result in hand, no solver: audits, causes and parts of prices": {
        *("check_feeder", "check_meshed", "diagnose", "explain", "infeasibility", "binding_rows", "split_prices"),
    },
}

Definition = tuple[str, str]  # module, name of a top-level definition


@cache
def modules() -> dict[str, Path]:
    """Module -> file, of the native package and the views."""
    found = {}
    for base, top in ((ROOT, "powerzoo_jax"), (ROOT / "compat", "powerzoo"), (ROOT / "compat", "powerzoo_compat")):
        for path in (base / top).rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


@cache
def imports(module: str) -> dict[str, str]:
    """Local name -> dotted origin of every import of a module, those inside functions too."""
    table = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom):
            table |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            table |= {alias.asname: alias.name for alias in node.names if alias.asname}
            table |= {top: top for alias in node.names if not alias.asname for top in [alias.name.split(".")[0]]}
    return table


@cache
def definitions(module: str) -> dict[str, ast.stmt]:
    """Top-level functions, classes and assigned names of a module."""
    found: dict[str, ast.stmt] = {}
    for node in tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {leaf.id: node for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
    return found


def origin(dotted: str) -> Definition | str | None:
    """Definition behind a dotted path, through `__init__` and aliases; a module's name; None for other packages."""
    if dotted in modules():
        return dotted
    module, _, name = dotted.rpartition(".")
    if module not in modules():
        return None
    if name in definitions(module):
        return module, name
    return origin(imports(module)[name]) if name in imports(module) else None


def mentions(module: str, node: ast.AST) -> Iterator[Definition]:
    """Definitions that a piece of source names, directly or as an attribute of a module."""
    for leaf in ast.walk(node):
        names: list[str] = []
        while isinstance(leaf, ast.Attribute):
            names, leaf = [leaf.attr, *names], leaf.value
        if not isinstance(leaf, ast.Name):
            continue
        if leaf.id in imports(module):
            found = origin(imports(module)[leaf.id])
        else:
            found = (module, leaf.id) if leaf.id in definitions(module) else None
        for name in names:
            found = origin(f"{found}.{name}") if isinstance(found, str) else found
        if isinstance(found, tuple):
            yield found


def reached(doors: tuple[str, ...] = DOORS) -> set[Definition]:
    """Definitions that the modules below `doors` name, and those that these name in turn."""
    roots = [m for m, path in modules().items() if path.is_relative_to(ROOT) and under(path, doors)]
    todo = [definition for module in roots for definition in mentions(module, tree(module))]
    seen: set[Definition] = set()
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            todo.extend(mentions(here[0], definitions(here[0])[here[1]]))
    return seen


def under(path: Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(ROOT / folder) for folder in folders)


def public_functions() -> dict[Definition, str]:
    """Functions that the `__init__` of the solver packages hand out, by definition."""
    found = {origin(target): name for package in SOLVERS for name, target in imports(package).items()}
    return {
        where: name
        for where, name in found.items()
        if isinstance(where, tuple) and isinstance(definitions(where[0])[where[1]], ast.FunctionDef)
    }


def test_every_solver_is_reached_or_kept_by_name():
    seen = reached()
    without = {name for where, name in public_functions().items() if where not in seen}
    assert without == set().union(*KEPT.values())


def test_the_reading_follows_names_through_packages_and_definitions():
    # the environment of a feeder names `solve_feeder_active` by way of `powerflow.__init__`, which names `chord_state`
    seen = reached(("powerzoo_jax/families/feeder",))
    assert ("powerzoo_jax.powerflow.feeder.solve", "solve_feeder_active") in seen
    assert ("powerzoo_jax.powerflow.chord", "chord_state") in seen
    assert ("powerzoo_jax.powerflow.meshed.solve", "solve_meshed") not in seen
