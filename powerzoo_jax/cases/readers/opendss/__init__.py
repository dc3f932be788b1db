"""Reader of OpenDSS feeders: scripts, elements and the three-phase case that they make."""

from powerzoo_jax.cases.readers.opendss.reader import read_opendss

__all__ = ["read_opendss"]  # in the reference: powerzoo_jax.cases
