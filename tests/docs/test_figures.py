"""Figures that several pages tell agree with each other, and with the code or the record that they come from."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path

import pytest

from powerzoo_jax import list_tasks
from powerzoo_jax.cases import list_cases, list_feeders
from powerzoo_jax.oracle import get_reference
from powerzoo_jax.tasks import get_spec, list_presets

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "benchmarks" / "results" / "2026-11-21_amd_epyc"
WORDS = {"three": 3, "five": 5}
UNITS = {"": 1, "M": 1e6, "k": 1e3}
ABUSE = "docs/howto/reliability.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(page: str) -> str:
    """A page with every run of blanks as one, so that a figure may stand at the end of a line."""
    return re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))


def records(path: Path, **where: str) -> list[dict[str, str]]:
    """Rows of a record whose columns have the values asked for."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines, delimiter="\t") if where.items() <= row.items()]


def near(told: str, value: float) -> bool:
    """Whether a figure is the value to all the digits it has: 1,250,000 and 1.25 M are 1,248,783."""
    number, unit = re.fullmatch(r"\+?(-?[\d.,e-]+) ?([Mk]?)", told).groups()
    digits = re.sub(r"e.*|[^\d]", "", number).lstrip("0")
    if "." not in number:
        digits = digits.rstrip("0")
    scale = max(len(digits), 1)
    return f"{float(number.replace(',', '')) * UNITS[unit]:.{scale - 1}e}" == f"{value:.{scale - 1}e}"


GAINS = {
    (task, learner): float(gain)
    for task, learner, gain in re.findall(r" \|`(\w+)-v\d+`\|(\w+)\|(-?[\d.]+)", text("docs/leaderboard.md"))
}
COUNTS = {"tasks": len(list_tasks()), "presets": len(list_presets()), "cases": len(list_cases())}
FAMILIES = len({get_spec(task).family for task in list_tasks()})


@pytest.mark.parametrize(
    ("page", "said", "values"),
    [
        ("CHANGELOG.md", r"\*\*Tasks\*\*: (\d+) in (\w+) families", (COUNTS["tasks"], FAMILIES)),
        ("CHANGELOG.md", r"(\d+) shipped tables and (\w+) feeders", (COUNTS["cases"], len(list_feeders()))),
        (ABUSE, r"(\d+) tasks in both versions, (\d+) presets", (COUNTS["tasks"], COUNTS["presets"])),
        (ABUSE, r"serve (\d+) tasks and presets", (COUNTS["tasks"] + COUNTS["presets"],)),
        ("docs/scaling.md", r"the (\d+) units of `opf_118`", (len(get_spec("opf_118").agents),)),
        ("README.md", r"all (\d+) days of the `test` split", (get_reference("battery_arbitrage", "test")["n"],)),
    ],
)  # fmt: skip
def test_a_count_is_that_of_the_code(page, said, values):
    found = re.search(said, text(page))
    assert found, f"{page} does not say {said!r}"
    told = [str(WORDS.get(number, number)) for number in found.groups()]
    assert all(near(number, value) for number, value in zip(told, values, strict=True)), (told, values)


def test_pages_tell_one_version_of_package_jax_and_python():
    pinned = re.search(r"^jax==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    pages = ["README.md", "CITATION.cff", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]
    told = {(page, version) for page in pages for version in re.findall(r"\bjax (\d[\d.]*\d)", text(page))}
    assert len(told) > 2 and {version for _, version in told} == {pinned}
    own = r"(?:powerzoo_jax |version = \{| version: )(\d+\.\d+\.\d+)"
    assert {version for page in pages for version in re.findall(own, text(page))} == {PROJECT["version"]}
    (author,), citation = PROJECT["authors"], text("CITATION.cff")
    assert f"name: {author['name']} " in citation and author["name"].replace("_", "\\_") in text("README.md")
    assert ("repository-code:" in citation) == ("Repository" in PROJECT.get("urls", {}))
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')} or newer" in text("docs/start.md")
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))[1]
    tried = re.search(r"pass with Python (.*?) on Linux", text("docs/howto/reliability.md"))[1]
    assert re.findall(r"3\.\d+", matrix) == re.findall(r"\b3\.\d+", tried)


