"""Nets of pandapower read into cases, and cases written to nets."""

from powerzoo_jax.cases.readers.pandapower.convert import convert_pandapower, from_pandapower
from powerzoo_jax.cases.readers.pandapower.writer import to_pandapower

# in the reference: powerzoo_jax.cases
__all__ = ["convert_pandapower", "from_pandapower", "to_pandapower"]
