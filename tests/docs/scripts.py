"""Scripts: those that a page prints, played in order in one process, and those beside the package, loaded."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(r'^```(python|bash)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
# stands in for the program: it writes down how many words a command has, and the words as the shell expands them
RECORDED = """powerzoo-jax() { printf '%s\\n' "$#" "$@"; }\n"""


class Block(NamedTuple):
    """A fenced block of a page; title: name of the file that it is saved as, "" for none."""

    language: str
    title: str
    body: str


def load(path: Path) -> Any:
    """Module of a file that no package holds."""
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(text: str) -> list[Block]:
    """The blocks of Python and bash in a page, in order."""
    return [Block(*found) for found in BLOCK.findall(text)]


def play(script: list[tuple[str, str, str]]) -> None:
    """Save files, run Python in one scope, and give the commands to the program, in the current folder.

    One process for all: the commands share the import and what is compiled.
    """
    from powerzoo_jax.cli import main

    scope: dict[str, Any] = {}
    shell, done = "", 0
    for language, title, body in script:
        if title:
            Path(title).write_text(body, encoding="utf-8")
        elif language == "python":
            exec(compile(body, "block of the page", "exec"), scope)
        else:
            shell += body
            for words in spoken(shell)[done:]:
                assert main(words) == 0, words
                done += 1


def spoken(shell: str) -> list[list[str]]:
    """Words of every command of the program in a script for bash; variables are expanded, nothing else is run."""
    run = subprocess.run(["bash", "-euc", RECORDED + shell], capture_output=True, text=True, check=True)
    lines = iter(run.stdout.splitlines())
    return [[next(lines) for _ in range(int(count))] for count in lines]
