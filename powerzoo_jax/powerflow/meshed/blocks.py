"""A network matrix in bordered blocks: factored in float64, applied to a batch as a handful of dense products.

With the unknowns ordered as (blocks b = 1..k, separators s), A x = y is

    A_b x_b + F_b x_s = y_b,    sum_b E_b x_b + A_s x_s = y_s
    z_b = A_b^-1 y_b,   x_s = (A_s - sum_b E_b A_b^-1 F_b)^-1 (y_s - sum_b E_b z_b),   x_b = z_b - A_b^-1 F_b x_s

(block elimination: Duff, Erisman and Reid, Direct Methods for Sparse Matrices, ch. 8). All blocks are padded to one
size, so a batch costs two batched products and one plain one, whatever the number of blocks.

The network is cut on the host, once per grid, into blocks that touch each other only through a few separating buses.
With these taken out the blocks are independent, so a constant inverse of the whole network needs one small dense
inverse per block and one for the separators: nested dissection of one level (George 1973, doi:10.1137/0710032), with
dense leaves because dense products are what a processor does best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl
from jax import Array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base import elimination, struct
from powerzoo_jax.base.double_single import Pair
from powerzoo_jax.base.numerics import einsum, matmul
from powerzoo_jax.base.solver_mode import AUTO, by_mode

SMALL = 64  # buses up to which the spectrum comes from the dense matrix
BALANCE = (0.4, 0.6)  # share of the weight on either side of a cut: unequal blocks are padded to the largest
HALF_RATE = 8.0  # unknowns of a block at which a product runs at half its best rate
FEWEST = 48  # unknowns below which one dense inverse is always faster


class Dissection(NamedTuple):
    """Cut of a network. parts: buses of each block; separator: buses between them; buses of weight 0 are in neither."""

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


@struct.dataclass(kw_only=True)
class BlockPlan:
    """Layout of bordered blocks: k blocks of u unknowns, each touching r of s separating unknowns, M unknowns in all.

    rows:       (k, u)  int32  unknown at each place of a block; padding repeats unknown 0 against zero columns
    real:       (k, u)  bool   places that hold an unknown
    sep_rows:   (s,)    int32  separating unknowns; padding is M
    near:       (k, r)  int32  separators (positions) that a block touches; padding is s
    far:        (s, m)  int32  positions among the k r border results that a separator collects; padding is k r
    place:      (M,)    int32  position of each unknown in (blocks, separators); 0 for a row that is not an unknown
    slots:      (E,)    int32  position of each matrix entry in (A_b, F_b, E_b, A_s); past the end where it is dropped
    """

    rows: Array
    real: Array
    sep_rows: Array
    near: Array
    far: Array
    place: Array
    slots: Array


@struct.dataclass(kw_only=True)
class Blocks:
    """Inverse of an (M, M) matrix.

    inner:  (k, u+r, u)  A_b^-1 on top of -E_b A_b^-1
    outer:  (k, u, r)    A_b^-1 F_b
    core:   (s, s)       inverse of the Schur complement
    """

    inner: Array
    outer: Array
    core: Array


class Bordered(NamedTuple):
    """Matrix in bordered form: diagonal (k, u, u), up (k, u, r), down (k, r, u), corner (s, s)."""

    diagonal: Array
    up: Array
    down: Array
    corner: Array


def plan_blocks(
    parts: Sequence[np.ndarray], separators: np.ndarray, rows: np.ndarray, columns: np.ndarray, size: int
) -> BlockPlan:
    """Lay a sparse matrix out in bordered blocks (host).

    parts:          unknowns of each block
    separators:     unknowns between the blocks
    rows, columns:  (E,) pattern of the matrix; an entry outside the unknowns is dropped
    size:           M, length of the vectors that the matrix is applied to
    """
    k, s = len(parts), len(separators)
    u = max(len(p) for p in parts)
    part_of, within = np.full(size, -1), np.zeros(size, np.int64)
    place, table, real = np.zeros(size, np.int64), np.zeros((k, u), np.int64), np.zeros((k, u), bool)
    for b, part in enumerate(parts):
        part_of[part], within[part] = b, np.arange(len(part))
        table[b, : len(part)], real[b, : len(part)] = part, True
    place[part_of >= 0] = (part_of * u + within)[part_of >= 0]
    part_of[separators], within[separators] = k, np.arange(s)
    place[separators] = k * u + np.arange(s)
    borders = _borders(part_of, within, rows, columns, k)
    r = max((len(b) for b in borders), default=0)
    near = np.full((k, r), s)
    in_border = np.zeros((k, s), np.int64)
    collected: list[list[int]] = [[] for _ in range(s)]
    for b, border in enumerate(borders):
        near[b, : len(border)] = border
        in_border[b, border] = np.arange(len(border))
        for j, position in enumerate(border):
            collected[position].append(b * r + j)
    far = np.full((s, max((len(c) for c in collected), default=0)), k * r)
    for position, sources in enumerate(collected):
        far[position, : len(sources)] = sources
    slots = _slots(part_of, within, in_border, rows, columns, (k, u, r, s))
    leaves = dict(rows=table, sep_rows=separators, near=near, far=far, place=place, slots=slots)
    return BlockPlan(real=jnp.asarray(real), **{key: jnp.asarray(value, jnp.int32) for key, value in leaves.items()})


def _borders(
    part_of: np.ndarray, within: np.ndarray, rows: np.ndarray, columns: np.ndarray, k: int
) -> list[np.ndarray]:
    """Separators that each block is coupled with, in either direction."""
    found: list[set[int]] = [set() for _ in range(k)]
    for a, b in ((rows, columns), (columns, rows)):
        inside = (part_of[a] >= 0) & (part_of[a] < k) & (part_of[b] == k)
        for block, position in zip(part_of[a][inside].tolist(), within[b][inside].tolist(), strict=True):
            found[block].add(position)
    return [np.array(sorted(f), np.int64) for f in found]


def _slots(
    part_of: np.ndarray,
    within: np.ndarray,
    in_border: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    sizes: tuple[int, int, int, int],
) -> np.ndarray:
    k, u, r, s = sizes
    a, b, i, j = part_of[rows], part_of[columns], within[rows], within[columns]
    ends = np.cumsum([k * u * u, k * u * r, k * r * u, s * s])
    slots = np.full(rows.shape, ends[-1])
    inside = (a >= 0) & (a < k) & (a == b)
    slots[inside] = (a * u * u + i * u + j)[inside]
    up = (a >= 0) & (a < k) & (b == k)
    slots[up] = ends[0] + a[up] * u * r + i[up] * r + in_border[a[up], j[up]]
    down = (a == k) & (b >= 0) & (b < k)
    slots[down] = ends[1] + b[down] * r * u + in_border[b[down], i[down]] * u + j[down]
    corner = (a == k) & (b == k)
    slots[corner] = (ends[2] + i * s + j)[corner]
    return slots


def border(plan: BlockPlan, entries: Array, padding: float = 1.0) -> Bordered:
    """Put matrix entries (E,) into bordered form; the diagonal of padding gets a number of its own."""
    k, u = plan.rows.shape
    r, s = plan.near.shape[1], plan.sep_rows.shape[0]
    sizes = (k * u * u, k * u * r, k * r * u, s * s)
    flat = jnp.zeros(sum(sizes), entries.dtype).at[plan.slots].add(entries, mode="drop")
    a, b, c, d = jnp.split(flat, np.cumsum(sizes)[:-1].tolist())
    diagonal = a.reshape(k, u, u)
    at = jnp.arange(u)
    diagonal = diagonal.at[:, at, at].add(jnp.where(plan.real, 0, padding).astype(entries.dtype))
    empty = plan.sep_rows >= plan.place.shape[0]
    corner = d.reshape(s, s) + jnp.diag(jnp.where(empty, padding, 0).astype(entries.dtype))
    return Bordered(diagonal, b.reshape(k, u, r), c.reshape(k, r, u), corner)


def _schur(plan: BlockPlan, matrix: Bordered, eliminated: Array) -> Array:
    """A_s - sum_b E_b A_b^-1 F_b, with A_b^-1 F_b given."""
    update = matmul(matrix.down, eliminated)
    return matrix.corner.at[plan.near[:, :, None], plan.near[:, None, :]].add(-update, mode="drop")


def invert(plan: BlockPlan, matrix: Bordered) -> Blocks:
    """Invert a bordered matrix block by block, in the dtype of its entries (float64 is meant)."""
    real = plan.real[:, :, None] & plan.real[:, None, :]
    inverse = jnp.where(real, _inverse(matrix.diagonal), 0)
    outer = matmul(inverse, matrix.up)
    inner = jnp.concatenate([inverse, -matmul(matrix.down, inverse)], axis=1)
    core = _schur(plan, matrix, outer)
    return Blocks(inner=inner, outer=outer, core=_inverse(core) if core.size else core)


def invert_pairs(plan: BlockPlan, entries: Pair) -> Blocks:
    """Inverse of matrix entries (E,) in pairs of floats, rounded to floats; products and elimination in arrays only."""
    parts = border(plan, entries.high), border(plan, entries.low, padding=0.0)
    diagonal, up, down, corner = (Pair(a, b) for a, b in zip(*parts, strict=True))
    real = plan.real[:, :, None] & plan.real[:, None, :]
    inverse = Pair(*(jnp.where(real, x, 0) for x in elimination.inverse_pairs(diagonal)))
    outer, below = ds.matmul(inverse, up), ds.matmul(down, inverse)
    s = plan.sep_rows.shape[0]
    update = ds.negative(ds.matmul(down, outer))
    inside = plan.near < s
    at = plan.near[:, :, None] * s + plan.near[:, None]
    at = jnp.where(inside[:, :, None] & inside[:, None], at, s * s)
    place = jnp.concatenate([jnp.arange(s * s, dtype=at.dtype), at.reshape(-1)])
    terms = Pair(*(jnp.concatenate([x.reshape(-1), y.reshape(-1)]) for x, y in zip(corner, update, strict=True)))
    core = Pair(*(x.reshape(s, s) for x in ds.total_at(place, terms, s * s)))
    return Blocks(
        inner=jnp.concatenate([ds.value(inverse), -ds.value(below)], axis=1),
        outer=ds.value(outer),
        core=ds.value(elimination.inverse_pairs(core)),
    )


def _inverse(matrix: Array) -> Array:
    found: Array = by_mode(AUTO, jnp.linalg.inv, elimination.inverse, matrix)
    return found


def solve_bordered(plan: BlockPlan, matrix: Bordered, y: Array) -> Array:
    """Solve A x = y (M,) once, without an inverse; rows that are not unknowns return 0."""
    k, u = plan.rows.shape
    s = plan.sep_rows.shape[0]
    if k * u + s == 0:  # a network of one bus
        return jnp.zeros_like(y)
    inside = jnp.where(plan.real, y[plan.rows], 0)[:, :, None]
    both = jnp.linalg.solve(matrix.diagonal, jnp.concatenate([inside, matrix.up], axis=2))
    z, eliminated = both[:, :, 0], both[:, :, 1:]
    if s == 0:
        return jnp.where(_is_unknown(plan), z.reshape(-1)[plan.place], 0)
    right = y[plan.sep_rows].at[plan.near].add(-einsum("kru,ku->kr", matrix.down, z), mode="drop")
    between = jnp.linalg.solve(_schur(plan, matrix, eliminated), right)
    x = z - einsum("kur,kr->ku", eliminated, jnp.take(between, plan.near, mode="fill", fill_value=0))
    return jnp.where(_is_unknown(plan), jnp.concatenate([x.reshape(k * u), between])[plan.place], 0)


def _is_unknown(plan: BlockPlan) -> Array:
    """(M,) bool: rows that the plan gives a place."""
    marked = jnp.zeros(plan.place.shape[0], bool).at[jnp.where(plan.real, plan.rows, plan.place.shape[0])]
    return marked.set(True, mode="drop").at[plan.sep_rows].set(True)


def apply_blocks(plan: BlockPlan, blocks: Blocks, forcing: Array) -> Array:
    """Solve A x = y for a batch: forcing (M, B) -> (M, B); a row that is not an unknown returns another row's value.

    The caller masks those rows, usually in a loop of its own that this saves a pass over.
    """
    k, u = plan.rows.shape
    if k * u + plan.sep_rows.shape[0] == 0:  # a network of one bus
        return jnp.zeros_like(forcing)
    inside = matmul(blocks.inner, _rows(forcing, plan.rows.reshape(-1)).reshape(k, u, -1))
    if plan.sep_rows.shape[0] == 0:
        return _rows(inside.reshape(k * u, -1), plan.place)
    batch = forcing.shape[1]
    # one zero row at the end, which the padding of `far` and `near` reads
    results = inside[:, u:].reshape(-1, batch)
    results = jnp.concatenate([results, jnp.zeros((1, batch), results.dtype)])
    total = _rows(forcing, plan.sep_rows)
    for j in range(plan.far.shape[1]):
        total = total + _rows(results, plan.far[:, j])
    between = matmul(blocks.core, total)
    # padding of `near` is clipped to the last separator, against zero columns
    back = matmul(blocks.outer, _rows(between, plan.near.reshape(-1)).reshape(k, -1, batch))
    return _rows(jnp.concatenate([(inside[:, :u] - back).reshape(k * u, -1), between]), plan.place)


def transposed(plan: BlockPlan, blocks: Blocks) -> Blocks:
    """The inverse of the transposed matrix, from the same factors."""
    u = plan.rows.shape[1]
    inverse, down = blocks.inner[:, :u], blocks.inner[:, u:]
    inner = jnp.concatenate([inverse.swapaxes(1, 2), -blocks.outer.swapaxes(1, 2)], axis=1)
    return Blocks(inner=inner, outer=-down.swapaxes(1, 2), core=blocks.core.T)


def _rows(x: Array, index: Array) -> Array:
    return jnp.take(x, index, axis=0, mode="clip")
