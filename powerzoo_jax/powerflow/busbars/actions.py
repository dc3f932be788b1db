"""Single actions, a branch opened or closed or a substation set: the power flow after each, and their order."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import FINITE, NOT_NEGATIVE, WHOLE, Range, axes, checks_ranges, unchecked
from powerzoo_jax.base.solver_mode import AUTO
from powerzoo_jax.powerflow.busbars.configurations import Configurations
from powerzoo_jax.powerflow.busbars.network import BUSBAR, TopologyNetwork, node_injection
from powerzoo_jax.powerflow.busbars.solve import BASE, TopologyResult, solve_topology
from powerzoo_jax.powerflow.result import Status, loading_excess

LANES = 4096  # solved at once: more actions of a large grid would not fit into memory
SMALLEST_RATING = 0.1  # of the largest flow, where flows take the place of ratings: an empty branch would count for all


@struct.dataclass(kw_only=True)
class RankedActions:
    """States after single actions (A,), by number of the action, and their order.

    order:         (A,)  int32  positions in this result, best first
    status:        (A,)  int32  `Status`; what follows is 0, and the branch -1, where it is not CONVERGED
    loading:       (A,)  [-]    largest apparent power over rating, both ends, of the branches with a rating
    worst_branch:  (A,)  int32  the branch that has it
    overload:      (A,)  [pu]   sum over the branches of apparent power beyond the rating
    p_loss:        (A,)  [pu]   losses
    """

    order: Array
    status: Array
    loading: Array
    worst_branch: Array
    overload: Array
    p_loss: Array


@checks_ranges("apply_action")
def apply_action(
    found: Configurations,
    topology: Annotated[Array, BUSBAR, axes("E", kind=WHOLE)],
    action: Annotated[Array, Range(0), axes(kind=WHOLE, below="A")],
) -> Array:
    """Assignment (E,) int8 of elements to busbars after one action.

    found:     from `configurations`                topology: (E,) int8 busbars before, 0 for out
    action:    () int32: 0 does nothing, 1 to L toggles a branch, L + 1 and on sets a row of `found`

    A branch that closes comes to busbar 1 at both ends. A configuration places what is in service at its substation.
    """
    lines = found.counts.branches
    element = jnp.arange(found.bus.shape[-1], dtype=jnp.int32)
    topology = topology.astype(jnp.int8)
    if lines:
        branch = jnp.clip(action - 1, 0, lines - 1)
        closed = (topology[branch] > 0) & (topology[lines + branch] > 0)
        ends = (element < 2 * lines) & (element % lines == branch) & (action >= 1) & (action <= lines)
        topology = jnp.where(ends, jnp.where(closed, 0, 1).astype(jnp.int8), topology)
    if found.substation.shape[-1]:
        row = jnp.maximum(action - 1 - lines, 0)
        mine = (found.bus == found.substation[row]) & (topology > 0) & (action > lines)
        topology = jnp.where(mine, jnp.maximum(found.topology[row], 1), topology)
    return topology


@checks_ranges("rank_actions")
def rank_actions(
    network: TopologyNetwork,
    found: Configurations,
    p_pu: Annotated[Array, FINITE, axes("E", told=True)],
    q_pu: Annotated[Array, FINITE, axes("E", told=True)],
    topology: Annotated[Array, BUSBAR, axes("E", kind=WHOLE)] | None = None,
    rate_pu: Annotated[Array, NOT_NEGATIVE, axes("L")] | None = None,
    only: Annotated[Array, Range(0), axes("K", kind=WHOLE, below="A")] | None = None,
    *,
    start: str = BASE,
    solver: str = AUTO,
) -> RankedActions:
    """Rank of every single action by the power flow after it; vmap it for many states.

    network:     from `prepare_topology`           found: from `configurations` of the same case, plants and storages
    p_pu, q_pu:  (E,) [pu] injections by element (those of branch ends and shunts are 0)
    topology:    (E,) int8 busbars before, None for those of the case
    rate_pu:     (L,) [pu] ratings, 0 for none; None takes the flows before as ratings, at least a tenth of the largest
    only:        (K,) int32 numbers of the actions to solve, None for all of them (`apply_action`)
    start, solver: as for `solve_topology`

    The lower largest loading is better, then the lower overload, then the lower losses, then the lower position; what
    has no solution or cuts something off comes last. Action 0 shows the state before.
    """
    topology = network.base if topology is None else topology
    given = jnp.arange(found.n_action, dtype=jnp.int32) if only is None else only

    def solve(action: Array) -> TopologyResult:
        after = unchecked(apply_action)(found, topology, action)
        p, q = unchecked(node_injection)(network, after, p_pu, q_pu)
        return unchecked(solve_topology)(network, p, q, after, start=start, solver=solver)

    if rate_pu is None:
        before = _apparent(solve(jnp.zeros((), jnp.int32)))
        rate_pu = jnp.maximum(before, SMALLEST_RATING * jnp.max(before, initial=0))
    rated = rate_pu > 0

    def outcome(action: Array) -> tuple[Array, ...]:
        after = solve(action)
        solved, size = after.status == Status.CONVERGED, _apparent(after)
        loading = jnp.where(rated, size / jnp.where(rated, rate_pu, 1), 0)
        overload = jnp.sum(loading_excess(size, rate_pu))
        numbers = (jnp.max(loading, initial=0), overload, after.p_loss)
        worst = jnp.argmax(loading).astype(jnp.int32) if loading.shape[-1] else jnp.int32(-1)
        return after.status, jnp.where(solved, worst, -1), *(jnp.where(solved, x, 0) for x in numbers)

    few = given.shape[-1] <= LANES
    parts = jax.vmap(outcome)(given) if few else lax.map(outcome, given, batch_size=LANES)
    status, worst, loading, overload, p_loss = parts
    order = jnp.lexsort((p_loss, overload, loading, status != Status.CONVERGED))  # stable
    return RankedActions(
        order=order.astype(jnp.int32),
        status=status,
        loading=loading,
        worst_branch=worst,
        overload=overload,
        p_loss=p_loss,
    )


def _apparent(state: TopologyResult) -> Array:
    """Larger apparent power (L,) [pu] of both ends."""
    square = jnp.maximum(state.p_from**2 + state.q_from**2, state.p_to**2 + state.q_to**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)  # a root has no derivative at 0
