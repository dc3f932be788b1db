"""World of five buses, for the tests of worlds of Grid2Op."""

from __future__ import annotations

from powerzoo_jax.families.operation.grid2op.example import *  # noqa: F403
