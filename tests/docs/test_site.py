"""The site builds without a warning, and its API pages hold every public name."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from powerzoo.tasks import PUBLIC_TASKS

import powerzoo_jax.powerflow
from tests.docs.scripts import load

ROOT = Path(__file__).resolve().parents[2]
HOOKS = ROOT / "docs" / "hooks"
EPISODES = ("battery_arbitrage", "dc_microgrid", "marl_opf")  # a feeder, an island, a meshed grid; `make docs` has all


def hook(name: str):
    return load(HOOKS / f"{name}.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "EPISODES": " ".join(EPISODES)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.full
def test_the_strict_build_has_no_warning_and_holds_readme_notebooks_and_cards(built):
    assert "can be differentiated" in (built / "index.html").read_text(encoding="utf-8")
    assert '"name":"oracle"' in (built / "episode.html").read_text(encoding="utf-8")  # a page of its own, in no frame
    assert 'id="battery_arbitrage"' in (built / "tasks.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_card_of_a_task_links_to_an_episode_that_loads_nothing(built):
    cards = (built / "tasks.html").read_text(encoding="utf-8")
    assert sorted(re.findall(r'href="episodes/(\w+)\.html"', cards)) == sorted(EPISODES)
    for task in EPISODES:
        page = (built / "episodes" / f"{task}.html").read_text(encoding="utf-8")
        assert '"name":"rule"' in page and len(page) < 1_000_000
        assert re.findall(r'(?:src|href)="', page) == []


def test_every_public_task_has_an_episode_and_a_card():
    site = hook("site")
    tasks = site.played_tasks({"extra": {"episodes": "all"}})
    linked = site.with_episodes((ROOT / "docs" / "tasks.md").read_text(encoding="utf-8"), tasks)
    assert set(PUBLIC_TASKS) < set(tasks) and all(linked.count(f"(episodes/{task}.html)") == 1 for task in tasks)


@pytest.mark.full
def test_a_notebook_stands_on_the_site_with_what_it_prints_and_draws(built):
    for stem in hook("site").NOTEBOOKS.values():
        page = (built / stem).with_suffix(".html").read_text(encoding="utf-8")
        figures = re.findall(r'<img [^>]*src="(\w+\.png)"', page)
        assert 'class="output' in page, f"{stem} shows nothing that was printed"
        assert all((built / "notebooks" / name).read_bytes().startswith(b"\x89PNG") for name in figures)
    drawn = {path.stem.rpartition("_")[0] for path in (built / "notebooks").glob("*.png")}
    assert drawn == {"01_quickstart", "04_safe_rl", "07_oracle_gap", "08_markets"}


def test_outputs_follow_their_cell_and_notes_of_libraries_stay_out():
    image = {"image/png": "aGVsbG8=", "text/plain": "<Image>"}
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "42 MW\n"},
        {"output_type": "stream", "name": "stderr", "text": "no accelerator found\n"},
        {"output_type": "execute_result", "data": {"text/plain": "Case(14)"}},
        {"output_type": "display_data", "data": image},
    ]
    notebook = {"cells": [{"cell_type": "code", "source": ["show()"], "outputs": outputs}]}
    page, figures = hook("site").notebook_page("notebooks/a.ipynb", notebook, "")
    assert re.findall(r"42 MW|Case\(14\)|no accelerator|a_1\.png", page) == ["42 MW", "Case(14)", "a_1.png"]
    assert page.index("show()") < page.index("42 MW") and figures == {"a_1.png": b"hello"}


@pytest.mark.full
def test_the_gallery_shows_pictures_that_the_build_has_drawn(built):
    shown = re.findall(r'<img src="(gallery/[^"]+)" alt="([^"]+)"', (built / "gallery.html").read_text("utf-8"))
    drawn = {path.relative_to(built).as_posix() for path in (built / "gallery").glob("*.svg")}
    assert len(shown) == len(drawn) >= 5 and {path for path, _ in shown} == drawn
    for path in drawn:
        root = ElementTree.parse(built / path).getroot()
        assert root.tag.endswith("svg") and len(list(root.iter())) > 50


@pytest.mark.full
def test_formulas_are_drawn_and_amounts_of_money_are_not(built):
    pages = {path.relative_to(built): path.read_text(encoding="utf-8") for path in built.rglob("*.html")}
    assert [path for path, text in pages.items() if 'class="arithmatex"' in text] == []
    drawn = {path.with_suffix(".md") for path, text in pages.items() if 'class="formula"' in text}
    sources = {p.relative_to(ROOT / "docs"): p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md")}
    assert {path for path, text in sources.items() if "$$" in text} - drawn == set()
    # all else is prose and tables with amounts of money: tasks, data, leaderboard, notebooks, the reference
    assert [path for path in drawn if "$$" not in sources.get(path, "") and path.stem != "reinforcement_learning"] == []


def test_every_link_that_needs_an_address_follows_from_those_of_the_project():
    """Without addresses there is none; with them the repository, its edit links, the sitemap and Colab are linked."""
    site, notebook = hook("site"), {"cells": [{"cell_type": "markdown", "source": ["text"]}]}
    assert site.addresses({}) == {} and site.notebook_page("notebooks/a.ipynb", notebook, "") == ("text\n", {})
    urls = {"Repository": "https://github.com/owner/name/", "Documentation": "https://owner.example/docs"}
    assert site.addresses(urls) == {
        "repo_url": "https://github.com/owner/name",
        "edit_uri": "edit/HEAD/docs/",
        "site_url": "https://owner.example/docs/",
    }
    page, _ = site.notebook_page("notebooks/a.ipynb", notebook, urls["Repository"])
    assert "https://colab.research.google.com/github/owner/name/blob/HEAD/notebooks/a.ipynb" in page


@pytest.mark.full
def test_a_drawing_stays_inside_its_box_and_keeps_the_text():
    """The tail of y and the bar over z lie in the box too; an unknown command stops the build."""
    svg = hook("formulas").drawn(r"y_j = \overline{z} < 1", alone=False)
    left, top, width, height = map(int, re.search(r'viewBox="([^"]+)"', svg)[1].split())
    numbers = [int(x) for x in re.findall(r"-?\d+", re.search(r' d="([^"]+)"', svg)[1])]
    x, y = numbers[::2], numbers[1::2]
    assert left <= min(x) < max(x) <= left + width and top <= min(y) < 0 < max(y) <= top + height
    assert r"<title>y_j = \overline{z} &lt; 1</title>" in svg
    with pytest.raises(ValueError, match="nosuchcommand"):
        hook("formulas").drawn(r"\nosuchcommand", alone=False)


@pytest.mark.tiers("full", long=["study"])
@pytest.mark.parametrize("page", hook("site").API)
def test_an_api_page_holds_every_public_name_of_its_modules(built, page):
    text = (built / "api" / f"{page}.html").read_text(encoding="utf-8")
    names = [name for module in hook("site").API[page][1] for name in hook("site").public_names(module)]
    assert names and [name for name in names if f'id="{name}"' not in text] == []


@pytest.mark.full
def test_the_reference_lists_what_a_folder_offers_and_keeps_its_tables(built):
    names = {name.rpartition(".")[2] for name in hook("site").public_names("powerzoo_jax.powerflow")}
    public = [name for name in dir(powerzoo_jax.powerflow) if not name.startswith("_")]
    assert names == {n for n in public if not inspect.ismodule(getattr(powerzoo_jax.powerflow, n))}
    page = (built / "api" / "powerflow.html").read_text(encoding="utf-8")
    assert "v_re, v_im:    (N,)  [pu]  rectangular bus voltages" in page  # a table of fields keeps its lines


@pytest.mark.full
def test_every_folder_of_the_package_is_in_the_reference():
    listed = {module for _, modules in hook("site").API.values() for module in modules}
    folders = {
        p.parent.relative_to(ROOT)
        for p in (ROOT / "powerzoo_jax").rglob("__init__.py")
        if " as " in p.read_text("utf-8")
    }
    tools = {"powerzoo_jax.cli"}  # the command line
    assert {".".join(folder.parts) for folder in folders} - tools <= listed


@pytest.mark.full
def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    assert pages and [page for page in pages if f": {page}" not in menu] == []


@pytest.mark.full
def test_examples_and_tables_of_a_docstring_keep_their_lines():
    fenced = hook("docstrings").fenced
    assert fenced("Example:\n    x = 1\n    y = 2") == "Example:\n\n```python\nx = 1\ny = 2\n```"
    assert fenced("p_mw:  (G,)  [MW]\nsoc:   (G,)  [-]") == "```text\np_mw:  (G,)  [MW]\nsoc:   (G,)  [-]\n```"
    assert fenced("Raises ValueError: never.") == "Raises ValueError: never."
    assert fenced("Nothing raises.") == "Nothing raises."
    assert fenced("p, **kwargs: passed on").startswith("```text\n")
    assert fenced("Results of a solve: the state, a status.") == "Results of a solve: the state, a status."
    assert fenced("an entry a[0][1], or `a[0][1]`") == "an entry a[0]\\[1], or `a[0][1]`"


@pytest.mark.full
def test_links_of_the_repository_become_links_of_the_site():
    site = hook("site")

    class Page:
        class file:
            src_uri = "howto/train_safely.md"

    text = "[a](../../compat/README.md) [b](../data.md#sets) [c](https://x.org/y)"
    turned = site.on_page_markdown(text, Page, config={})
    assert turned == "[a](../views.md) [b](../data.md#sets) [c](https://x.org/y)"
