"""Bridges from tasks to the interfaces of other projects, loaded on demand."""

from powerzoo_compat.powerzoo_api.lazy import wrapper_on_demand

__getattr__ = wrapper_on_demand(__name__)
