"""Different meshed networks in one program: padded buses, branches and blocks are inert by construction (host)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.ranges import Count, Finite, as_numbers, checks_ranges
from powerzoo_jax.powerflow.admittances import BranchData
from powerzoo_jax.powerflow.meshed.base_case import StepCounts
from powerzoo_jax.powerflow.meshed.blocks import BlockPlan, Blocks
from powerzoo_jax.powerflow.meshed.factors import (
    BranchFlow,
    MeshedCore,
    MeshedFactors,
)
from powerzoo_jax.powerflow.meshed.layout import MeshedLayout, cut_runs


class Envelope(NamedTuple):
    """Sizes that hold every network of a stack.

    n_bus, n_branch:  buses and branches
    runs:             (begin, end, width) of the neighbour tables
    blocks:           (k, u, r, s, m) of the block plans
    """

    n_bus: int
    n_branch: int
    runs: tuple[tuple[int, int, int], ...]
    blocks: tuple[int, int, int, int, int]

    @property
    def starts(self) -> np.ndarray:
        """(N,) first table cell of each bus."""
        widths = np.concatenate([np.full(end - begin, width) for begin, end, width in self.runs])
        return np.cumsum(widths) - widths

    @property
    def cells(self) -> int:
        return sum((end - begin) * width for begin, end, width in self.runs)


def stack_meshed(factors: Sequence[MeshedFactors]) -> MeshedFactors:
    """Pad different networks to common sizes and stack them: one program solves them all, a network per lane.

        jax.vmap(solve_meshed)(stack_meshed([a, b]), p_pu, q_pu)

    factors:  from `prepare_meshed`, unbatched, of one dtype

    A padded bus stands at 1 pu without neighbours and injects nothing, a padded branch is out of service and carries
    nothing: leave it out of service in `with_branches`. Inputs come from `pad_injections`. Every lane costs what the
    envelope costs: a table row as wide as the widest of its rank, as many and as large blocks as any network has.

    Raises SolverError for no network, a batched one, or several dtypes.
    """
    _assert_alike(factors)
    host = [jax.tree.map(np.asarray, f) for f in factors]
    envelope = _envelope([f.layout for f in host])
    mix = any(f.mix for f in host)
    counts = StepCounts(*(max(count) for count in zip(*(f.counts for f in host), strict=True)))
    padded = [dataclasses.replace(_pad(f, envelope), mix=mix, counts=counts) for f in host]
    with jax.enable_x64(True):
        stacked: MeshedFactors = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *padded)
    return stacked


@checks_ranges("pad_injections")
def pad_injections(values: Sequence[Any], n_bus: Count, fill: Finite = 0.0) -> Array:
    """Injections of several networks, each (N_k,) [pu], as (K, n_bus) for `stack_meshed`; set-points take fill = 1."""
    rows = [as_numbers(f"pad_injections values[{k}]", v) for k, v in enumerate(values)]
    with jax.enable_x64(True):
        return jnp.asarray(np.stack([_widen(row, n_bus, fill=fill) for row in rows]))


def _assert_alike(factors: Sequence[MeshedFactors]) -> None:
    if not factors:
        raise SolverError("stack_meshed got no network. Give at least one, from `prepare_meshed`.")
    if any(f.v_base.ndim != 2 for f in factors):
        raise SolverError("stack_meshed got factors with a lane axis. Stack networks first, then vmap over lanes.")
    for one in factors:
        one.need_blocks("A stack of networks")
    dtypes = sorted({str(f.v_base.dtype) for f in factors})
    if len(dtypes) > 1:
        raise SolverError(f"stack_meshed got factors in {' and '.join(dtypes)}. Prepare all with one dtype.")


def _envelope(layouts: Sequence[MeshedLayout]) -> Envelope:
    n_bus = max(len(x.inward) for x in layouts)
    # buses stand by falling degree in every network, so the pointwise largest degree falls too and fits them all
    degree = np.max([_widen(_degrees(x), n_bus) for x in layouts], axis=0)
    sizes = [(*x.plan.rows.shape, x.plan.near.shape[1], *x.plan.far.shape) for x in layouts]
    return Envelope(
        n_bus=n_bus,
        n_branch=max(len(x.f) for x in layouts),
        runs=tuple(cut_runs(degree)),
        blocks=tuple(np.max(sizes, axis=0).tolist()),  # type: ignore[arg-type]
    )


def _cells(layout: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position of each table cell (C,): its bus, its column, and whether it holds a neighbour."""
    bus, column, begin = [], [], 0
    for nodes in layout.neighbours:
        rows, columns = np.indices(nodes.shape)
        bus.append(begin + rows.ravel())
        column.append(columns.ravel())
        begin += len(nodes)
    return np.concatenate(bus), np.concatenate(column), layout.back_cell < len(layout.back_cell)