@pytest.mark.parametrize("page", ["README.md", "docs/measurements/environments.md"])
def test_steps_a_second_are_those_of_the_record(page):
    rows = records(RECORDS / "env_steps.tsv", lanes="1024") + records(
        RECORDS / "env_steps_transmission.tsv", lanes="256"
    )
    of_task = {row["task"]: float(row["step_per_s"]) for row in rows}
    told = re.findall(r"\| `(\w+)`(?:, 256 lanes)? \| ([\d.,]+ ?[Mk]?) \|", text(page))
    told += [
        ("battery_arbitrage", speed) for speed in re.findall(r"simulates (\S+) steps of the battery task", text(page))
    ]
    assert {task for task, _ in told} >= of_task.keys()
    assert [(task, speed) for task, speed in told if task in of_task and not near(speed, of_task[task])] == []


def test_solves_a_second_of_the_readme_are_those_of_the_record():
    rows = records(RECORDS / "powerflow.tsv", engine="powerzoo_jax", B="1024")
    of_case = {(row["case"], row["dtype"]): row for row in rows}
    three = r"([\d,]+) \| ([\d.]+) \| (\S+) \|"
    told = re.findall(rf"\| `(case\w+)` \| {three} {three}", text("README.md"))
    assert len(told) == 6
    for case, *figures in told:
        for dtype, three in (("float32", figures[:3]), ("float64", figures[3:])):
            row = of_case[case, dtype]
            columns = ("solves_per_s", "ratio_to_best_peer", "max_v_error_pu")
            assert all(near(x, float(row[c])) for x, c in zip(three, columns, strict=True)), (case, dtype, three)


def test_references_and_gains_of_the_readme_are_those_of_the_tables():
    known = get_reference("battery_arbitrage", "test")
    names = {
        "random": "random",
        "rule": "rule",
        "causal planner, which sees what a learner sees": "causal",
        "oracle": "best",
    }
    told = re.findall(rf"\| ({'|'.join(names)}) \| (\S+) \| (\S+) \|", text("README.md"))
    assert [name for name, *_ in told] == list(names)
    for name, money, gain in told:
        assert f"{known[names[name]]:+.2f}" == money
        assert gain == "-" or near(gain, (known[names[name]] - known["rule"]) / (known["best"] - known["rule"]) or 0.0)


def test_tasks_of_the_readme_have_the_agents_and_steps_of_their_specs():
    told = re.findall(
        r"\| ((?:`\w+`(?:, )?)+) \| [^|]+ \| ([\d, ]+) \| (\d+)(?: or (\d+))? x (\d+) min \|", text("README.md")
    )
    assert len(told) > 9
    for ids, agents, *steps, minutes in told:
        specs = [get_spec(task) for task in re.findall(r"`(\w+)`", ids)]
        assert {str(len(spec.agents)) for spec in specs} == set(agents.split(", "))
        assert {str(spec.horizon) for spec in specs} == {number for number in steps if number}
        assert {round(60 * spec.dt_hours) for spec in specs} == {int(minutes)}


@pytest.mark.parametrize(
    ("said", "task", "learners"),
    [
        (r"`apg_lagrangian`, five seeds on test \| [\d,]+ \| #", "dso", ("apg_lagrangian",)),
        (r"`sac`, five seeds on test \| [\d,]+ \| #", "dso", ("sac",)),
        ("a gain of # on test, where the causal planner has #", "dc_microgrid", ("apg_lagrangian", "causal")),
        ("keep every budget, with a gain of #", "dc_microgrid_safe", ("apg_lagrangian",)),
        ("a gain of # on test where the planner has #", "comparison_tso_centralized", ("dagger", "causal")),
        ("The gain is # where the planner has #", "marl_uc", ("dagger", "causal")),
    ],
)
def test_a_gain_in_prose_is_that_of_the_leaderboard(said, task, learners):
    found = re.search(said.replace("#", r"(-?\d\.\d+)"), text("docs/measurements/learning.md"))
    assert found, f"the page does not say {said!r}"
    assert [float(number) for number in found.groups()] == [GAINS[task, learner] for learner in learners]


def test_the_nash_conv_of_a_policy_is_one_on_both_pages():
    board = dict(re.findall(r"\|`gencos_bidding`\|(\w+)\|([\d,]+)\|", text("docs/leaderboard.md")))
    told = re.findall(r"\(`(\w+)`\) \| [\d,]+ \| \S+ \| ([\d,]+) \|", text("docs/transmission.md"))
    assert len(told) == 3 and all(board[name] == number for name, number in told)
