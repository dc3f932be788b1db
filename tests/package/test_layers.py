"""The arrows between layers, read from the source with `ast`: nothing is imported to find out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "powerzoo_jax"
COMPAT = ROOT / "compat"

# A layer may import itself and the layers named here. Siblings (cases and data) do not know each other.
CORE = ("base", "cases", "data", "powerflow", "opf", "devices", "envs", "tasks", "oracle", "families", "rl")
MAY_IMPORT = {layer: set(CORE[: i + 1]) for i, layer in enumerate(CORE)}
MAY_IMPORT["data"] -= {"cases"}
MAY_IMPORT["study"] = {"base", "cases", "powerflow", "opf", "study"}
MAY_IMPORT["plot"] = {*CORE, "plot"}
MAY_IMPORT["cli"] = {*CORE, "study", "plot", "cli", "__version__"}

# The drop-in, from what all of it shares to the import names of the other project; `views` are the dialects.
COMPAT_CORE = ("host", "envs", "wrappers", "grids", "tasks", "benchmarks", "rl", "views", "names")
# Names that two of the imitated libraries have in common: PowerZoo's base class of environments, and HERON's.
SHARED_NAMES = {"BaseEnv"}

EXEMPT = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}
MOST_LINES = 600  # of a file
DROP_IN = {"compat", "powerzoo", "powerzoo_compat"}
HEAVY = {"gymnasium", "gymnax", "pandas", "matplotlib", "torch"}

# float32 is a storage format in data/; elsewhere the width follows the inputs, and these two choose it.
WIDTH_DOORS = {PACKAGE / "base" / "numerics.py", PACKAGE / "cases" / "grid.py"}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import, `from x import y` as x and as x.y."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            module = node.module or ""
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def at_module_level(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The imports that run when the module is imported: everything outside function bodies."""
    inside = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, inside):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node)
        todo.extend(ast.iter_child_nodes(node))


def for_types(tree: ast.Module) -> set[int]:
    """Lines of imports that run for a type checker alone: a door names there what it finds on demand."""
    guards = [n for n in ast.walk(tree) if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"]
    return {line for guard in guards for line, _ in imported(guard)}


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def backward_arrows(source: str, layer: str) -> list[str]:
    """Imports of a module of `layer` that point where they must not."""
    if layer not in MAY_IMPORT:
        return [f"layer {layer!r} is not one of {', '.join(MAY_IMPORT)}"]
    allowed, found, tree = MAY_IMPORT[layer], [], ast.parse(source)
    unseen = for_types(tree)
    for line, module in imported(tree):
        parts = module.split(".")
        if line in unseen and parts[1:2] == ["families"]:
            continue
        if parts[0] == "powerzoo_jax" and len(parts) > 1 and parts[1] not in allowed:
            found.append(f"line {line}: {layer} imports {module}")
    return found


def compat_part(module: str) -> str | None:
    """Part of the drop-in that a module belongs to; None for its bare packages and for everything else."""
    parts = module.split(".")
    if parts[0] == "powerzoo":
        return "names"
    if parts[0] != "powerzoo_compat" or len(parts) == 1:
        return None
    if parts[1] != "powerzoo_api":
        return "host" if parts[1].startswith("_") else "views"
    if len(parts) == 2:
        return None
    # beside the folders stand the tables by which `powerzoo` finds its names
    return parts[2] if parts[2] in COMPAT_CORE else "names"


def upward_arrows(source: str, part: str) -> list[str]:
    """Imports of a module of the drop-in that point to a later part, inside functions too."""
    later, found = COMPAT_CORE[COMPAT_CORE.index(part) + 1 :], []
    for line, module in imported(ast.parse(source)):
        if compat_part(module) in later:
            found.append(f"line {line}: {part} imports {module}")
    return found


def spelled_widths(source: str) -> list[int]:
    """Lines that choose float32: an attribute of that name, or the string used as a value.

    A string that is the key of a table (a tolerance by dtype) reads a width and chooses none.
    """
    tree = ast.parse(source)
    keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    attributes = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "float32"]
    strings = [
        n.lineno for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value == "float32" and id(n) not in keys
    ]
    return sorted(attributes + strings)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in sources() if p not in EXEMPT], ids=name)
def test_no_import_points_to_a_later_layer(path):
    assert backward_arrows(path.read_text(encoding="utf-8"), layer_of(path)) == []


