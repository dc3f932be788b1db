"""Nets of pandapower as cases, and cases as nets."""

from powerzoo_jax.cases.readers.pandapower.convert import convert_pandapower as convert_pandapower
from powerzoo_jax.cases.readers.pandapower.convert import from_pandapower as from_pandapower
from powerzoo_jax.cases.readers.pandapower.writer import to_pandapower as to_pandapower