def _degrees(layout: MeshedLayout) -> np.ndarray:
    bus, _, real = _cells(layout)
    return np.bincount(bus[real], minlength=len(layout.inward))


def _pad(f: Any, to: Envelope) -> MeshedFactors:
    """Widen one network; leaves are numpy arrays."""
    bus, column, real = _cells(f.layout)
    new_cell = (to.starts[bus] + column)[real]

    def table(values: tuple[np.ndarray, ...], empty: np.ndarray) -> tuple[np.ndarray, ...]:
        flat = empty.copy()
        flat[new_cell] = np.concatenate([x.ravel() for x in values])[real]
        edges = np.cumsum([(end - begin) * width for begin, end, width in to.runs])[:-1]
        parts = np.split(flat, edges)
        return tuple(x.reshape(-1, width) for x, (_, _, width) in zip(parts, to.runs, strict=True))

    def network(net: Any) -> Any:
        zero = np.zeros(to.cells, net.v_mag.dtype)
        names = [field.name for field in dataclasses.fields(net.tables[0])]
        wide = [table(tuple(getattr(x, name) for x in net.tables), zero) for name in names]
        tables = tuple(type(net.tables[0])(**dict(zip(names, run, strict=True))) for run in zip(*wide, strict=True))
        return dataclasses.replace(
            net, s_base=_widen(net.s_base, to.n_bus, 2), own=_widen(net.own, to.n_bus, 2), tables=tables
        )

    core = f.core
    main = dataclasses.replace(network(core.main), v_mag=_widen(core.main.v_mag, to.n_bus, fill=1))
    rest = dataclasses.replace(network(core.rest), v_mag=_widen(core.rest.v_mag, to.n_bus))
    v_base = _widen(f.v_base, to.n_bus, 2)
    v_base[f.n_bus :, 0] = 1
    own_bus = np.repeat(np.arange(to.n_bus), np.diff(np.r_[to.starts, to.cells])).astype(np.int32)
    padded: MeshedFactors = dataclasses.replace(
        f,
        layout=_layout(f.layout, to, new_cell, real, table(f.layout.neighbours, own_bus)),
        core=MeshedCore(main=main, rest=rest, blocks=_blocks(core.blocks, to)),
        flow=_flow(f.flow, to.n_branch),
        v_base=v_base,
        shunt=_widen(f.shunt, to.n_bus, 2),
        held=_widen(f.held, to.n_bus),
        branch=_branch(f.branch, to.n_branch),
        native=None,
    )
    return padded


def _layout(layout: Any, to: Envelope, new_cell: np.ndarray, real: np.ndarray, neighbours: Any) -> MeshedLayout:
    n, count = len(layout.inward), len(layout.back_cell)
    moved = np.full(count + 1, to.cells, np.int32)  # the last one is "nowhere"
    moved[:count][real] = new_cell
    back: Any = np.full(to.cells, to.cells, np.int32)
    back[new_cell] = moved[layout.back_cell[real]]
    slots = np.asarray(layout.plan.slots).reshape(4, count + n)
    dropped = sum(np.prod(shape) for shape in _shapes(*to.blocks[:4]))
    wide = np.full((4, to.cells + to.n_bus), dropped, np.int32)
    slots = _moved_slots(slots, _sizes(layout.plan), to.blocks)
    wide[:, new_cell] = slots[:, :count][:, real]
    wide[:, to.cells : to.cells + n] = slots[:, count:]
    inward, outward = (_widen(x, to.n_bus) for x in (layout.inward, layout.outward))
    inward[n:] = outward[n:] = np.arange(n, to.n_bus)
    return MeshedLayout(
        inward=inward,
        outward=outward,
        neighbours=neighbours,
        from_cell=_widen(moved[layout.from_cell], to.n_branch, fill=to.cells),
        to_cell=_widen(moved[layout.to_cell], to.n_branch, fill=to.cells),
        back_cell=back,
        f=_widen(layout.f, to.n_branch),
        t=_widen(layout.t, to.n_branch),
        plan=_plan(layout.plan, to, wide.ravel()),
        free=_widen(layout.free, to.n_bus, 2),
        slack=layout.slack,
    )