# Families that a family may import beside its own.
BELOW = {"feeder": (), "transmission": ("feeder",), "market": ("transmission",), "microgrid": ()}
BELOW["operation"] = ()
BELOW["joint"] = ("feeder", "transmission")


def test_a_family_imports_those_below_it_alone():
    found = []
    for path in (PACKAGE / "families").rglob("*.py"):
        own = path.relative_to(PACKAGE / "families").parts[0]
        for line, module in imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = module.split(".")
            if parts[:2] == ["powerzoo_jax", "families"] and len(parts) > 2 and parts[2] not in (own, *BELOW[own]):
                found.append(f"{name(path)}:{line} imports {module}")
    assert found == []


SHARED = {"init", "begin", "step"}  # methods that `GridEnv` writes once, for all families


def of_its_own(source: str) -> list[str]:
    """Methods of the shared ones that the environments of a source write once more."""
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return [
        f"{node.name}.{part.name}"
        for node in classes
        if node.name.endswith("Env") and node.bases
        for part in node.body
        if isinstance(part, ast.FunctionDef) and part.name in SHARED
    ]


def test_no_family_writes_a_step_of_its_own():
    sources = {path: path.read_text(encoding="utf-8") for path in (PACKAGE / "families").rglob("*.py")}
    assert [f"{name(path)}: {found}" for path, text in sources.items() for found in of_its_own(text)] == []
    assert sum("Env(GridEnv)" in text for text in sources.values()) >= 7


def test_the_check_sees_a_step_of_a_family():
    assert of_its_own("class FeederEnv(GridEnv):\n    def step(self): ...") == ["FeederEnv.step"]


# Folders that ask the record of a family and know none by name; the contract's own grids are families of its own.
ASKING = [p for p in sources() if layer_of(p) not in ("families", "__init__", "__main__")]
ASKING += [p for p in sorted((COMPAT / "powerzoo_compat").rglob("*.py")) if "grids" not in p.parts]
NAMED = re.compile(r"""family(?:"\])? *(?:==|!=|not in|in) *[("A-Z]|isinstance\(.*\b(%s)\b""")


