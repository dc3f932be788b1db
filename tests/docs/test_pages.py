"""The pages for people: their Python runs in order, their commands parse, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from powerzoo_jax import powerflow
from powerzoo_jax.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in DOCS}
VIEWS = "compat/README.md"
# run by tests of their own, with an installed wheel or with their commands; or on files that a reader brings
ADD = ("howto/add_device", "howto/add_family", "howto/add_learner")
FILES = ("contingency", "data", "howto/from_grid2op", "howto/paper", "howto/paths")
ELSEWHERE = {f"docs/{name}.md" for name in (*ADD, *FILES)}
# page -> how what it prints begins
PRINTS = {
    "docs/cases.md": r"30 189\.2 \[\]",
    # overload below 1e-2 MW, 1e-4 pu: the demand in float32
    "docs/commitment.md": r"\S+ 0\.0(0\d*)?\n\[ True False\] \[False False\] \[30\. +0\.\] \[90\. +0\.\]\n",
    "docs/feeders.md": r"\(1, 271\) \('voltage_violation', 'thermal_overload', 'vuf_\w+'(?!.*'comfort').*'degradation'",
    "docs/learning.md": r"\(2, 4\) \[ True  True\]\n\(4,\) \(4, 5\)\n",
    "docs/microgrid.md": r"\('gpu_util', 'infer_util', 'queue_train_fill'[^\n]* 0\.0\n",
    "docs/opf.md": r"True .*^True ",
    "docs/powerflow.md": r"1\.0 0\.9[0-4]\d* 1[2-4]\d\.",  # nominal: 0.943 pu and 132.86 MW
    "docs/scaling.md": r"\(1,\) 1\nSHOWN",
    "docs/transmission.md": r"\(1, 360\) \{'thermal_overload'.*'n_minus_1'",
}
# whose programs take long to compile
LONG = {f"docs/{name}.md" for name in ("learning", "opf", "scaling")}
LINK = re.compile(r"\]\(([^)\s#]+)")
# a line that prints, and behind it what: a shape, a number or an object, not words about it
PRINTED = re.compile(r"^(print\(.*\))  # ([(\d].*|\w+\(.*)$", re.MULTILINE)
COMMAND = re.compile(r"^\s*(powerzoo-jax [^#\n]+)", re.MULTILINE)


def commands(text: str) -> list[str]:
    fenced = re.findall(r"^\s*```\n(.*?)^\s*```$", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for body in fenced for line in COMMAND.findall(body)]


def scripts(snippets_of: Callable[[str], list[str]], *, long: bool) -> dict[str, str]:
    """The Python of each page as one script; what another page shows too runs once."""
    views = snippets_of((ROOT / VIEWS).read_text(encoding="utf-8"))
    found = {f"{VIEWS} {k}": body for k, body in enumerate(views)} if not long else {}
    for page, text in PAGES.items():
        bodies = [body for body in snippets_of(text) if body not in views]
        if bodies and page not in ELSEWHERE and (page in LONG) == long:
            found[page] = "\n".join(bodies)
    return found


@pytest.mark.tiers("full", long=["True"])
@pytest.mark.parametrize("long", [False, True])
def test_the_python_of_a_page_runs_and_prints_what_the_page_says(long, run_snippet, snippets_of):
    shown = scripts(snippets_of, long=long)
    told = {
        page: PRINTED.sub(lambda line: f"print('SHOWN', {line[2]!r})\n{line[1]}", body) for page, body in shown.items()
    }
    # one process for all: they share the import and what is compiled, not their names
    printed = run_snippet(f"for page, body in {told!r}.items():\n    print('PAGE', page)\n    exec(body, {{}})\n")
    parts = dict(part.split("\n", 1) for part in printed.split("PAGE ")[1:])
    assert parts.keys() == shown.keys() and "nan" not in printed
    wrong = [page for page in shown if not re.match(PRINTS.get(page, ""), parts[page], re.DOTALL | re.MULTILINE)]
    assert wrong == [], [parts[page] for page in wrong]
    claims = re.findall(r"^SHOWN (.*)\n(.*)$", printed, re.MULTILINE)
    assert claims and [pair for pair in claims if pair[0] != pair[1]] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_parse(page):
    for command in commands(PAGES[page]):
        assert build_parser().parse_args(shlex.split(command)[1:]).run


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_the_files_that_a_page_links_to_exist(path):
    links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("page", ["contingency", "powerflow"])
def test_every_function_that_a_page_on_solvers_names_exists(page):
    verbs = "prepare|solve|check|with|screen|worst|outage|unit_outage|legality|is_radial|n_minus"
    named = set(re.findall(rf"`((?:{verbs})_?\w*)`", PAGES[f"docs/{page}.md"]))
    assert len(named) > 8 and [name for name in sorted(named) if not hasattr(powerflow, name)] == []
