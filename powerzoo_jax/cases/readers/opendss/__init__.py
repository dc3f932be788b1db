"""Reader of OpenDSS feeders: scripts, elements and the three-phase case that they make."""

from powerzoo_jax.cases.readers.opendss.reader import read_opendss as read_opendss