def environments() -> set[str]:
    """Names of the classes that the folders of families define as environments, parameters, states or infos."""
    ends = ("Env", "Params", "State", "Info", "Factors", "Bank")
    trees = (ast.parse(p.read_text(encoding="utf-8")) for p in (PACKAGE / "families").rglob("*.py"))
    classes = (node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {label for label in classes if label.endswith(ends)}


def naming() -> re.Pattern[str]:
    """Pattern of a line that names a family: a comparison with its name, a test for one of its classes."""
    return re.compile(NAMED.pattern % "|".join(sorted(environments())))


@pytest.mark.parametrize(
    "line",
    [
        'if spec.family == "market":',
        "if sim.spec.family != MARKET:",
        'if data.about["family"] in ("market", "joint"):',
        "if isinstance(sim.env, JointEnv):",
        "shared = isinstance(params.factors, (DcOpfFactors, JointFactors))",
    ],
)
def test_the_check_sees_a_family_that_is_named(line):
    assert naming().search(line)


def test_shared_code_names_no_family():
    pattern = naming()
    found = [
        f"{name(path)}:{k}: {line.strip()}"
        for path in ASKING
        for k, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_the_native_package_never_imports_the_drop_in():
    found = [
        f"{name(path)}:{line} imports {module}"
        for path in sources()
        for line, module in imported(ast.parse(path.read_text(encoding="utf-8")))
        if module.split(".")[0] in DROP_IN
    ]
    assert found == []


@pytest.mark.parametrize("path", sorted(COMPAT.rglob("*.py")), ids=name)
def test_no_import_of_the_drop_in_points_to_a_later_part(path):
    module = ".".join(path.relative_to(COMPAT).with_suffix("").parts).removesuffix(".__init__")
    part = compat_part(module)
    source = path.read_text(encoding="utf-8")
    if part is None:  # a bare package imports nothing
        assert not list(imported(ast.parse(source)))
    else:
        assert upward_arrows(source, part) == []


def test_heavy_packages_are_imported_at_call_time_only():
    found = [
        f"{name(path)}:{line} imports {module}"
        for path in sources()
        for line, module in at_module_level(ast.parse(path.read_text(encoding="utf-8")))
        if module.split(".")[0] in HEAVY
    ]
    assert found == []


def test_the_plots_and_the_command_line_are_imported_by_no_layer_at_module_level():
    found = [
        f"{name(path)}:{line} imports {module}"
        for path in sources()
        if layer_of(path) not in ("plot", "cli", "__main__")
        for line, module in at_module_level(ast.parse(path.read_text(encoding="utf-8")))
        if module.startswith(("powerzoo_jax.plot", "powerzoo_jax.cli"))
    ]
    assert found == []


def test_float32_is_chosen_at_the_door_only():
    found = [
        f"{name(path)}:{line}"
        for path in sources()
        if path not in WIDTH_DOORS and layer_of(path) != "data"
        for line in spelled_widths(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_module_is_longer_than_600_lines():
    both = [*sources(), *COMPAT.rglob("*.py")]
    assert [name(p) for p in both if len(p.read_text(encoding="utf-8").splitlines()) > MOST_LINES] == []


def defined_twice(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Class names with more than one definition, and the files that hold them."""
    places: dict[str, list[str]] = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name(path))
    return {label: where for label, where in places.items() if len(where) > 1}


def test_a_class_name_means_one_thing_in_the_package():
    assert defined_twice(sources()) == {}


def test_a_class_name_means_one_thing_in_the_drop_in():
    assert defined_twice(COMPAT.rglob("*.py")).keys() == SHARED_NAMES


def test_docstrings_open_with_a_noun_of_the_field():
    """A first line says what a thing is; one that opens with a question word makes the reader work it out."""
    found = [
        f"{name(path)}: {getattr(node, 'name', 'module')}"
        for path in (*sources(), *COMPAT.rglob("*.py"), *(ROOT / "tools").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and (ast.get_docstring(node) or "-").split()[0].strip(",.:") in ("What", "Which", "Who", "How")
    ]
    assert found == []


def arrows(base: Path, packages: tuple[str, ...]) -> dict[str, set[str]]:
    """Module -> modules of the same packages that it imports, inside functions too; packages' `__init__` left out."""
    paths = {
        ".".join(path.relative_to(base).with_suffix("").parts): path
        for package in packages
        for path in (base / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    return {
        module: {target for _, target in imported(ast.parse(path.read_text(encoding="utf-8"))) if target in paths}
        - {module}
        for module, path in paths.items()
    }


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import themselves by way of others: what is left when all that import nothing left are taken out."""
    left = {module: set(targets) for module, targets in graph.items()}
    while True:
        ends = {module for module, targets in left.items() if not targets & left.keys()}
        if not ends:
            break
        left = {module: targets for module, targets in left.items() if module not in ends}
    # a module that only imports a circle is none of it
    while True:
        used = set().union(*left.values()) if left else set()
        outside = left.keys() - used
        if not outside:
            return sorted(left)
        left = {module: targets for module, targets in left.items() if module not in outside}


def test_the_native_package_has_no_circle():
    assert circles(arrows(ROOT, ("powerzoo_jax",))) == []


def test_the_drop_in_has_no_circle():
    assert circles(arrows(COMPAT, ("powerzoo", "powerzoo_compat"))) == []


def test_the_check_sees_a_circle():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("data", "from powerzoo_jax.cases import Case"),
        ("envs", "def f():\n    from powerzoo_jax.tasks import make"),
        ("base", "from powerzoo_jax import tasks"),
        ("rl", "import powerzoo_jax.plot.episode"),
        ("envs", "if TYPE_CHECKING:\n    from powerzoo_jax.rl.algorithms.ppo import PPOState"),
    ],
)
def test_the_check_sees_a_backward_arrow(layer, source):
    assert len(backward_arrows(source, layer)) >= 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("host", "from powerzoo_compat.powerzoo_api.envs.base import fresh"),
        ("envs", "def f():\n    from powerzoo_compat.powerzoo_api.tasks.factory import make_task_env"),
        ("tasks", "from powerzoo_compat import rllib_view"),
        ("rl", "if TYPE_CHECKING:\n    from powerzoo.tasks import make_task_env"),
        ("views", "from powerzoo_compat.powerzoo_api.lazy import on_demand"),
    ],
)
def test_the_check_sees_an_upward_arrow_in_the_drop_in(part, source):
    assert len(upward_arrows(source, part)) >= 1
    assert upward_arrows(source, "names") == []


def test_the_check_sees_a_chosen_width_and_lets_a_table_key_pass():
    assert spelled_widths("x = jnp.float32\ny = z.astype('float32')\nTOL = {'float32': 1e-6}") == [1, 2]
