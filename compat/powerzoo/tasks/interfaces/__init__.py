"""Bridges from tasks to the interfaces of other projects, loaded on demand."""

from powerzoo_compat.powerzoo_api.lazy import WRAPPER as _WRAPPER

from powerzoo_jax.base.exports import on_demand as _on_demand

__getattr__ = _on_demand(__name__, _WRAPPER)
