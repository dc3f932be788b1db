"""Pages of the documentation site beside `docs/`: files of the repository that stay where readers look for them.

The README is the home page, the notebooks become pages with their outputs, the API pages list what each folder
re-exports, and links, written as they stand in the repository, are turned towards the pages of the site.
"""

from __future__ import annotations

import ast
import base64
import importlib.util
import re
import tomllib
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File

from tools import episodes
from tools.notebooks import NOTEBOOKS as BOOKS
from tools.notebooks import executed

ROOT = Path(__file__).resolve().parents[2]
# path in the repository -> page of the site
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
    "CITATION.cff": "CITATION.cff",
    "compat/README.md": "views.md",
    "powerzoo_jax/DATA_LICENSES.md": "licences.md",
    "powerzoo_jax/cases/tables/PROVENANCE.md": "provenance_cases.md",
    "powerzoo_jax/data/bundled/PROVENANCE.md": "provenance_series.md",
}
NOTEBOOKS = {f"notebooks/{p.name}": f"notebooks/{p.stem}.md" for p in BOOKS}
RESULTS = {f"benchmarks/results/{p.name}/{f.name}": f"results/{p.name}_{f.stem}.md"
           for p in sorted((ROOT / "benchmarks" / "results").iterdir()) for f in sorted(p.glob("*.tsv"))}  # fmt: skip
RESULTS |= {f"benchmarks/results/{p.name}": f"results/{p.stem}.md"
            for p in sorted((ROOT / "benchmarks" / "results").glob("*.tsv"))}  # fmt: skip
RESULTS |= {p.relative_to(ROOT).as_posix(): f"results/tested_{p.parent.name}_{p.stem}.md"
            for p in sorted((ROOT / "tests" / "recorded").rglob("*.tsv"))}  # fmt: skip
VIEWS = tuple(f"powerzoo_compat.{p.stem}" for p in sorted((ROOT / "compat" / "powerzoo_compat").glob("[a-z]*.py")))
# page -> title and modules whose public names it lists
API = {
    "top": ("Top level", ("powerzoo_jax",)),
    "cases_data": (
        "Cases and data",
        ("powerzoo_jax.cases", "powerzoo_jax.cases.topology", "powerzoo_jax.data", "powerzoo_jax.data.adapters"),
    ),
    "powerflow": ("Power flow", ("powerzoo_jax.powerflow",)),
    "opf": ("Optimal power flow", ("powerzoo_jax.opf",)),
    "study": ("Studies of one network", ("powerzoo_jax.study",)),
    "devices_envs": (
        "Devices and environments",
        (
            "powerzoo_jax.devices",
            "powerzoo_jax.devices.fleet",
            "powerzoo_jax.devices.protocol",
            "powerzoo_jax.envs",
            "powerzoo_jax.base",
            "powerzoo_jax.base.errors",
            "powerzoo_jax.base.ranges",
            "powerzoo_jax.base.spaces",
            "powerzoo_jax.base.tree",
        ),
    ),
    "tasks": (
        "Tasks and scores",
        (
            "powerzoo_jax.tasks",
            "powerzoo_jax.tasks.contract",
            "powerzoo_jax.tasks.score",
            "powerzoo_jax.families.transmission.tasks.operator",
            "powerzoo_jax.families.market.tasks.storage",
            "powerzoo_jax.families.operation",
            "powerzoo_jax.families.operation.simulate",
        ),
    ),
    "oracle": (
        "Oracles",
        ("powerzoo_jax.oracle", "powerzoo_jax.oracle.linear_program", "powerzoo_jax.families.feeder.arbitrage.plan"),
    ),
    "rl": (
        "Learners",
        tuple(
            f"powerzoo_jax.rl{m}"
            for m in (
                "",
                ".training.config",
                ".training.learners",
                ".policies",
                ".zoo",
                ".export",
                ".onnx",
                ".rollout",
                ".training.parallel",
                ".algorithms.ppo",
                ".algorithms.sac",
                ".algorithms.apg",
            )
        ),
    ),
    "plot": ("Pictures", ("powerzoo_jax.plot",)),
    "views": ("Views", VIEWS),
}
SHAPES = """Made from the docstrings. Shapes stand in parentheses, units in brackets: N bus, L branch, G unit, A agent,
O observation, U action, C cost, K reward term, B batch, T time. The batch axis that `vmap` adds in front is left out.

In examples `jax`, `jnp` (`jax.numpy`), `np` (NumPy) and `powerzoo_jax` are imported, and so is what the page describes;
`sim` is `powerzoo_jax.make("battery_arbitrage")` and `key` is `jax.random.key(0)`.
"""
ELSEWHERE = PAGES | NOTEBOOKS | RESULTS
SOURCE_OF = {page: source for source, page in ELSEWHERE.items()}
HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")  # of a file: the site shows how it begins
BREAKING = "\n<style>.md-typeset table code { overflow-wrap: anywhere; }</style>\n"  # paths of sources are long
LINK = re.compile(r"(?<=\]\()([^)\s#]+)")


def on_config(config: Any) -> Any:
    """Links that need a public address: to the repository, to edit a page, and those of the sitemap."""
    for name, value in addresses(project_urls()).items():
        config[name] = value
    return config


