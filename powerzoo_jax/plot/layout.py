"""Layout of networks without coordinates, and the figures, colours and files that all pictures share.

Buses are laid out as a tree or by springs; colours are told apart by any eye, figures need no window.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import missing_extra
from powerzoo_jax.base.files.results import writing
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import RadialOrder, branch_positions, is_radial, islands, radial_order

# Okabe and Ito's palette: told apart with any colour vision; line styles repeat the distinction in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
HATCHES = ("", "//", "..", "\\\\", "xx", "--", "++", "oo")
LIMIT = "#000000"
ALARM = "#D55E00"
FOR_PAPERS: dict[Any, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "powerzoo_jax"}
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
LIMIT_LINE = {"color": LIMIT, "linestyle": (0, (1, 2)), "linewidth": 1.0}


def new_figure(width: float, height: float) -> Any:
    """A matplotlib Figure [inch] without pyplot: no window, no global state, no change of a notebook's backend.

    Raises ImportError, naming the extra, where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ImportError(missing_extra("A picture", "matplotlib", "viz")) from err
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: str | Path, dpi: int = 120) -> Path:
    """Write a figure to a file, whose ending is the format, in a folder that is made if need be; returns the path.

    .svg and .pdf are for papers: lines and letters, type that publishers accept (TrueType), and no date, so that the
    same figure is the same file. Raises ValueError for another ending than matplotlib writes.

    Example:
        save_figure(new_figure(3.5, 2.0), "results/figure.pdf")
    """
    import matplotlib

    target = Path(path)
    kind = target.suffix.removeprefix(".").lower()
    known = sorted(figure.canvas.get_supported_filetypes())
    if kind not in known:
        raise ValueError(f"{target}: no picture is written as {target.suffix!r}. Choose {', '.join(known)}.")
    with writing(target) as file, matplotlib.rc_context(FOR_PAPERS):
        figure.savefig(file.name, format=kind, dpi=dpi, metadata=UNDATED.get(kind))
    return target


