"""Reader of OpenDSS feeders: scripts, elements and the three-phase case that they make."""

from powerzoo_jax.cases.readers.opendss.reader import read_opendss, read_opendss_series

__all__ = ["read_opendss", "read_opendss_series"]  # in the reference: powerzoo_jax.cases