def project_urls() -> dict[str, str]:
    """The one place that knows the public addresses: `project.urls` of pyproject.toml; empty as long as it has none."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"].get("urls", {}))


def addresses(urls: dict[str, str]) -> dict[str, str]:
    """Settings of the site that follow from the addresses of the repository and of the documentation."""
    found = {}
    if repository := urls.get("Repository", "").rstrip("/"):
        found |= {"repo_url": repository, "edit_uri": "edit/HEAD/docs/"}
    if site := urls.get("Documentation", "").rstrip("/"):
        found |= {"site_url": f"{site}/"}
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add what lives elsewhere in the repository."""
    for source, page in ELSEWHERE.items():
        if source in NOTEBOOKS:
            text, figures = notebook_page(source, executed(ROOT / source), project_urls().get("Repository", ""))
            for name, image in figures.items():
                files.append(File.generated(config, f"notebooks/{name}", content=image))
        else:
            text = (ROOT / source).read_text(encoding="utf-8")
            if source in RESULTS:
                text = table_page(source, text)
            elif source.endswith("PROVENANCE.md"):
                text = HASH.sub(r"\1...", text) + BREAKING
        files.append(File.generated(config, page, content=text))
    for name, (title, modules) in API.items():
        files.append(File.generated(config, f"api/{name}.md", content=api_page(title, modules)))
    files.append(File.generated(config, "episode.html", content=episode_page()))
    for task in played_tasks(config):
        files.append(File.generated(config, f"episodes/{task}.html", content=episodes.episode(task)))
    for name, text in gallery().items():
        files.append(File.generated(config, f"gallery/{name}.svg", content=text))
    return files


def gallery() -> dict[str, str]:
    """The pictures of docs/gallery.py, as SVG text."""
    found = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
    assert found is not None and found.loader is not None  # a file with the ending .py has a loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    pictures: dict[str, str] = module.pictures()
    return pictures


def played_tasks(config: Any) -> tuple[str, ...]:
    """Tasks with an episode on the site: every public one, or those that the environment variable EPISODES lists."""
    listed: str = config["extra"]["episodes"]
    return episodes.TASKS if listed == "all" else tuple(listed.split())


def with_episodes(markdown: str, tasks: tuple[str, ...]) -> str:
    """The page of the tasks with a link to the episode below the heading of each."""
    for task in tasks:
        link = f"[Play an episode under the {episodes.POLICY}](episodes/{task}.html)"
        markdown = markdown.replace(f"\n### {task}\n", f"\n### {task}\n\n{link}\n")
    return markdown


def episode_page() -> str:
    """The page of an episode, from the traces that docs/episode.py writes."""
    from powerzoo_jax.envs import load_traces
    from powerzoo_jax.plot import episode_html

    return episode_html(list(load_traces(ROOT / "docs" / "episode.npz").values()))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages, and link the episodes of tasks."""
    here = page.file.src_uri
    if here == "tasks.md":
        markdown = with_episodes(markdown, played_tasks(config))
    folder = PurePosixPath(SOURCE_OF.get(here, f"docs/{here}")).parent

    def turned(match: re.Match[str]) -> str:
        if "://" in match.group(1):
            return match.group(1)
        target = normpath(str(folder / match.group(1)))
        found = target.removeprefix("docs/") if target.startswith("docs/") else ELSEWHERE.get(target)
        return match.group(1) if found is None else relpath(found, PurePosixPath(here).parent)

    return LINK.sub(turned, markdown)


def api_page(title: str, modules: tuple[str, ...]) -> str:
    """A page with an entry for every public name of the modules: what a folder re-exports, or a module defines."""
    parts, told = [f"# {title}", SHAPES], set()
    for module in modules:
        names = [name for name in public_names(module) if name not in told]
        told.update(names)
        if names:
            parts += [f"## `{module}`", *(f"::: {name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def public_names(module: str) -> list[str]:
    """Full names that `from X import name as name` re-exports, or that the module itself defines."""
    path = (ROOT / "compat" if module.startswith("powerzoo_compat") else ROOT).joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names = []
    body = ast.parse(source.read_text(encoding="utf-8")).body
    # what a door offers on demand stands under a condition, for type checkers
    for node in (inner for outer in body for inner in (outer.body if isinstance(outer, ast.If) else (outer,))):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            names.append(f"{module}.{node.name}")
    return names


COLAB = "https://colab.research.google.com/github/"


def notebook_page(source: str, notebook: dict[str, Any], repository: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its figures by file name.

    Text stands as it is, code and what it prints fenced; where the repository is known, a link runs the notebook.
    """
    parts: list[str] = []
    figures: dict[str, bytes] = {}
    if "github.com/" in repository:
        owner_name = repository.partition("github.com/")[2].strip("/")
        parts.append(f"[Run it in Colab]({COLAB}{owner_name}/blob/HEAD/{source})")
    for cell in notebook["cells"]:
        body = "".join(cell["source"])
        parts.append(body if cell["cell_type"] == "markdown" else f"```python\n{body}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            # what goes to stderr are notes of the libraries about the machine
            text = output.get("text", "") if output.get("name") == "stdout" else data.get("text/plain", "")
            if "image/png" in data:
                name = f"{PurePosixPath(source).stem}_{len(figures) + 1}.png"
                figures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![Figure {len(figures)} of this notebook]({name})")
            elif shown := "".join(text).rstrip():
                parts.append(f"```{{ .text .output }}\n{shown}\n```")
    return "\n\n".join(parts) + "\n", figures


def table_page(source: str, text: str) -> str:
    """A table of tab-separated values as text in columns, which may be wider than a page."""
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return f"# {source}\n\n" + "\n".join(("```text", *lines, "```")) + "\n"
