"""The pages for people: their Python runs in order, their commands parse, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from powerzoo_jax.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text(encoding="utf-8")
    for path in DOCS
    if path.stem in {"start", "concepts", "power_systems", "reinforcement_learning"} or path.parent.name == "howto"
}
ADD_DEVICE = "howto/add_device.md"  # run by tests/packaging, with the installed wheel
ADD_FAMILY, ADD_LEARNER = "howto/add_family.md", "howto/add_learner.md"  # likewise
SCRIPTS = {"howto/paths.md", "howto/paper.md"}  # run with their commands by test_paths and test_paper_page
WITHOUT_PYTHON = ("json", "learn_from_a_planner", "processes", "reliability")
COMMANDS_ONLY = {f"howto/{name}.md" for name in WITHOUT_PYTHON}
LINK = re.compile(r"\]\(([^)\s#]+)")
# a line that prints, and behind it what: a shape, a number or an object, not words about it
PRINTED = re.compile(r"^(print\(.*\))  # ([(\d].*|\w+\(.*)$", re.MULTILINE)
COMMAND = re.compile(r"^\s*(powerzoo-jax [^#\n]+)", re.MULTILINE)


def commands(text: str) -> list[str]:
    fenced = re.findall(r"^\s*```\n(.*?)^\s*```$", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for body in fenced for line in COMMAND.findall(body)]


def test_every_page_of_the_site_that_shows_python_is_run(run_snippet, snippets_of):
    elsewhere = snippets_of((ROOT / "compat" / "README.md").read_text(encoding="utf-8"))  # run by test_compat_page
    apart = COMMANDS_ONLY | SCRIPTS | {ADD_DEVICE, ADD_FAMILY, ADD_LEARNER}
    here = {page: text for page, text in PAGES.items() if page not in apart}
    bodies = ["\n".join(b for b in snippets_of(text) if b not in elsewhere) for text in here.values()]
    shown = [body for body in bodies if body]
    assert len(shown) == len(here)  # each shows some
    told = [PRINTED.sub(lambda line: f"print('SHOWN', {line[2]!r})\n{line[1]}", body) for body in shown]
    # one process for all: they share the import and what is compiled, not their names
    printed = run_snippet(f"for body in {told!r}:\n    print('PAGE')\n    exec(body, {{}})\n")
    assert printed.count("PAGE") == len(shown)
    assert "nan" not in printed
    claims = re.findall(r"^SHOWN (.*)\n(.*)$", printed, re.MULTILINE)
    assert len(claims) > 4 and [pair for pair in claims if pair[0] != pair[1]] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_parse(page):
    for command in commands(PAGES[page]):
        assert build_parser().parse_args(shlex.split(command)[1:]).run


def test_commands_are_shown():
    assert sum(len(commands(text)) for text in PAGES.values()) > 5


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_the_files_that_a_page_links_to_exist(path):
    links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_picture_of_the_readme_is_small():
    assert (ROOT / "docs" / "picture.png").stat().st_size < 100_000
