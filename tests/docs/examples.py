"""The examples of docstrings: found, and run as a reader would who has imported the module they stand in."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import powerzoo_jax

ROOT = Path(__file__).resolve().parents[2]
PARAGRAPH = re.compile(r"\n\s*\n")
HEAD = "Example:\n"
# The views that cannot be used without the library of another project.
FOREIGN = {
    "powerzoo_compat.gymnax_view": "gymnax",
    "powerzoo_compat.jaxmarl_view": "jaxmarl",
    "powerzoo_compat.rllib_view": "ray",
    "powerzoo_compat.sb3_view": "stable_baselines3",
    "powerzoo_compat.torchrl_view": "torchrl",
}


class Example(NamedTuple):
    """Where an example stands, and its code."""

    module: str
    owner: str
    body: str

    @property
    def needs(self) -> str:
        """The library of another project that it needs, "" for none."""
        return FOREIGN.get(self.module, "")


def find(folder: str) -> list[Example]:
    """Every paragraph of a docstring below a folder that begins with `Example:`."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(part for part in parts if part not in ("compat", "__init__"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                owner = getattr(node, "name", "module")
                for part in PARAGRAPH.split(ast.get_docstring(node) or ""):
                    if part.startswith(HEAD):
                        found.append(Example(module, owner, textwrap.dedent(part.removeprefix(HEAD))))
    return found


def play(example: Example, sim: Any, **names: Any) -> dict[str, Any]:
    """Run an example; returns its names. The API pages say what `sim` and `key` are."""
    scope = {"jax": jax, "jnp": jnp, "np": np, "powerzoo_jax": powerzoo_jax, "sim": sim, "key": jax.random.key(0)}
    scope |= {k: v for k, v in vars(importlib.import_module(example.module)).items() if not k.startswith("__")}
    scope |= names
    exec(compile(example.body, f"{example.module}.{example.owner}", "exec"), scope)
    return scope


def tracing_jax() -> Any:
    """`jax`, but a jitted function is traced to the shapes of its results and neither compiled nor run."""

    def jit(function: Any, **_: Any) -> Any:
        def traced(*arguments: Any) -> Any:
            shapes = jax.eval_shape(function, *arguments)
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype) if x.dtype != jax.dtypes.float0 else x, shapes)

        return traced

    return SimpleNamespace(**{name: getattr(jax, name) for name in dir(jax) if not name.startswith("_")} | {"jit": jit})
