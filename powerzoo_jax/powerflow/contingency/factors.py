"""Factors of the outages of a meshed network: each corrects the constant inverse of the intact network by a low rank.

Textbook symbols: J the Jacobian at the base voltage, zeta = (dtheta, dln|V|), S the injections.

A lost branch k takes U V' off the Jacobian, U of rank 3: the inverse is corrected by C (I - V' C)^-1 V', C = J^-1 U.
A bus b that loses the unit which held it gains the unknown m = dln|V_b| and the row of its reactive power:
with c = dS/dm, r = dQ_b/dzeta and d = dQ_b/dm,

    m = (q_b - r J^-1 left) / (d - r J^-1 c),   zeta = J^-1 (left - c m)

(bordering: Duff, Erisman and Reid, Direct Methods for Sparse Matrices, ch. 8). All of it is made on the host, float64.

A low-rank correction of the intact inverse (`contingency.factors`) belongs to the state before the outage and takes
more steps the further the outage leads from there. Where many scenarios share the outage of a branch, a factored
network of its own (`own_networks`) at the base state after it takes fewer steps, none of which pays for a correction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import BaseLoadError, SolverError, listing
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import FLOAT, resolve_dtype
from powerzoo_jax.base.ranges import NOT_NEGATIVE, WHOLE, Finite, axes, checks_ranges
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.contingency.woodbury import (
    RANK,
    BranchTerms,
    across,
    as_device,
    branch_columns,
    branch_terms,
    pair,
)
from powerzoo_jax.powerflow.dc.outages import UnitRoles, bridges, unit_roles
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from powerzoo_jax.powerflow.meshed.base_case import BaseState, solve_base, voltage_setpoints
from powerzoo_jax.powerflow.meshed.blocks import Blocks
from powerzoo_jax.powerflow.meshed.factors import MeshedFactors, MeshedNetwork, branch_data, derive, prepare_meshed

FIXED_STEPS = 16  # the adaptive form takes 5 on average on case14, and more than 16 next to collapse only
MOST = 1 << 24  # numbers in the inverses of all outages: beyond, they would be read from memory, not from a cache


@struct.dataclass(kw_only=True)
class OwnNetworks:
    """Networks after K outages, each around the base voltage after it.

    networks:  MeshedNetwork, (K, ...)
    blocks:    inverses of their Jacobians there, single precision, (K, ...)
    offset:    (K, N, 2)  [pu]  injections at the intact base state less those at that of the outage

    """

    networks: MeshedNetwork
    blocks: Blocks
    offset: Array


def own_networks(
    case: Case, meshed: MeshedFactors, v: np.ndarray, shifted: np.ndarray, lost: np.ndarray, dtype: Any
) -> OwnNetworks | None:
    """Factor the networks without one branch each, on the host in float64; None where they would be too large.

    v:        (N,) complex [pu] intact base voltage      shifted:  (K, N) complex what an outage does to it, V' / V - 1
    lost:     (K,) positions of the branches; -1 takes none
    """
    size = sum(x.size for x in jax.tree.leaves(meshed.core.blocks))
    if len(lost) == 0 or size * len(lost) > MOST:
        return None
    with jax.enable_x64(True):
        intact, shunt = branch_data(case), jnp.asarray(pair((case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva))
        factored = jax.jit(derive)

        def without(branch: int, v: np.ndarray) -> tuple[MeshedNetwork, Blocks]:
            on = jnp.where(np.arange(case.n_branch) == branch, 0, intact.in_service)
            found = factored(meshed.layout, dataclasses.replace(intact, in_service=on), shunt, jnp.asarray(pair(v)))
            return jax.tree.map(np.asarray, found[:2])  # type: ignore[no-any-return]

        base = without(-1, v)[0].s_base
        every = [without(k, v * (1 + e)) for k, e in zip(lost.tolist(), shifted, strict=True)]
    networks, blocks = jax.tree.map(lambda *x: np.stack(x), *every)
    return OwnNetworks(
        networks=jax.tree.map(lambda x: jnp.asarray(x, dtype), networks),
        blocks=jax.tree.map(lambda x: jnp.asarray(x, FLOAT), blocks),
        offset=jnp.asarray(base - networks.s_base, dtype),
    )


START_STEPS = 4  # chord steps to the base state after an outage, which is only a place to start from
FARTHEST = 1.0  # [-] deviation beyond which such a state is no place to start from


@struct.dataclass(kw_only=True)
class OutageFactors:
    """Prepared data of one network and O outages of it for `n_minus_1`: K branches, then O - K units.

    meshed:       MeshedFactors of the network before any outage
    terms:        BranchTerms
    branch, unit: (O,)           int32  position of the branch, of the unit that is lost; -1 where the other is
    islanding:    (O,)           bool   whether that cuts buses off, or takes the last unit of the slack bus
    weight:       (O, 3, N, 2)          correction of the inverse, 0 where it islands and where nothing is freed
    start:        (O, N, 2)      [-]    what the outage does to the base voltage, about: V' / V - 1
    own:          OwnNetworks of the K branches, None where they would be too large
    read:         (O - K, N, 2)         magnitude of the freed bus per injection left
    bus:          (O - K,)       int32  bus of the unit, internal position
    frees:        (O - K,)       bool   whether its bus loses what held the magnitude
    response:     (O - K, N)     [-]    what every bus adds per unit of lost power
    p_unit, q_unit: (G,)         [pu]   scheduled output of all units
    rate_pu:      (L,)           [pu]   ratings, 0 = unlimited
    v_min, v_max: (N,)           [pu]   voltage bands
    steps:        static, chord steps of a solve that takes a fixed number of them
    """

    meshed: MeshedFactors
    terms: BranchTerms
    branch: Array
    unit: Array
    islanding: Array
    weight: Array
    start: Array
    own: OwnNetworks | None
    read: Array
    bus: Array
    frees: Array
    response: Array
    p_unit: Array
    q_unit: Array
    rate_pu: Array
    v_min: Array
    v_max: Array
    steps: int = struct.field(pytree_node=False, default=FIXED_STEPS)

    AXES: ClassVar = {"N": "meshed.n_bus", "L": "rate_pu", "G": "p_unit", "O": "n_outage"}

    @property
    def n_outage(self) -> int:
        return self.branch.shape[-1]

    @property
    def n_unit_outage(self) -> int:
        return self.bus.shape[-1]


def refuse_no_branches(case: Case) -> None:
    """SolverError for a network whose buses no branch joins: nothing could go out of service or be switched."""
    if case.n_branch == 0:
        raise SolverError(f"{case.name} has no branches: there is none to lose or to switch. Use prepare_meshed.")


@on_host
@checks_ranges("prepare_outages")
def prepare_outages(
    case: Case,
    *,
    branches: Annotated[Sequence[int], axes("...", kind=WHOLE)] | None = None,
    units: Annotated[Sequence[int], axes("...", kind=WHOLE)] | None = None,
    participation: Annotated[np.ndarray, axes("...")] | None = None,
    load_factor: Finite = 1.0,
    rate_pu: Annotated[np.ndarray, NOT_NEGATIVE, axes("...")] | None = None,
    dtype: Any = None,
) -> OutageFactors:
    """Correct the factors of a network for single outages of branches and units, on the host in float64.

    case:           as for `prepare_meshed`
    branches:       positions of the branches to lose, one at a time; None takes every branch in service, () none
    units:          likewise the units. The last unit of a PV bus leaves it a PQ bus
    participation:  (G,) weights by which the other units in service make up for the power of a lost one; None leaves
                    it to the slack, which in any case takes the change of the losses
    load_factor:    base point as a multiple of the nominal injections
    rate_pu:        (L,) [pu] ratings on the case's base power, 0 = unlimited; None takes `rate_a_mva` of the case
    dtype:          float32 (None) or float64

    Raises the errors of `prepare_meshed`, SolverError naming branches and units that are not there or not in service,
    and for a network without branches.
    """
    dtype = resolve_dtype(dtype)
    refuse_no_branches(case)
    lost = _positions(case, branches, case.branch.in_service, "branch")
    gone = _positions(case, units, case.unit.in_service, "unit")
    rate = case.branch.rate_a_mva / case.base_mva if rate_pu is None else np.asarray(rate_pu, float)
    if rate.shape != (case.n_branch,):
        raise SolverError(f"{case.name}: rate_pu has shape {rate.shape}, expected (L={case.n_branch},).")
    meshed = prepare_meshed(case, load_factor=load_factor, dtype=dtype)
    s = load_factor * nominal_injection(case)
    base = OutageBase.of(case, s, solve_base(case, s, voltage_setpoints(case)))
    roles = unit_roles(case, participation)
    f, t = branch_positions(case)
    cut = bridges(case.n_bus, f, t, case.branch.in_service)[lost]
    terms = branch_terms(case, base.v)
    columns = branch_columns(case, base, terms, lost)
    taken = np.where(cut[:, None, None, None], 0.0, _weights(columns, f[lost], t[lost], cut))
    frees = roles.frees[gone]
    answer, read = base.freed(roles.bus[gone], frees)
    output = (case.unit.p_mw + 1j * case.unit.q_mvar) / case.base_mva
    shifted = np.concatenate(
        [
            base.without_branches(taken, f[lost], t[lost], terms, lost, cut),
            base.without_units(answer, read, roles, gone, output),
        ]
    )
    for k in np.flatnonzero(~shifted[: len(lost)].any(1) & ~cut):
        shifted[k] = _anew(case, base, lost[k])
    none = np.full(len(lost), -1), np.full(len(gone), -1)
    inward, outward = np.asarray(meshed.layout.inward), np.asarray(meshed.layout.outward)
    weight = np.concatenate([taken, np.pad(answer[:, None], ((0, 0), (0, RANK - 1), (0, 0), (0, 0)))])
    whole = dict(branch=np.r_[lost, none[1]], unit=np.r_[none[0], gone], bus=outward[roles.bus[gone]])
    numbers = dict(start=pair(shifted)[:, inward], response=roles.response[gone][:, inward])
    numbers |= dict(p_unit=output.real, q_unit=output.imag, rate_pu=rate, v_min=case.bus.v_min_pu)
    return OutageFactors(
        meshed=meshed,
        terms=BranchTerms(**{name: jnp.asarray(pair(x), dtype) for name, x in terms.items()}),
        islanding=jnp.asarray(np.r_[cut, roles.balances[gone]]),
        own=own_networks(case, meshed, base.v, shifted[: len(lost)], np.where(cut, -1, lost), dtype),
        frees=jnp.asarray(frees),
        weight=as_device(weight[:, :, inward]),
        read=as_device(read[:, inward]),
        v_max=jnp.asarray(case.bus.v_max_pu, dtype),
        steps=FIXED_STEPS,
        **{name: jnp.asarray(x, jnp.int32) for name, x in whole.items()},
        **{name: jnp.asarray(x, dtype) for name, x in numbers.items()},
    )


def _positions(case: Case, chosen: Sequence[int] | None, on: np.ndarray, what: str) -> np.ndarray:
    if chosen is None:
        return np.flatnonzero(on)
    lost = np.asarray(chosen, np.int64)
    wrong = (lost < 0) | (lost >= len(on))
    if wrong.any():
        raise SolverError(f"{case.name} has no {what} {listing(lost[wrong])}. Give positions from 0 to {len(on) - 1}.")
    if not on[lost].all():
        raise SolverError(f"{case.name}: {what} {listing(lost[~on[lost]])} is out of service and cannot be lost.")
    return lost


def _weights(columns: np.ndarray, f: np.ndarray, t: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """C (I - V' C)^-1 of single outages, from C (O, 3, N, 2)."""
    rows = np.arange(len(f))
    own = np.stack(across(*(np.moveaxis(columns[rows, :, at], 2, 0) for at in (f, t))), 1)
    system = np.eye(RANK) - np.where(skip[:, None, None], 0.0, own)
    return np.einsum("orni,ors->osni", columns, np.linalg.inv(system))


def _anew(case: Case, base: OutageBase, branch: int) -> np.ndarray:
    """Change of the base voltages by the loss of a branch, (N,) complex, by a Newton method; 0 where it fails."""
    on = case.branch.in_service & (np.arange(case.n_branch) != branch)
    without = dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=on))
    try:
        e = solve_base(without, base.s, voltage_setpoints(case)) / base.v - 1
    except BaseLoadError:
        return np.zeros_like(base.v)
    return e if np.abs(e).max() < FARTHEST else np.zeros_like(e)


