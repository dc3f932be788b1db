"""Size of a source tree: files, lines of code and of comments, and private helpers of one caller.

`python -m tools.counts [TREE]` prints one line a column. Only `.py` files count, and only the sources decide: nothing
is imported. A line of code is one that bears a token other than a comment, a line break or a docstring.

| column | definition |
|---|---|
| files | Python files of `powerzoo_jax/` |
| k lines | their lines, blank ones too, in thousands |
| code | lines of code of `powerzoo_jax/`, `compat/`, `tests/`, `tools/` |
| comments | lines of the package that bear a comment, in % of its lines; directives (`noqa`, `type:`) are none |
| one caller | private functions of modules (`_name`) that their file names at one place, in % of all private ones |
| short helpers | number of those whose body without docstring takes three lines or fewer |
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "powerzoo_jax"
FOLDERS = (PACKAGE, "compat", "tests", "tools")
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|fmt:|mypy:)")
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Lines(NamedTuple):
    """all: lines of a file; code: lines of code; comments: lines that bear a comment."""

    all: int
    code: int
    comments: int


def docstring_of(node: ast.AST) -> list[ast.stmt]:
    """The statement that is the docstring of a module, class or function, if it has one."""
    body: list[ast.stmt] = getattr(node, "body", []) if isinstance(node, ast.Module | ast.ClassDef | Function) else []
    text = body[0] if body else None
    found = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    return body[:found]


def lines_of(source: str) -> Lines:
    """Lines of one file by what they bear."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            comments.add(token.start[0])
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        for text in docstring_of(node):
            code.difference_update(range(text.lineno, (text.end_lineno or 0) + 1))
    return Lines(len(source.splitlines()), len(code), len(comments))


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without signature and docstring."""
    body = function.body[len(docstring_of(function)) :]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


class Helpers(NamedTuple):
    """private: functions `_name` of modules; one_caller: those named once; short: those of three lines or fewer."""

    private: int
    one_caller: int
    short: int


def helpers_of(source: str) -> Helpers:
    """Private functions of one module by how often it names them."""
    tree = ast.parse(source)
    private = [node for node in tree.body if isinstance(node, Function) and node.name.startswith("_")]
    named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    lone = [function for function in private if named[function.name] == 1]
    return Helpers(len(private), len(lone), sum(body_lines(function) <= 3 for function in lone))


def counts(tree: Path) -> dict[str, str]:
    """Every column of a source tree as printed."""
    sources = {
        folder: [file.read_text(encoding="utf-8") for file in sorted((tree / folder).rglob("*.py"))]
        for folder in FOLDERS
    }
    lines = {folder: [lines_of(source) for source in sources[folder]] for folder in FOLDERS}
    every = sum(one.all for one in lines[PACKAGE])
    private, lone, brief = (sum(column) for column in zip(*map(helpers_of, sources[PACKAGE]), strict=True))
    return {
        "files": f"{len(sources[PACKAGE])}",
        "k lines": f"{every / 1000:.1f}",
        **{f"code of {folder}": f"{sum(one.code for one in lines[folder])}" for folder in FOLDERS},
        "comments": f"{100 * sum(one.comments for one in lines[PACKAGE]) / every:.1f} %",
        "one caller": f"{100 * lone / private:.0f} % of {private}",
        "short helpers": f"{brief}",
    }


def main() -> None:
    """Print the columns of a tree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT, help="checkout to count; this one unless given")
    for column, value in counts(parser.parse_args().tree).items():
        print(f"{column:<22} {value}")


if __name__ == "__main__":
    main()
