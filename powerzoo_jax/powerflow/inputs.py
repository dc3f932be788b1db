"""What is given to a power flow, looked at before anything is traced: lengths and number types."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def injections(n_bus: int, p_pu: Array, q_pu: Array) -> tuple[Array, Array]:
    """Active and reactive injection as device arrays, (N,) each.

    Raises ValueError for another length, TypeError for integers and complex numbers: with one of them the solve would
    run and mean something else.
    """
    return _column(n_bus, "p_pu", p_pu), _column(n_bus, "q_pu", q_pu)


def _column(n_bus: int, name: str, values: Array) -> Array:
    array = jnp.asarray(values)
    if array.shape != (n_bus,):
        raise ValueError(
            f"{name}: expected (N={n_bus},), got {array.shape}. Give one net injection a bus, in per unit; scenarios "
            "are mapped with jax.vmap(..., in_axes=(None, 0, 0))."
        )
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} holds {array.dtype.name}. Give real numbers: s.real for p_pu and s.imag for q_pu.")
    return array
