"""Rows of the exogenous series that a step reads."""

from __future__ import annotations

import jax.numpy as jnp

from powerzoo_jax.envs.series import step_row


def test_step_t_reads_the_row_t_behind_the_first_and_past_the_end_the_last():
    """An episode of three steps from row 2: a series read one row late would agree with itself everywhere else."""
    rows = jnp.arange(8.0)[:, None] * 10
    seen = [float(step_row(rows, jnp.int32(2), jnp.int32(t), jnp.int32(3))[0]) for t in range(5)]
    assert seen == [20.0, 30.0, 40.0, 40.0, 40.0]
