"""The README as a package index shows it: links lead to the repository, or are text where none is named."""

from __future__ import annotations

from pathlib import Path

from tests.docs.scripts import load

ROOT = Path(__file__).resolve().parents[2]
hatch_build = load(ROOT / "hatch_build.py")

TEXT = """![A picture](docs/a.png) and [a page](docs/a.md#part), [a site](https://x.org/y), [a part](#part).

```python
a = table[0](index)
```
"""


def test_links_lead_to_the_repository_that_the_project_names():
    text = hatch_build.absolute(TEXT, "https://x.org/pz/")
    assert "![A picture](https://x.org/pz/raw/HEAD/docs/a.png)" in text
    assert "[a page](https://x.org/pz/blob/HEAD/docs/a.md#part)" in text
    assert "[a site](https://x.org/y), [a part](#part)" in text and "table[0](index)" in text


def test_without_a_repository_a_link_is_its_text():
    text = hatch_build.absolute(TEXT, "")
    assert text.startswith(" and a page, [a site](https://x.org/y), [a part](#part).") and "table[0](index)" in text