def _sizes(plan: BlockPlan) -> tuple[int, ...]:
    return (*plan.rows.shape, plan.near.shape[1], len(plan.sep_rows))


def _shapes(k: int, u: int, r: int, s: int) -> list[tuple[int, ...]]:
    """Shapes of A_b, F_b, E_b, A_s."""
    return [(k, u, u), (k, u, r), (k, r, u), (s, s)]


def _moved_slots(slots: np.ndarray, old: tuple[int, ...], new: tuple[int, ...]) -> np.ndarray:
    """Positions in matrices of other sizes; what was dropped stays past the end."""
    shapes = list(zip(_shapes(*old[:4]), _shapes(*new[:4]), strict=True))
    out = np.full(slots.shape, sum(np.prod(wide) for _, wide in shapes), np.int32)
    begin = begin_wide = 0
    for shape, wide in shapes:
        inside = (slots >= begin) & (slots < begin + np.prod(shape))
        if inside.any():
            at = np.unravel_index(slots[inside] - begin, shape)
            out[inside] = begin_wide + np.ravel_multi_index(at, wide)
        begin, begin_wide = begin + int(np.prod(shape)), begin_wide + int(np.prod(wide))
    return out


def _plan(plan: Any, to: Envelope, slots: Any) -> BlockPlan:
    k, u, r, s = _sizes(plan)
    big_k, big_u, big_r, big_s, big_m = to.blocks
    unknowns = len(plan.place)
    far = np.where(plan.far < k * r, plan.far // max(r, 1) * big_r + plan.far % max(r, 1), big_k * big_r)
    place = np.where(
        plan.place < k * u, plan.place // max(u, 1) * big_u + plan.place % max(u, 1), plan.place - k * u + big_k * big_u
    )
    sep_rows = np.where(plan.sep_rows < unknowns, plan.sep_rows, 2 * to.n_bus)
    return BlockPlan(
        rows=_widen(plan.rows, big_k, big_u),
        real=_widen(plan.real, big_k, big_u),
        sep_rows=_widen(sep_rows.astype(np.int32), big_s, fill=2 * to.n_bus),
        near=_widen(np.where(plan.near < s, plan.near, big_s).astype(np.int32), big_k, big_r, fill=big_s),
        far=_widen(far.astype(np.int32), big_s, big_m, fill=big_k * big_r),
        place=_widen(place.astype(np.int32), 2 * to.n_bus),
        slots=slots,
    )


def _blocks(blocks: Blocks, to: Envelope) -> Blocks:
    k, u, r, s, _ = to.blocks
    inverse, down = np.split(np.asarray(blocks.inner), [blocks.outer.shape[1]], axis=1)
    inner: Any = np.concatenate([_widen(inverse, k, u, u), _widen(down, k, r, u)], axis=1)
    return Blocks(
        inner=inner,
        outer=_widen(blocks.outer, k, u, r),
        core=_widen(blocks.core, s, s),
    )


def _flow(flow: BranchFlow, n_branch: int) -> BranchFlow:
    wide: BranchFlow = jax.tree.map(lambda x: _widen(x, n_branch, *x.shape[1:]), flow)
    return wide


def _branch(branch: BranchData, n_branch: int) -> BranchData:
    wide: BranchData = jax.tree.map(lambda x: _widen(x, n_branch), branch)
    return dataclasses.replace(wide, tap=_widen(branch.tap, n_branch, fill=1))


def _widen(x: Any, *shape: int, fill: float = 0) -> Any:
    """numpy x in the first corner of an array of this shape."""
    out = np.full(shape, fill, x.dtype)
    out[tuple(map(slice, x.shape))] = x
    return out
