"""Factors of a meshed network: base state, admittances in deviation form, and the blocked inverse of its Jacobian.

Textbook symbols: V = Vb (1 + e), A_ij = Vb_i conj(Y_ij Vb_j), S_b = sum_j A_ij the injection at the base state.
Unknown 2 i is the angle of bus i, 2 i + 1 the logarithm of its magnitude; row 2 i is active, 2 i + 1 reactive power.
Inside the solver buses stand by falling number of neighbours, so that neighbours come in a few dense tables.
Admittances of the branches are those of `powerflow.admittances`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base import struct
from powerzoo_jax.base.double_single import Pair
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import FLOAT, resolve_dtype
from powerzoo_jax.base.ranges import Finite, checks_ranges
from powerzoo_jax.base.solver_mode import ADAPTIVE, AUTO, NATIVE, by_mode, check_mode
from powerzoo_jax.cases import Case, assert_valid
from powerzoo_jax.cases.topology import live_buses
from powerzoo_jax.powerflow.admittances import (
    BranchData,
    branch_parts,
    entries_of,
    inverse_ratio,
    jacobian_entries,
    real_pairs,
    series_admittance,
    stamps,
)
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from powerzoo_jax.powerflow.implicit import SWEEP_TOL
from powerzoo_jax.powerflow.meshed.base_case import (
    VOLTAGE_TOL,
    StepCounts,
    chord_rate,
    count_steps,
    dense_inverse,
    held_buses,
    refuse_busbars,
    refuse_references,
    solve_base,
    voltage_setpoints,
)
from powerzoo_jax.powerflow.meshed.blocks import Blocks, border, invert, invert_pairs
from powerzoo_jax.powerflow.meshed.layout import MeshedLayout, layout_of
from powerzoo_jax.powerflow.native.factors import NativeFactors, prepare_native
from powerzoo_jax.powerflow.native.library import library_for

MOST_GB = 4.0  # [1e9 bytes] arrays of the inverse in float64; making them takes some three times as much
MIX_ABOVE = 0.08  # share of the error that a chord step leaves, above which mixing pays for itself
DENSE = 300  # buses up to which one product with the whole inverse costs an accelerator less than many small ones


@struct.dataclass(kw_only=True)
class NeighbourTable:
    """Coefficients (n, m) of a run of n buses with m neighbours each; padding is zero.

    out_re, out_im:    A_ij of bus i and its neighbour j
    back_re, back_im:  A_ji, for products with the transposed matrix
    """

    out_re: Array
    out_im: Array
    back_re: Array
    back_im: Array


@struct.dataclass(kw_only=True)
class MeshedNetwork:
    """Numbers of the network, internal bus order.

    s_base:  (N, 2)  [pu]  injection at the base voltage
    own:     (N, 2)  [pu]  A_ii
    v_mag:   (N,)    [pu]  magnitude of the base voltage
    tables:  NeighbourTable of each run of buses
    """

    s_base: Array
    own: Array
    v_mag: Array
    tables: tuple[NeighbourTable, ...]


@struct.dataclass(kw_only=True)
class MeshedCore:
    """Data that the iteration reads.

    main, rest:  the network, and what its dtype rounds away: near collapse a rounding is amplified a hundredfold
    blocks:      inverse of the Jacobian at the base voltage, single precision also in x64: corrections need few digits
    whole:       (2N, 2N) the same inverse as one matrix, for accelerators; None in large networks and where branches
                 were changed on the device
    """

    main: MeshedNetwork
    rest: MeshedNetwork
    blocks: Blocks
    whole: Array | None = None

    @property
    def wide(self) -> MeshedNetwork:
        """The network in float64, whole."""
        return jax.tree.map(lambda a, b: a.astype(jnp.float64) + b.astype(jnp.float64), self.main, self.rest)


@struct.dataclass(kw_only=True)
class BranchFlow:
    """Branch currents in deviation form, case order: i = i_base (1 + e_to) + slope (e_from - e_to).

    f, t:          (L,)    int32  bus positions
    i_base:        (L, 2)  [pu]   series current at the base voltage
    slope:         (L, 2)  [pu]   y Vb_from / a
    i_rest, slope_rest:           what the dtype rounds away of both: a small current is a difference of large ones
    ratio:         (L, 2)  [-]    1 / a
    half_charging: (L,)    [pu]   0 out of service
    r, x:          (L,)    [pu]   0 out of service
    """

    f: Array
    t: Array
    i_base: Array
    slope: Array
    i_rest: Array
    slope_rest: Array
    ratio: Array
    half_charging: Array
    r: Array
    x: Array


@struct.dataclass(kw_only=True)
class MeshedFactors:
    """Prepared data of one network for `solve_meshed`. Map or share it between lanes.

    layout:  positions          core:  numbers of the iteration          flow:  branch flows
    v_base:  (N, 2)  [pu]   base voltage, case order
    shunt:   (N, 2)  [pu]   bus shunts g, b
    slack:   ()      int32  position of the slack bus
    held:    (N,)    bool   buses that hold their magnitude
    branch:  BranchData, raw
    mix:     static, whether the chord is accelerated
    counts:  static, steps of a solve that takes a fixed number of them
    native:  operands of the compiled kernel, None where the JAX form solves; a network that was prepared for the kernel
             alone has no `core.blocks`
    """

    AXES: ClassVar = {"N": "n_bus", "L": "branch.r_pu"}
    layout: MeshedLayout
    core: MeshedCore
    flow: BranchFlow
    v_base: Array
    shunt: Array
    slack: Array
    held: Array
    branch: BranchData
    mix: bool = struct.field(pytree_node=False, default=False)
    counts: StepCounts = struct.field(pytree_node=False, default=StepCounts(8, 6, 10))
    native: NativeFactors | None = None

    def need_blocks(self, what: str) -> None:
        """SolverError naming what takes the blocked inverse, where there is none."""
        if self.core.blocks is None:
            raise SolverError(
                f"{what} takes the JAX form, and these factors were prepared for the compiled kernel alone. Give "
                'prepare_meshed solver="adaptive".'
            )

    @property
    def n_bus(self) -> int:
        return self.v_base.shape[-2]


@on_host
@checks_ranges("prepare_meshed")
def prepare_meshed(
    case: Case,
    *,
    load_factor: Finite = 1.0,
    schedules: bool = False,
    dtype: Any = None,
    solver: str = AUTO,
) -> MeshedFactors:
    """Factor a network for `solve_meshed`.

    case:         one slack bus; PV buses, loops, taps, phase shifts, charging, shunts, several units per bus. An
                  isolated bus (kind 4) takes no part; its voltage is the set-point given for it, or 1 pu, at angle 0
    load_factor:  base point as a multiple of the nominal injections; choose the middle of the range you will solve
    schedules:    units will run anywhere in their range, so that a fixed number of steps is one for such states
    dtype:        float32 (None) or float64
    solver:       form that the factors are for. "native" is the compiled kernel alone, prepared in a moment; "adaptive"
                  and "fixed" are the JAX form; "auto" is both where the kernel is installed and JAX runs on a CPU, and
                  the kernel alone where the blocked inverse of the JAX form would be too large

    Raises CaseError for an invalid case, SolverError for several slack buses, for branches in service with |z| below
    1e-6 pu (float32) or 1e-7 pu (float64), for a network whose blocked inverse would not fit into memory, and for
    "native" without the kernel, ValueError for another solver, BaseLoadError when the base load has no solution.
    """
    dtype = resolve_dtype(dtype)
    check_mode(solver, NATIVE)
    assert_valid(case)
    refuse_busbars(case, dtype)
    refuse_references(case)
    s = load_factor * nominal_injection(case)
    v = solve_base(case, s, voltage_setpoints(case))
    library = library_for(solver)
    native = None if library is None else prepare_native(library, case, v)
    layout = layout_of(case, blocks=solver != NATIVE)
    with jax.enable_x64(True):
        branch = branch_data(case)
        consumed = np.stack([case.bus.gs_mw, case.bus.bs_mvar], 1) / case.base_mva
        shunt = np.where(live_buses(case)[:, None], consumed, 0.0)
        v_base = np.stack([v.real, v.imag], 1)
        if solver != NATIVE and _fits(case, layout, branch, shunt, v_base, needed=native is None):
            network, blocks, flow = _host(jax.jit(derive)(layout, branch, shunt, v_base))
            mix, tolerances = chord_rate(case, s, v) > MIX_ABOVE, (VOLTAGE_TOL[dtype.name], SWEEP_TOL[dtype.name])
            counts = count_steps(case, s, v, *tolerances, mixed=mix, schedules=schedules)
        else:
            layout = dataclasses.replace(layout, plan=None)  # type: ignore[arg-type]
            network, flow = _numbers_on_host(_host(layout), _host(branch), shunt, v_base)
            blocks, mix, counts = None, False, StepCounts(8, 6, 10)
        core: Any = _core(network, blocks, dtype)
        if blocks is not None and case.n_bus <= DENSE:
            whole = dense_inverse(case, v, np.asarray(layout.outward)).astype(FLOAT)
            core = dataclasses.replace(core, whole=whole)
        # everything outside the core in `dtype`
        outer: Any = {
            name: _floats(x, dtype) for name, x in dict(v_base=v_base, shunt=shunt, branch=_host(branch)).items()
        }
        place: Any = dict(slack=np.int32(case.slack_bus[0]), held=held_buses(case))
        rest: Any = dict(mix=mix, counts=counts, native=native)
        made: Any = MeshedFactors(layout=layout, core=core, flow=_flow_in(flow, dtype), **outer, **place, **rest)
        return jax.tree.map(jnp.asarray, made)  # type: ignore[no-any-return]


def _host(tree: Any) -> Any:
    """Arrays of a tree on the host, where a conversion needs no program of its own."""
    return jax.tree.map(np.asarray, tree)


def _fits(case: Case, *given: Any, needed: bool) -> bool:
    """Whether the arrays of the inverse can be made; SolverError where they are too large and needed."""
    derived = jax.eval_shape(derive, *given)
    size_gb = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(derived)) / 1e9
    if size_gb > MOST_GB and needed:
        raise SolverError(
            f"{case.name}: the blocked inverse of {case.n_bus} buses has {size_gb:.3g} GB, the limit is {MOST_GB:g}. "
            "Install the compiled kernel, which needs none (docs/powerflow.md), solve one state at a time by "
            "run_power_flow, whose factors are sparse, or study a part of the network."
        )
    return size_gb <= MOST_GB


def branch_data(case: Case) -> BranchData:
    """Branch parameters of a case in float64, in x64 mode."""
    b = case.branch
    numbers = dict(r_pu=b.r_pu, x_pu=b.x_pu, b_pu=b.b_pu, tap=b.tap, in_service=b.in_service)
    numbers["shift_rad"] = np.deg2rad(b.shift_deg)
    return BranchData(**{name: jnp.asarray(np.asarray(x, float)) for name, x in numbers.items()})


@checks_ranges("with_branches", options=BranchData)
def with_branches(factors: MeshedFactors, **changes: Array) -> MeshedFactors:
    """Factors of the same buses with other branch parameters, made on the device; vmap it for a grid per lane.

    changes:  fields of `BranchData`, (L,): in_service (0 or 1), r_pu, x_pu, b_pu, tap, shift_rad

    The base voltage stays: the deviation form is exact around any voltage, so a change costs iterations, not accuracy.
    An outage that islands a bus leaves its lane without a solution, and its status says so. A branch at an isolated
    bus stays out of service. Impedances are not checked: below those that `prepare_meshed` takes, derivatives lose
    their digits. Differentiable forward and reverse in the parameters and shunts.
    """
    factors.need_blocks("A network changed on the device")
    dtype = factors.v_base.dtype
    with jax.enable_x64(True):
        branch = jax.tree.map(jnp.asarray, dataclasses.replace(factors.branch, **changes))
        # statuses may come as whole numbers or flags
        branch = jax.tree.map(lambda x: x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(dtype), branch)
        core, flow = _derived(factors.layout, branch, factors.shunt, factors.v_base)
    # the kernel's operands are those of the network as it was prepared
    return dataclasses.replace(factors, core=core, flow=flow, branch=_floats(branch, dtype), native=None)


@jax.custom_jvp
def _derived(layout: MeshedLayout, branch: BranchData, shunt: Array, v_base: Array) -> tuple[MeshedCore, BranchFlow]:
    """Numbers of `derive`, found in twice the digits of float32 and stored in the dtype of v_base.

    With a derivative of its own: reverse mode runs outside of the context that float64 needs. So coefficients are found
    first, and tangents are multiplied by them and added up in the dtype of the program.
    """

    def wide(layout: MeshedLayout, *given: Any) -> tuple[MeshedCore, BranchFlow]:
        with jax.enable_x64(True):
            network, blocks, flow = derive(layout, *_floats(given, jnp.float64))
            return _core(network, blocks, v_base.dtype), _flow_in(flow, v_base.dtype)

    def pairs(*given: Any) -> tuple[MeshedCore, BranchFlow]:
        with jax.enable_x64(False):
            return _derive_pairs(*_floats(given, v_base.dtype))

    found: tuple[MeshedCore, BranchFlow] = by_mode(_width(v_base), wide, pairs, layout, branch, shunt, v_base)
    return found


def _width(x: Array) -> str:
    """Mode of float64 arithmetic: a float32 program takes it on a CPU only."""
    return AUTO if x.dtype == FLOAT else ADAPTIVE


@functools.partial(_derived.defjvp, symbolic_zeros=True)
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """Tangents of network and flows; the inverse only steers the iteration, and the base voltage is a constant."""
    layout, branch, shunt, v_base = primals
    out = core, flow = _derived(*primals)
    dtype = v_base.dtype
    varied = {f.name: getattr(tangents[1], f.name) for f in dataclasses.fields(BranchData)}
    varied = {name: t for name, t in varied.items() if not isinstance(t, SymbolicZero)}

    def slopes_in(width: Any, *given: Any) -> Any:
        with jax.enable_x64(True):
            return _floats(_slopes(tuple(varied), *_floats(given, width)), dtype)

    forms = (functools.partial(slopes_in, width) for width in (jnp.float64, dtype))
    slopes = by_mode(_width(v_base), *forms, layout, branch, v_base)
    numbers = jax.eval_shape(_branch_numbers, layout, _complex(v_base[layout.inward]), branch)
    moved = jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), numbers)
    for name, tangent in varied.items():
        by = tangent.astype(dtype)
        moved = jax.tree.map(lambda x, y, by=by: x + y * (by[:, None] if y.ndim == 2 else by), moved, slopes[name])
    d_shunt = jnp.zeros_like(shunt) if isinstance(tangents[2], SymbolicZero) else tangents[2]
    return out, (_core_tangent(layout, core, moved, d_shunt), _flow_tangent(flow, moved))


def _slopes(
    names: tuple[str, ...], layout: MeshedLayout, branch: BranchData, v_base: Array
) -> dict[str, dict[str, Array]]:
    """Derivatives of `_branch_numbers` by fields: a branch moves no numbers but its own, so a product with ones."""
    numbers = functools.partial(_branch_numbers, layout, _complex(v_base)[layout.inward])
    still = jax.tree.map(jnp.zeros_like, branch)
    ones = {name: dataclasses.replace(still, **{name: jnp.ones_like(still.r_pu)}) for name in names}
    return {name: jax.jvp(numbers, (branch,), (one,))[1] for name, one in ones.items()}


def _branch_numbers(layout: MeshedLayout, v: Array, branch: BranchData) -> dict[str, Array]:
    """Contribution of each branch to the network at base voltages v (N,), as in `derive`, and its flow."""
    branch = _supplied(layout, branch)
    y, at_f, at_t = stamps(branch), v[layout.f], v[layout.t]
    there, back = at_f * jnp.conj(y.ft * at_t), at_t * jnp.conj(y.tf * at_f)
    own_f, own_t = (jnp.conj(a) * (x * jnp.conj(x)) for a, x in ((y.ff, at_f), (y.tt, at_t)))
    flow = _branch_flow(layout, branch, v)
    # not own_f + there: a small difference of large numbers
    i, u = _complex(flow.i_base), _complex(flow.ratio) * at_f
    half = lax.complex(jnp.zeros_like(flow.half_charging), flow.half_charging)
    s_f, s_t = u * jnp.conj(i + half * u), at_t * jnp.conj(half * at_t - i)
    parts = dict(there=there, back=back, own_f=own_f, own_t=own_t, s_f=s_f, s_t=s_t)
    kept = {name: getattr(flow, name) for name in ("i_base", "slope", "ratio", "half_charging", "r", "x")}
    return {name: real_pairs(z) for name, z in parts.items()} | kept


def _core_tangent(layout: MeshedLayout, core: MeshedCore, moved: dict[str, Array], d_shunt: Array) -> MeshedCore:
    count = layout.back_cell.shape[0]

    def at_buses(near: Array, far: Array) -> Array:
        magnitude = jnp.square(core.main.v_mag)[:, None]
        shunts = d_shunt[layout.inward] * jnp.asarray([[1, -1]], d_shunt.dtype) * magnitude
        return shunts.at[layout.f].add(near).at[layout.t].add(far)

    cells = jnp.zeros((count + 1, 2), d_shunt.dtype)
    cells = cells.at[layout.from_cell].add(moved["there"]).at[layout.to_cell].add(moved["back"]).at[count].set(0)
    main = dataclasses.replace(
        core.main,
        s_base=at_buses(moved["s_f"], moved["s_t"]),
        own=at_buses(moved["own_f"], moved["own_t"]),
        v_mag=jnp.zeros_like(core.main.v_mag),
        tables=tuple(table for table, _ in _tables(layout, _complex(cells))),
    )
    rest, blocks = jax.tree.map(jnp.zeros_like, (core.rest, core.blocks))
    return dataclasses.replace(core, main=main, rest=rest, blocks=blocks)


def _flow_tangent(flow: BranchFlow, moved: dict[str, Array]) -> BranchFlow:
    whole = {name: np.zeros(getattr(flow, name).shape, jax.dtypes.float0) for name in ("f", "t")}
    rest = {name: jnp.zeros_like(getattr(flow, name)) for name in ("i_rest", "slope_rest")}
    kept = {name: moved[name] for name in ("i_base", "slope", "ratio", "half_charging", "r", "x")}
    return BranchFlow(**kept, **rest, **whole)  # type: ignore[arg-type]


def _floats(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def _core(network: MeshedNetwork, blocks: Blocks | None, dtype: Any) -> MeshedCore:
    """The network in two parts of `dtype`, its inverse in single precision."""
    main = _floats(network, dtype)
    inverse = None if blocks is None else _floats(blocks, FLOAT)
    return MeshedCore(main=main, rest=_rounded_away(network, dtype), blocks=inverse)  # type: ignore[arg-type]


def _rounded_away(tree: Any, dtype: Any) -> Any:
    """Rounding remainder of float64 numbers after their conversion to `dtype`."""
    return jax.tree.map(lambda x: (x - x.astype(dtype).astype(x.dtype)).astype(dtype), tree)


def _flow_in(flow: BranchFlow, dtype: Any) -> BranchFlow:
    """Branch flows in `dtype`, with what it rounds away of currents beside them."""
    i_rest, slope_rest = _rounded_away((flow.i_base, flow.slope), dtype)
    return dataclasses.replace(_floats(flow, dtype), i_rest=i_rest, slope_rest=slope_rest)


def derive(
    layout: MeshedLayout, branch: BranchData, shunt: Array, v_base: Array
) -> tuple[MeshedNetwork, Blocks, BranchFlow]:
    """Numbers derived from parameters and a base voltage, in float64."""
    network, entries, flow = _numbers(layout, branch, shunt, v_base)
    return network, invert(layout.plan, border(layout.plan, entries)), flow


def _numbers(
    layout: MeshedLayout, branch: BranchData, shunt: Array, v_base: Array
) -> tuple[MeshedNetwork, Array, BranchFlow]:
    """Numbers of `derive`, with the entries of the Jacobian in place of its inverse."""
    count = layout.back_cell.shape[0]
    f, t = layout.f, layout.t
    branch = _supplied(layout, branch)
    y = stamps(branch)
    v = _complex(v_base)[layout.inward]
    g = _complex(shunt)[layout.inward]
    cells = jnp.zeros(count + 1, v.dtype)
    cells = cells.at[layout.from_cell].add(v[f] * jnp.conj(y.ft * v[t]))
    cells = cells.at[layout.to_cell].add(v[t] * jnp.conj(y.tf * v[f])).at[count].set(0)
    own = jnp.conj(g).at[f].add(jnp.conj(y.ff)).at[t].add(jnp.conj(y.tt)) * (v * jnp.conj(v))
    tables = _tables(layout, cells)
    power = own + jnp.concatenate([out.sum(1) for _, out in tables])
    network = MeshedNetwork(
        s_base=real_pairs(power), own=real_pairs(own), v_mag=jnp.abs(v), tables=tuple(x for x, _ in tables)
    )
    return network, jacobian_entries(cells[:count], own, power), _branch_flow(layout, branch, v)


def _numbers_on_host(
    layout: MeshedLayout, branch: BranchData, shunt: np.ndarray, v_base: np.ndarray
) -> tuple[MeshedNetwork, BranchFlow]:
    """Network and flows of `_numbers` in NumPy: compiling these takes a second, and the kernel needs no inverse."""
    count, f, t = layout.back_cell.size, layout.f, layout.t
    v, own = (x[layout.inward] @ [1, 1j] for x in (v_base, shunt * [1, -1]))
    live = np.asarray(layout.free)[:, 0].copy()
    live[layout.slack] = True
    on = np.where(live[f] & live[t], branch.in_service, 0)
    y = on / np.where(on > 0, branch.r_pu + 1j * np.asarray(branch.x_pu), 1)
    half, turn = 0.5 * on * branch.b_pu, np.exp(-1j * np.asarray(branch.shift_rad)) / branch.tap
    charging, cells = np.conj(y + 1j * half), np.zeros(count + 1, complex)
    np.add.at(own, f, charging * np.abs(turn) ** 2)
    np.add.at(own, t, charging)
    own *= np.abs(v) ** 2
    np.add.at(cells, layout.from_cell, -v[f] * np.conj(y * np.conj(turn) * v[t]))
    np.add.at(cells, layout.to_cell, -v[t] * np.conj(y * turn * v[f]))
    cells[count] = 0
    tables = _tables(layout, cells)  # type: ignore[arg-type]
    power = own + np.concatenate([out.sum(1) for _, out in tables])
    u = on * turn * v[f]
    pairs = (np.stack([z.real, z.imag], 1) for z in (power, own, y * (u - v[t]), y * u, on * turn))
    s_base, own, i_base, slope, ratio = pairs
    network: Any = dict(s_base=s_base, own=own, v_mag=np.abs(v), tables=tuple(x for x, _ in tables))
    ends: Any = dict(f=layout.inward[f], t=layout.inward[t], i_base=i_base, slope=slope, ratio=ratio)
    rest: Any = dict(
        i_rest=0 * i_base, slope_rest=0 * slope, half_charging=half, r=on * branch.r_pu, x=on * branch.x_pu
    )
    return MeshedNetwork(**network), BranchFlow(**ends, **rest)


def _derive_pairs(
    layout: MeshedLayout, branch: BranchData, shunt: Array, v_base: Array
) -> tuple[MeshedCore, BranchFlow]:
    """Numbers of `derive` in pairs of floats: main and rest of the network are the two parts."""
    branch = _supplied(layout, branch)
    count, n = layout.back_cell.shape[0], layout.inward.shape[0]
    f, t, v, g = layout.f, layout.t, v_base[layout.inward], shunt[layout.inward]
    part = branch_parts(branch, v[f], v[t])
    square = ds.total(ds.two_product(v, v))
    own = ds.multiply(ds.pair(g), Pair(*(jnp.stack([x, -x], 1) for x in square)))
    terms = zip(part.there, part.back, part.own_f, part.own_t, own, strict=True)
    of_buses = (count + 1 + at for at in (f, t, jnp.arange(n, dtype=f.dtype)))
    places = jnp.concatenate([layout.from_cell, layout.to_cell, *of_buses])
    sums = ds.total_at(places, Pair(*map(jnp.concatenate, terms)), count + 1 + n)
    cells = Pair(*(x[: count + 1].at[count].set(0) for x in sums))
    own = Pair(*(x[count + 1 :] for x in sums))
    tables = [_tables(layout, _complex(x)) for x in cells]
    parts = zip(*([real_pairs(out) for _, out in table] for table in tables), strict=True)
    around = [ds.total(Pair(*run), axis=1) for run in parts]
    gathered = Pair(*map(jnp.concatenate, zip(*around, strict=True)))
    power = ds.add(own, gathered)
    # of S - a at the diagonal is left what flows to the neighbours
    entries = entries_of(Pair(*(x[:count] for x in cells)), gathered, ds.add(power, own))
    v_mag = jnp.sqrt(ds.value(square))
    left = ds.value(ds.subtract(square, ds.two_product(v_mag, v_mag)))
    numbers = zip(power, own, (v_mag, 0.5 * left / v_mag), tables, strict=True)
    main, rest = (MeshedNetwork(s_base=s, own=o, v_mag=m, tables=tuple(x for x, _ in z)) for s, o, m, z in numbers)
    (i, i_rest), (slope, slope_rest) = part.i_base, part.slope
    found = dict(i_base=i, i_rest=i_rest, slope=slope, slope_rest=slope_rest, ratio=part.ratio.high)
    flow = dataclasses.replace(_branch_flow(layout, branch, _complex(v)), **found)
    return MeshedCore(main=main, rest=rest, blocks=invert_pairs(layout.plan, entries)), flow


def _supplied(layout: MeshedLayout, branch: BranchData) -> BranchData:
    """Branches with those out of service that end at a bus without supply."""
    # such a bus has no equations: what it were connected with it would hold like a second slack
    live = layout.free[:, 0].at[layout.slack].set(True)
    on = jnp.where(live[layout.f] & live[layout.t], branch.in_service, 0)
    return dataclasses.replace(branch, in_service=on)


def _tables(layout: MeshedLayout, cells: Array) -> list[tuple[NeighbourTable, Array]]:
    """Table of every run of buses from complex cells (C + 1,), and its cells (n, m) as they were."""
    found, begin = [], 0
    for nodes in layout.neighbours:
        out = cells[begin : begin + nodes.size].reshape(nodes.shape)
        back = cells[layout.back_cell[begin : begin + nodes.size]].reshape(nodes.shape)
        table = NeighbourTable(out_re=out.real, out_im=out.imag, back_re=back.real, back_im=back.imag)
        found.append((table, out))
        begin += nodes.size
    return found


def _branch_flow(layout: MeshedLayout, branch: BranchData, v: Array) -> BranchFlow:
    on = branch.in_service
    ratio = lax.complex(on, jnp.zeros_like(on)) * inverse_ratio(branch)
    series = series_admittance(branch)
    u = ratio * v[layout.f]
    i_base, slope = real_pairs(series * (u - v[layout.t])), real_pairs(series * u)
    return BranchFlow(
        f=layout.inward[layout.f],
        t=layout.inward[layout.t],
        i_base=i_base,
        slope=slope,
        i_rest=jnp.zeros_like(i_base),
        slope_rest=jnp.zeros_like(slope),
        ratio=real_pairs(ratio),
        half_charging=0.5 * on * branch.b_pu,
        r=on * branch.r_pu,
        x=on * branch.x_pu,
    )


def _complex(x: Array) -> Array:
    return lax.complex(x[..., 0], x[..., 1])
