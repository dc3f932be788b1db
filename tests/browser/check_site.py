"""Pages of the site in headless Chromium: `make test-browser`.

A page that is put beside them opens each in a frame of the width of a screen or of a phone, and writes down what is
wider than it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.check_page import chromium

ROOT = Path(__file__).resolve().parents[2]
MEASURE = """<body><script>
const frame = document.createElement("iframe"), found = {};
frame.style = "border: 0; width: WIDTHpx; height: 900px";
document.body.append(frame);
(async () => {
  for (const page of PAGES) {
    await new Promise(opened => { frame.onload = opened; frame.src = page; });
    await new Promise(drawn => setTimeout(drawn, 50));
    const page_ = frame.contentDocument, excess = box => box.scrollWidth - box.clientWidth;
    const tables = [...page_.querySelectorAll("article table")];
    found[page] = {
      tables: tables.length,
      wide: tables.filter(table => Math.max(excess(table), excess(table.parentElement)) > 1)
        .map(table => table.innerText.slice(0, 60)),
      sideways: excess(page_.scrollingElement),
    };
  }
  const shown = document.createElement("script");
  shown.type = "report";
  shown.textContent = JSON.stringify(found);
  document.body.append(shown);
})();
</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site without episodes, which are no pages of it."""
    target = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "EPISODES": " "}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def measured(site: Path, width: int) -> dict[str, dict]:
    """Tables of every page, those that are wider than it, and by how much the page is wider than its frame [px]."""
    pages = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    pages = [page for page in pages if page not in ("404.html", "episode.html", "measure.html")]
    target = site / "measure.html"
    target.write_text(MEASURE.replace("WIDTH", str(width)).replace("PAGES", json.dumps(pages)), encoding="utf-8")
    # pages of one folder may look at each other; no host has an address
    options = ["--allow-file-access-from-files", "--disable-web-security", "--host-resolver-rules=MAP * ~NOTFOUND"]
    options += [f"--user-data-dir={site.parent / 'user'}", f"--window-size={width + 50},1000"]
    command = [*chromium(), *options, "--virtual-time-budget=600000", "--dump-dom", target.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    report = re.search(r'<script type="report">(.*?)</script>', done.stdout, re.DOTALL)
    assert report, done.stderr
    found = json.loads(report[1])
    assert found.keys() == set(pages) and sum(page["tables"] for page in found.values()) > 100
    return found


def test_no_table_is_wider_than_its_page(site):
    found = measured(site, 1400)
    assert {page: told["wide"] for page, told in found.items() if told["wide"]} == {}


@pytest.mark.parametrize("width", [390, 1400])
def test_no_page_scrolls_sideways(site, width):
    assert {page: told["sideways"] for page, told in measured(site, width).items() if told["sideways"] > 0} == {}
