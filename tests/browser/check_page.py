"""Pages of episodes in headless Chromium: `make test-browser`.

Not collected by the other targets, which need no browser. A script put into the page presses its keys and writes down
what changed; the page is then read back with its document as it stands.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from powerzoo_jax.plot import episode_html
from tests.plot.test_page import made_up, table

NAMES = ("chromium", "chromium-browser", "google-chrome")
REMEDY = "chromium is not installed. On Debian: apt-get update && apt-get install -y chromium"
CAUGHT = """<script>
window.caught = [];
addEventListener("error", e => caught.push(String(e.message)));
addEventListener("unhandledrejection", e => caught.push(String(e.reason)));
for (const level of ["error", "warn"]) console[level] = (...words) => caught.push(words.join(" "));
</script>"""
DRIVEN = """<script>{ // names of its own beside those of the page
const found = {};
const press = key => dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const fills = () => [...document.querySelectorAll(".bus")].map(dot => dot.getAttribute("fill")).join();
const now = () => document.body.dataset.step;
const slider = document.querySelector("#slider"), before = fills();
slider.value = 10;
slider.dispatchEvent(new Event("input"));
const map = document.querySelector("svg.map");
found.split = map && [map.querySelectorAll(".bus[visibility=visible]").length,
  map.querySelectorAll("line[stroke-dasharray='1 5']").length];
found.slider = [now(), document.querySelector("#clock").textContent, fills() !== before];
press("ArrowRight"); found.right = now();
press("PageDown"); found.page = now();
press("End"); found.end = now();
press("Home"); found.home = now();
press("2"); found.hidden = [...document.querySelectorAll("#maps > .card")].map(card => card.hidden);
press("2");
const last = [...document.querySelectorAll("circle.hit")].at(-1), tip = document.querySelector("#tip");
if (last) last.dispatchEvent(new PointerEvent("pointermove", { clientX: 50, clientY: 50 }));
found.tip = tip.textContent;
tip.hidden = true;
const dashed = svg => svg.querySelectorAll("line[stroke-dasharray]").length;
found.limits = [...document.querySelectorAll("#charts > .card")].map(card => [card.querySelector("b").textContent,
  dashed(card.querySelector("svg"))]);
found.rows = [...document.querySelectorAll(".heat .names div")].map(row => row.textContent);
found.chips = [...document.querySelectorAll(".chip small")].map(text => text.textContent.trim());
found.maps = document.querySelectorAll("svg.map").length;
found.charts = document.querySelectorAll("#charts path").length;
const labels = svg => [...svg.querySelectorAll("text[x='40']")].map(text => text.textContent); // of the upright axis
found.labels = [...document.querySelectorAll("#charts svg")].map(labels);
found.broken = document.querySelector("main").innerHTML.includes("NaN");
found.wide = document.documentElement.scrollWidth > innerWidth;
found.loaded = performance.getEntriesByType("resource").map(entry => entry.name);
const shown = document.createElement("script");
shown.type = "report";
const write = () => { found.caught = caught; found.played = now(); shown.textContent = JSON.stringify(found); };
document.body.append(shown);
press(" ");
setTimeout(write, 1500);
}</script>"""


def chromium() -> list[str]:
    """Command that starts the browser without a window."""
    program = next((path for path in map(shutil.which, NAMES) if path), None)
    assert program, REMEDY
    return [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """A function that opens a page, (html, width, height, dark) -> (report of its script, picture (H, W, 3))."""
    folder = tmp_path_factory.mktemp("pages")

    def run(html: str, width: int, height: int, dark: bool) -> tuple[dict, np.ndarray]:
        page, picture = folder / "page.html", folder / "page.png"
        page.write_text(html.replace("<head>", f"<head>{CAUGHT}"), encoding="utf-8")
        options = [f"--window-size={width},{height}", f"--user-data-dir={folder / 'user'}"]
        options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        # no host has an address: what a page asked for from elsewhere would fail
        options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000"]

        def call(option: str) -> str:
            done = subprocess.run(
                [*chromium(), *options, option, page.as_uri()], capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        call(f"--screenshot={picture}")
        page.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{DRIVEN}</body>"), encoding="utf-8")
        report = re.search(r'<script type="report">(.*?)</script>', call("--dump-dom"), re.DOTALL)
        assert report, "the script of the page stopped before its end"
        return json.loads(report[1]), imread(Path(picture))[..., :3]

    return run


@pytest.mark.parametrize(
    ("width", "height", "dark"), [(1400, 1300, False), (1400, 1300, True), (390, 1800, False)], ids=str
)
def test_a_page_works_and_shows_what_it_says(browse, width, height, dark):
    report, picture = browse(episode_html([made_up("no_control", scale=0.2), made_up("rule")]), width, height, dark)
    assert report["caught"] == [] and report["loaded"] == []
    assert report["slider"] == ["10", "Sun 28 Feb 2016, 05:00", True]
    assert report["rows"] == ["battery at bus 33"] * 2
    limits = {"state of charge": 2, "lowest voltage": 1, "highest voltage": 1, "fullest branch": 1}
    limits["resource so far"] = 1
    assert {label: count for label, count in report["limits"] if count} == limits
    assert report["chips"][2].endswith("$ to no control")
    assert [report[key] for key in ("right", "page", "end", "home")] == ["11", "21", "47", "0"]
    assert report["hidden"] == [False, True]
    assert report["tip"].startswith("bus 33\n") and "battery at bus 33: " in report["tip"] and "action" in report["tip"]
    assert (report["maps"], report["broken"], report["wide"]) == (2, False, False)
    assert int(report["played"]) > 2
    assert picture.shape[:2] == (height, width)
    colours = np.unique(np.round(picture.reshape(-1, 3) * 255).astype(int), axis=0)
    assert len(colours) > 100
    assert (picture.mean() < 0.5) == dark
    thirds = [picture[k * height // 3 : (k + 1) * height // 3] for k in range(3)]
    assert all(part.std() > 0.01 for part in thirds)  # no part of it is blank


def test_an_island_without_a_network_has_charts_and_no_map(browse):
    report, _ = browse(episode_html(dataclasses.replace(made_up(), networks={})), 1400, 1300, False)
    assert report["caught"] == [] and report["maps"] == 0 and report["charts"] >= 4


def test_a_split_bus_is_two_dots_and_an_open_line_is_dashed(browse):
    trace = made_up()
    at = np.ones((len(trace), 32))
    here, there = at.copy(), at.copy()
    here[10, 4] = there[10, 3] = 2  # bus 5 is split: the line from bus 4 and that to bus 6 stand on its busbar 2
    here[10, 9] = 0
    second = np.full((len(trace), 33), np.nan)
    second[10, 4] = 0.9876
    ids, buses = trace["branch_flow_mw"].ids, trace["bus_voltage_pu"].ids
    tables = {
        **trace.tables,
        "branch_from_busbar": table(here, ids),
        "branch_to_busbar": table(there, ids),
        "bus_second_voltage_pu": table(second, buses, "pu"),
    }
    report, _ = browse(episode_html(dataclasses.replace(trace, tables=tables)), 1400, 1300, False)
    assert report["caught"] == [] and report["split"] == [1, 1] and not report["broken"]
    plain, _ = browse(episode_html(trace), 1400, 1300, False)
    assert plain["split"] == [0, 0]


def test_roundings_of_a_constant_are_no_curve(browse):
    """A market price that is 32.8925 but for its last digit had an axis of three lines, all called 32.89."""
    trace = made_up()
    price = 32.8924 + 2e-4 * np.random.default_rng(0).integers(2, size=(len(trace), 1))
    tables = {**trace.tables, "price_per_mwh": table(price, ("price",), "USD/MWh")}
    report, _ = browse(episode_html(dataclasses.replace(trace, tables=tables)), 1400, 1300, False)
    assert report["labels"] and all(len(set(axis)) == len(axis) > 1 for axis in report["labels"])