class OutageBase(BaseState):
    """Base state before any outage, and what the loss of a branch or a unit does to it, about."""

    def freed(self, bus: np.ndarray, frees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dzeta / dm and dm / dleft of buses that lose what holds them, (K, N, 2) each; 0 of the others."""
        rows, n = np.arange(len(bus)), len(self.v)
        column, row = (
            x.toarray().reshape(-1, 2, n).swapaxes(1, 2) for x in (self.slope[:, n + bus].T, self.slope[n + bus])
        )
        answer, read = -self.solve(column), -self.solve(row, "T")
        gap = row[rows, bus, 1] + np.einsum("kni,kni->k", row, answer)
        answer[rows, bus, 1] += 1
        read[rows, bus, 1] += 1
        return answer * frees[:, None, None], read * (frees / np.where(frees, gap, 1))[:, None, None]

    def without_branches(
        self, weight: np.ndarray, f: np.ndarray, t: np.ndarray, terms: Any, lost: np.ndarray, cut: np.ndarray
    ) -> np.ndarray:
        """Approximate change of the voltages by the loss of branches: (K, N) complex."""
        rows = np.arange(len(lost))
        s_from, s_to, a_from, a_to = (terms[name][lost] for name in ("s_from", "s_to", "a_from", "a_to"))

        def left(e: np.ndarray) -> np.ndarray:
            w, gap = 1 + e, (e[rows, t] - e[rows, f])
            found = self.left(e)
            found[rows, f] += np.abs(w[rows, f]) ** 2 * s_from + w[rows, f] * a_from * np.conj(gap)
            found[rows, t] += np.abs(w[rows, t]) ** 2 * s_to - w[rows, t] * a_to * np.conj(gap)
            return np.where(cut[:, None], 0, found)

        def step(left: np.ndarray) -> np.ndarray:
            plain = self.solve(left)
            moved = np.stack(across(plain[rows, f].T, plain[rows, t].T), 1)
            return plain + np.einsum("krni,kr->kni", weight, moved)

        return _settle(left, step, np.zeros((len(lost), len(self.v)), complex))

    def without_units(
        self, answer: np.ndarray, read: np.ndarray, roles: UnitRoles, gone: np.ndarray, output: np.ndarray
    ) -> np.ndarray:
        """Approximate change of the voltages by the loss of units: (K, N) complex."""
        change = roles.response[gone] * output[gone].real[:, None] + 0j
        change[np.arange(len(gone)), roles.bus[gone]] -= output[gone]
        change[roles.balances[gone]] = 0

        def step(left: np.ndarray) -> np.ndarray:
            return self.solve(left) + answer * np.einsum("kni,kni->k", read, left)[:, None, None]

        return _settle(lambda e: self.left(e) + change, step, np.zeros((len(gone), len(self.v)), complex))


def _settle(left: Any, step: Any, e: np.ndarray) -> np.ndarray:
    """A few chord steps from e (K, N); 0 where they lead away."""
    sizes = []
    for _ in range(START_STEPS):
        zeta = step(pair(left(e)))
        sizes.append(np.abs(zeta).max((1, 2), initial=0))
        e = (1 + e) * np.exp(zeta[..., 1] + 1j * zeta[..., 0]) - 1
    near = (sizes[-1] < 0.5 * sizes[0]) & (np.abs(e).max(1, initial=0) < FARTHEST)
    return np.where(near[:, None], e, 0)
