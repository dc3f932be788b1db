"""Cut a network into blocks that touch each other only through a few separating buses (host, once per grid).

With the separating buses taken out the blocks are independent, so a constant inverse of the whole network needs one
small dense inverse per block and one for the separators: nested dissection of one level (George 1973,
doi:10.1137/0710032), with dense leaves because dense products are what a processor does best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

SMALL = 64  # buses up to which the spectrum comes from the dense matrix
BALANCE = (0.4, 0.6)  # share of the weight on either side of a cut: unequal blocks are padded to the largest
HALF_RATE = 8.0  # unknowns of a block at which a product runs at half its best rate
FEWEST = 48  # unknowns below which one dense inverse is always faster


class Dissection(NamedTuple):
    """parts: buses of each block; separator: buses between them; buses of weight 0 are in neither."""

    parts: list[np.ndarray]
    separator: np.ndarray


def dissect(f: np.ndarray, t: np.ndarray, weight: np.ndarray) -> Dissection:
    """Choose the cut of a network that makes applying its blocked inverse cheapest.

    f, t:    (L,) bus positions of the branches in service
    weight:  (N,) unknowns per bus; 0 leaves a bus out
    """
    n = len(weight)
    graph = sp.csr_matrix((np.ones(2 * len(f)), (np.r_[f, t], np.r_[t, f])), (n, n))
    graph.setdiag(0)
    graph.eliminate_zeros()
    kept = np.flatnonzero(weight > 0)
    best = Dissection([kept], np.zeros(0, np.int64))
    if weight.sum() < FEWEST:
        return best
    parts, separator = [kept], best.separator
    lowest = _cost(graph, weight, best)
    while max(len(p) for p in parts) > 2 and len(parts) < n // 4:
        for _ in range(len(parts)):
            parts.sort(key=lambda p: weight[p].sum())
            part = parts.pop()
            a, b, cut = _bisect(graph[part][:, part], weight[part])
            parts += [part[a], part[b]]
            separator = np.r_[separator, part[cut]]
        found = Dissection([p for p in parts if p.size], np.sort(separator))
        cost = _cost(graph, weight, found)
        if cost < lowest:
            best, lowest = found, cost
        elif cost > 1.5 * lowest:
            break
    return best


def touched(graph: sp.csr_matrix, part: np.ndarray, separator: np.ndarray) -> np.ndarray:
    """Separating buses with a neighbour in `part`."""
    return separator[np.asarray(graph[part][:, separator].sum(0)).ravel() > 0]


def _cost(graph: sp.csr_matrix, weight: np.ndarray, cut: Dissection) -> float:
    """Multiplications of one application, blocks padded to the largest, small products charged at their rate."""
    inner = max(weight[p].sum() for p in cut.parts)
    rim = max((weight[touched(graph, p, cut.separator)].sum() for p in cut.parts), default=0.0)
    rest = weight[cut.separator].sum()
    blocks = len(cut.parts) * (inner * inner + 2 * inner * rim) * (1 + HALF_RATE / inner)
    return float(blocks + (rest * rest * (1 + HALF_RATE / rest) if rest else 0.0))


def _bisect(graph: sp.csr_matrix, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split a graph in two by a set of vertices: positions (side a, side b, separator)."""
    order = np.argsort(_fiedler(graph), kind="stable")
    share = np.cumsum(weight[order]) / weight.sum()
    first, last = np.searchsorted(share, BALANCE)
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for count in range(max(int(first), 1), max(int(last), int(first), 1) + 1):
        left = np.zeros(len(weight), bool)
        left[order[:count]] = True
        cut = _cover(graph, left)
        a, b, s = (weight[m].sum() for m in (left & ~cut, ~left & ~cut, cut))
        cost = 2 * max(a, b) ** 2 + 4 * s * max(a, b) + s * s
        if best is None or cost < best[0]:
            best = (float(cost), left, cut)
    assert best is not None
    _, left, cut = best
    return np.flatnonzero(left & ~cut), np.flatnonzero(~left & ~cut), np.flatnonzero(cut)


def _fiedler(graph: sp.csr_matrix) -> np.ndarray:
    """A value per vertex along which cuts are short: the second eigenvector of the Laplacian.

    Of a graph in several pieces the largest is spread out that way, the others lie side by side before it.
    """
    n = graph.shape[0]
    count, label = connected_components(graph, directed=False)
    if count > 1:
        biggest = np.bincount(label).argmax()
        inside = np.flatnonzero(label == biggest)
        along = np.asarray(label - count - 2.0)
        along[inside] = _fiedler(graph[inside][:, inside])
        return along
    laplacian = sp.diags(np.asarray(graph.sum(1)).ravel()) - graph
    if n <= SMALL:
        return np.linalg.eigh(laplacian.toarray())[1][:, min(1, n - 1)]
    # the shift keeps the matrix regular; a fixed start keeps the result the same on every run
    values, vectors = spl.eigsh(laplacian.tocsc(), k=2, sigma=-1e-3, v0=np.cos(np.arange(n)))
    return vectors[:, values.argmax()]


def _cover(graph: sp.csr_matrix, left: np.ndarray) -> np.ndarray:
    """Smallest set of vertices that touches every edge between the two sides, (N,) bool.

    Koenig's theorem: from a maximum matching, walk alternating paths from the unmatched left vertices; the cover is
    the left vertices not reached and the right vertices reached.
    """
    edges = graph.tocoo()
    crossing = left[edges.row] & ~left[edges.col]
    rows, row_of = np.unique(edges.row[crossing], return_inverse=True)
    columns, column_of = np.unique(edges.col[crossing], return_inverse=True)
    cover = np.zeros(len(left), bool)
    if rows.size == 0:
        return cover
    between = sp.csr_matrix((np.ones(row_of.size), (row_of, column_of)), (rows.size, columns.size))
    partner = maximum_bipartite_matching(between, perm_type="column")
    back = {int(c): r for r, c in enumerate(partner) if c >= 0}
    reached, seen = set(np.flatnonzero(partner < 0).tolist()), set()
    stack = sorted(reached)
    while stack:
        row = stack.pop()
        for column in between.indices[between.indptr[row] : between.indptr[row + 1]].tolist():
            if column in seen:
                continue
            seen.add(column)
            if column in back and back[column] not in reached:
                reached.add(back[column])
                stack.append(back[column])
    cover[rows[[r for r in range(rows.size) if r not in reached]]] = True
    cover[columns[sorted(seen)]] = True
    return cover
