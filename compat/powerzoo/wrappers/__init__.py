"""Wrappers of the PowerZoo API; those of other projects load on demand."""

from powerzoo_compat.powerzoo_api.lazy import wrapper_on_demand

__getattr__ = wrapper_on_demand(__name__)
