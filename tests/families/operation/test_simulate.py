"""Simulation of a whole table of actions at once; test_env compares with Grid2Op's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.families.operation.build import from_grid2op
from powerzoo_jax.families.operation.grid2op.example import write_world
from powerzoo_jax.families.operation.simulate import simulate
from tests.families.operation.test_env import ACTIONS
from tests.tolerances import tolerance

pytestmark = pytest.mark.full


def test_a_table_is_simulated_at_once_and_beyond_the_forecasts_is_refused(tmp_path):
    sim = from_grid2op(write_world(tmp_path / "five"), actions=ACTIONS)
    state, _ = jax.jit(sim.init)(jax.random.key(0))
    every = jnp.arange(sim.env.dims.choice)
    found = jax.jit(jax.vmap(lambda k: simulate(sim, state, k)))(every)
    one = jax.jit(lambda k: simulate(sim, state, k))
    for k in (0, 3, len(every) - 1):
        alone = one(jnp.int32(k))
        np.testing.assert_allclose(found.rho[k], alone.rho, atol=tolerance("lane", np.float32))
        np.testing.assert_allclose(found.terms[k], alone.terms, rtol=1e-5)
    with pytest.raises(ValueError, match="horizon 3 is beyond the forecasts of this world"):
        simulate(sim, state, 0, horizon=3)
