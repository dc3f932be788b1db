"""Formulas of the pages as drawings: no script, no network, the same on paper and in either colour scheme.

`$...$` in a line and `$$...$$` in a paragraph of its own, which readers of the plain Markdown see as TeX, are found by
`pymdownx.arithmatex` and set by matplotlib's mathtext. A command that mathtext does not know stops the build.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath, TextToPath

SIZE = 100.0  # drawing units an em: whole numbers are then fine enough to store
FONT = FontProperties(size=SIZE, math_fontfamily="cm")
LETTER = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
FOUND = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Replace the formulas of a page, as `arithmatex` marks them, by their drawings."""
    return FOUND.sub(lambda match: drawn(unescape(match.group(2)).strip(), match.group(1) == "div"), html)


def drawn(tex: str, alone: bool) -> str:
    """Drawing of a formula as SVG, in the colour of the text and on its base line; `alone` centres it."""
    line = f"${' '.join(tex.split())}$"
    width, height, depth = TextToPath().get_text_width_height_descent(line, FONT, True)
    steps = []
    for points, code in TextPath((0, 0), line, size=SIZE, prop=FONT).iter_segments(simplify=False):
        flipped = points.reshape(-1, 2) * (1, -1)  # y points downwards in an SVG
        numbers = [] if code == Path.CLOSEPOLY else flipped.ravel()
        steps.append(LETTER[code] + " ".join(f"{x:.0f}" for x in numbers))
    box = f"0 {depth - height:.0f} {width:.0f} {height:.0f}"
    style = f"width:{width / SIZE:.2f}em;height:{height / SIZE:.2f}em;vertical-align:{-depth / SIZE:.2f}em"
    svg = (
        f'<svg class="formula" role="img" viewBox="{box}" style="{style};fill:currentColor;overflow:visible">'
        f'<title>{escape(tex)}</title><path d="{"".join(steps)}"/></svg>'
    )
    return f'<div style="text-align:center;overflow-x:auto;margin:1em 0">{svg}</div>' if alone else svg
