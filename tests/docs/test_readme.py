"""What the README says to type works: its Python runs, its commands parse, its make targets and files exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from powerzoo.tasks import PUBLIC_TASKS

from powerzoo_jax.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [body for language, body in FENCES if language == "python"]
LINES = [line.partition("#")[0].strip() for language, body in FENCES if not language for line in body.splitlines()]
MAKE = sorted({*re.findall(r"`make ([a-z-]+)`", README), *(line[5:] for line in LINES if line.startswith("make "))})
INLINE = re.findall(r"`(powerzoo-jax [^`]+)`", README)
COMMANDS = sorted({*INLINE, *(line for line in LINES if line.startswith("powerzoo-jax "))})


@pytest.mark.full
@pytest.mark.parametrize("body", PYTHON, ids=range(len(PYTHON)))
def test_the_python_of_the_readme_runs(body, run_snippet):
    run_snippet(body)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_readme_parse(command):
    words = shlex.split(command)
    assert words[0] == "powerzoo-jax"
    assert build_parser().parse_args(words[1:]).run


@pytest.mark.parametrize("target", MAKE)
def test_the_make_targets_of_the_readme_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_files_the_readme_links_to_exist():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_names_every_public_task():
    assert PUBLIC_TASKS and [task for task in PUBLIC_TASKS if f"`{task}`" not in README] == []
