"""Derivatives through outages by the implicit function theorem, forward and reverse.

F(e; p, q, v, outputs) = 0 on the unknowns of the network after an outage gives J zeta = dF for the turn of its
solution. J is the true Jacobian there; BiCGSTAB solves it with the corrected inverse of the chord as a preconditioner,
transposed for reverse mode. Not the sweeps of `meshed.derivative`: far from the base state the corrected inverse need
not contract, and to factor the network of every lane is what the low rank is there to spare.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.powerflow.contingency.batch import (
    Kind,
    OutageInputs,
    inputs_of,
    outage_change,
    outputs,
    without_units,
)
from powerzoo_jax.powerflow.contingency.factors import OutageFactors
from powerzoo_jax.powerflow.contingency.result import OutageResult, outage_reading
from powerzoo_jax.powerflow.contingency.woodbury import Change, correction, mismatch, scenarios
from powerzoo_jax.powerflow.implicit import SWEEP_TOL, bicgstab
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.chord import Shared
from powerzoo_jax.powerflow.result import Status

WHOLE = ("status", "worst_branch", "iterations")


def outage_tangent(kind: Kind, primals: tuple[Any, ...], tangents: tuple[Any, ...], out: Any, e: Array) -> Any:
    """Tangents of (OutageResult, OutageStates or ()) for one scenario.

    primals, tangents:  (outages, *arrays) as the solver takes them; outages are constants
    out:                what it returns          e: (O, N, 2) deviations after each outage
    """
    outages, *arrays = primals
    result = out[0]
    rows = arrays[-1] if kind.chosen else jnp.arange(outages.n_outage, dtype=jnp.int32)
    varying = arrays[:-1] if kind.chosen else arrays
    lane = functools.partial(_lane, outages, kind._replace(chosen=False), varying, tangents[1 : 1 + len(varying)])
    solved = (result.status == Status.CONVERGED) | (result.status == Status.ISLANDED)
    summary, states = jax.vmap(lane)(rows, e, solved)
    fields: dict[str, Any] = {name: np.zeros(getattr(result, name).shape, jax.dtypes.float0) for name in WHOLE}
    fields |= {name: x for name, x in summary.items() if name not in WHOLE}
    return OutageResult(**fields, residual=jnp.zeros_like(result.residual)), states if kind.states else ()


def _lane(
    outages: OutageFactors, kind: Kind, arrays: Any, tangents: Any, row: Array, e: Array, solved: Array
) -> tuple[dict[str, Any], Any]:
    """Tangents of the report of one outage () of one scenario, e (N, 2)."""
    layout, e = outages.meshed.layout, e[:, :, None]
    point = SolvedOutage(Shared(layout, outages.meshed.core), outage_change(outages, row[None]), e)

    def left(*arrays: Array) -> Array:
        inputs = inputs_of(kind, tuple(eqs.finite(x)[None] for x in arrays))
        target = scenarios(point.shared, inputs.given)[0]
        target = without_units(outages, row[None], target, outputs(outages, inputs))
        return mismatch(point.shared, point.change, target, e)

    forcing = jax.jvp(left, tuple(arrays), tuple(tangents))[1]
    held = _held(point, inputs_of(kind, tuple(arrays)), inputs_of(kind, tuple(tangents)))
    forcing = jnp.where(solved, forcing - point.slope(held), 0)
    turn = point.implicit(forcing) + jnp.where(solved, held, 0)

    def read(e: Array) -> Any:
        return outage_reading(outages, row[None], e)

    found = jax.jvp(read, (e,), (eqs.turn(e, turn),))[1]
    return jax.tree.map(lambda x: x[0], found)  # type: ignore[no-any-return]


def _held(point: SolvedOutage, inputs: OutageInputs, tangents: OutageInputs) -> Array:
    """Change (N, 2, 1) of angle and log-magnitude of the voltages that follow their moved set-points; 0 elsewhere."""
    if inputs.v_set is None or tangents.v_set is None:
        return jnp.zeros_like(point.e)
    inward = point.shared.layout.inward
    grow = (tangents.v_set / inputs.v_set)[inward]
    return jnp.zeros_like(point.e).at[:, 1, 0].set(jnp.where(point.rows[:, 1, 0] == 0, grow, 0))


class SolvedOutage(NamedTuple):
    """Solved lane, e (N, 2, 1), of the network that `change` leaves."""

    shared: Shared
    change: Change
    e: Array

    @property
    def rows(self) -> Array:
        """(N, 2, 1) 1 where there is an unknown and an equation."""
        rows = self.shared.layout.free[:, :, None].astype(self.e.dtype)
        if self.change.freed is None:
            return rows
        bus, lost, _ = self.change.freed
        return rows.at[bus, 1, 0].max(lost.astype(rows.dtype))

    def slope(self, zeta: Array) -> Array:
        """Change of the injections for a turn, (N, 2, 1)."""

        def injected(e: Array) -> Array:
            return -mismatch(self.shared, self.change, jnp.zeros_like(e), e)

        return jax.jvp(injected, (self.e,), (eqs.turn(self.e, zeta),))[1]

    def implicit(self, right: Array) -> Array:
        """Solution of J zeta = right on the unknowns, 0 elsewhere; linear in `right`, transposable."""
        rows, tol = self.rows, SWEEP_TOL[right.dtype.name]

        def apply(zeta: Array) -> Array:
            return self.slope(zeta * rows) * rows + zeta * (1 - rows)

        def inverse(left: Array) -> Array:
            return correction(self.shared, self.change, left * rows) * rows + left * (1 - rows)

        def backward(left: Array) -> Array:
            return jax.linear_transpose(inverse, left)(left)[0]  # type: ignore[no-any-return]

        return lax.custom_linear_solve(
            apply,
            right * rows,
            solve=lambda product, b: bicgstab(product, inverse, b, tol),
            transpose_solve=lambda product, b: bicgstab(product, backward, b, tol),
        )
