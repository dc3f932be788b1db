"""A small network of our own in the UCTE format (UCTE data exchange format, version 2: columns of fixed width)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

NAME = "20070501_0000_FO4_UX0.uct"  # pandapower reads date and kind of the file from its name


def _node(code: str, kind: int, kv: float, p: float = 0.0, q: float = 0.0, output: float = 0.0) -> str:
    """Load and output [MW], [Mvar]; what is generated is negative. kind: 0 PQ, 2 PU, 3 slack."""
    numbers = (kv, p, q, output, 0.0, 0.0, -500.0, 300.0, -300.0)
    return f"{code:8s} {'':12s} 0 {kind} {numbers[0]:6.1f} " + " ".join(f"{x:7.1f}" for x in numbers[1:])


def _line(a: str, b: str, r_ohm: float, x_ohm: float, b_us: float) -> str:
    return f"{a:8s} {b:8s} 1 0 {r_ohm:6.4f} {x_ohm:6.3f} {b_us:8.2f} {2000:6d}"


def text() -> str:
    """Three nodes of 380 kV in a ring, and one of 220 kV behind a transformer three steps off its middle."""
    a, b, c, d = "FAAAAA11", "FBBBBB11", "FCCCCC11", "FDDDDD21"
    nodes = [_node(a, 3, 405.0), _node(b, 0, 0.0, 120.0, 40.0), _node(c, 2, 400.0, 50.0, 10.0, -100.0)]
    nodes.append(_node(d, 0, 0.0, 60.0, 20.0))
    lines = [_line(a, b, 1.1, 11.0, 120.0), _line(b, c, 0.9, 9.0, 90.0), _line(a, c, 1.3, 14.0, 150.0)]
    transformer = f"{b:8s} {d:8s} 1 0 400.0 220.0 400.0 0.9000 30.000  -1.2000 0.5000   1000"
    steps = f"{b:8s} {d:8s} 1  1.00 10   3"
    parts = ["##C 2007.05.01", "##N", "##ZFR", *nodes, "##L", *lines, "##T", transformer, "##R", steps, "##TT", "##E"]
    return "\n".join([*parts, ""])


def ucte_net() -> Any:
    """pandapower net of the file (needs pandapower)."""
    from pandapower.converter.ucte import from_ucte

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        path.write_text(text())
        return from_ucte(str(path), slack_as_gen=False)