def look(k: int) -> dict[str, Any]:
    """Colour and line style of the k-th line of a picture."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k % len(STYLES)], "linewidth": 1.6}


ROUNDS = 100  # of the stress iteration; far beyond where pictures stop changing


def locate_buses(case: Case) -> np.ndarray:
    """Coordinates (N, 2) [-] of the buses, on no map: a tree where the case is radial, else a spring layout.

    The same case always gives the same picture.
    """
    f, t = branch_positions(case)
    if is_radial(case):
        order = radial_order(case.n_bus, f, t, case.branch.in_service, int(case.slack_bus[0]))
        return tree_layout(order)
    on = case.branch.in_service
    return spring_layout(case.n_bus, f[on], t[on])


def locate_parts(n_bus: int, f: np.ndarray, t: np.ndarray, on: np.ndarray, root: int) -> np.ndarray:
    """Coordinates (N, 2) [-] of a network of any number of parts, below each other: a tree where a part is one.

    f, t: (L,) positions of the ends of the branches;  on: (L,) bool in service;  root: bus that the first tree hangs on
    """
    part, xy, floor = islands(n_bus, f, t, on), np.zeros((n_bus, 2)), 0.0
    for label in dict.fromkeys([int(part[root]), *part.tolist()]):
        at = np.flatnonzero(part == label)
        own = on & (part[f] == label)
        a, b = np.searchsorted(at, f[own]), np.searchsorted(at, t[own])
        if len(a) == len(at) - 1:
            first = int(np.searchsorted(at, root)) if part[root] == label else 0
            here = tree_layout(radial_order(len(at), a, b, np.ones(len(a), bool), first))
        else:
            here = spring_layout(len(at), a, b)
        xy[at] = here + np.array([0.0, floor - here[:, 1].max()])
        floor = xy[at, 1].min() - 1
    return xy


def tree_layout(tree: RadialOrder) -> np.ndarray:
    """Coordinates (N, 2): the column is the distance from the root, the longest path runs straight, laterals beside it.

    Buses out of reach stand in a row below.
    """
    chains = _chains(tree)
    row = np.zeros(len(tree.parent), np.int64)
    taken: dict[int, set[int]] = {}
    for chain in chains:
        start = int(tree.parent[chain[0]])
        columns = range(int(tree.depth[chain[0]]) - (start >= 0), int(tree.depth[chain[-1]]) + 1)
        home = 0 if start < 0 else int(row[start])
        level = _free_row(home, columns, taken) if start >= 0 else 0
        row[list(chain)] = level
        taken.setdefault(level, set()).update(columns)
    xy = np.stack([tree.depth, row], axis=1).astype(float)
    lost = np.flatnonzero(tree.depth < 0)
    xy[lost] = np.stack([np.arange(len(lost)), np.full(len(lost), row.min() - 2)], axis=1)
    return xy


def _chains(tree: RadialOrder) -> list[list[int]]:
    """The tree cut into paths: each bus goes on with the child that reaches farthest; the longest path comes first."""
    reach = tree.depth.copy()
    for bus in reversed(tree.order.tolist()):
        if tree.parent[bus] >= 0:
            reach[tree.parent[bus]] = max(reach[tree.parent[bus]], reach[bus])
    heir: dict[int, int] = {}
    for bus in tree.order.tolist():
        parent = int(tree.parent[bus])
        if parent >= 0 and (parent not in heir or reach[bus] > reach[heir[parent]]):
            heir[parent] = bus
    heads = [bus for bus in tree.order.tolist() if heir.get(int(tree.parent[bus])) != bus]
    chains = []
    for head in heads:
        chain = [head]
        while chain[-1] in heir:
            chain.append(heir[chain[-1]])
        chains.append(chain)
    return chains


def _free_row(home: int, columns: range, taken: dict[int, set[int]]) -> int:
    """The nearest row in which the columns are free; above before below."""
    wanted = set(columns)
    steps = (sign * k for k in range(1, len(taken) + 2) for sign in (1, -1))
    return next(home + step for step in steps if wanted.isdisjoint(taken.get(home + step, ())))


def spring_layout(n_bus: int, f: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Coordinates (N, 2) whose distances are as near to the number of branches between buses as a plane allows.

    Minimises  sum_ij d_ij^-2 (|x_i - x_j| - d_ij)^2  by majorisation from classical scaling (Gansner, Koren and North
    2004, doi:10.1007/978-3-540-31843-9_25). Parts that no branch joins stand apart.
    """
    if n_bus < 3:
        return np.stack([np.arange(n_bus), np.zeros(n_bus)], axis=1).astype(float)
    distance = _hops(n_bus, f, t)
    weight = 1 / np.where(np.eye(n_bus, dtype=bool), 1, distance) ** 2
    np.fill_diagonal(weight, 0)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    inverse = np.linalg.inv(laplacian + 1 / n_bus)  # the constant vector, its null space, made regular
    xy = _classical(distance)
    for _ in range(ROUNDS):
        apart = np.linalg.norm(xy[:, None] - xy[None], axis=2)
        pull = weight * distance / np.maximum(apart, 1e-9)  # 0 / 0 on the diagonal
        moved = inverse @ (pull.sum(axis=1)[:, None] * xy - pull @ xy)
        still = np.abs(moved - xy).max() < 1e-3  # of the length of a branch: nothing that an eye could see
        xy = moved - moved.mean(axis=0)
        if still:
            break
    return _lying(xy)


def _hops(n_bus: int, f: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Number of branches between any two buses, (N, N); one more than the largest where there is no path."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    graph = coo_array((np.ones(len(f)), (f, t)), (n_bus, n_bus)).tocsr()
    hops = shortest_path(graph, directed=False, unweighted=True)
    return np.where(np.isfinite(hops), hops, hops[np.isfinite(hops)].max() + 1)


def _classical(distance: np.ndarray) -> np.ndarray:
    """Classical scaling: the two leading axes of the doubly centred squared distances."""
    from scipy.sparse.linalg import eigsh

    square = distance**2
    inner = -0.5 * (square - square.mean(axis=0) - square.mean(axis=1)[:, None] + square.mean())
    if len(inner) < 4:  # too small for the iterative solver
        values, vectors = np.linalg.eigh(inner)
        values, vectors = values[-2:], vectors[:, -2:]
    else:
        values, vectors = eigsh(inner, k=2, which="LA", v0=np.cos(np.arange(len(inner))))
    return vectors * np.sqrt(np.maximum(values, 1e-9))


def _lying(xy: np.ndarray) -> np.ndarray:
    """Coordinates with the widest direction turned horizontal; the first bus is left of the middle and not above it."""
    _, _, axes = np.linalg.svd(xy - xy.mean(axis=0), full_matrices=False)
    turned = xy @ axes.T
    return turned * np.where(turned[0] > 0, -1.0, 1.0)
