"""Programs that are of no use on a platform: they are refused on the host, there and nowhere else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax import opf
from powerzoo_jax.cases import load_case
from powerzoo_jax.opf.ac.refusal import refuse

WHY = "it has no such numbers. Run it on a CPU."


@jax.jit
def double(x):
    return 2 * refuse(x, "tpu", WHY)


def test_a_program_is_refused_where_it_is_of_no_use_and_nowhere_else():
    with pytest.raises(NotImplementedError, match=WHY):
        double.trace(1.0).lower(lowering_platforms=("tpu",))
    assert "stablehlo" in double.trace(1.0).lower(lowering_platforms=("cuda",)).as_text()
    assert float(double(1.5)) == 3.0


def test_what_may_be_refused_is_mapped_and_differentiated_like_anything_else():
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(jax.vmap(double)(x), 2 * x)
    assert float(jax.grad(double)(1.0)) == 2.0 and float(jax.jvp(double, (1.0,), (3.0,))[1]) == 6.0


@pytest.mark.full
def test_the_ac_optimal_power_flow_says_why_it_is_not_for_a_tpu():
    case = load_case("case9")
    factors = opf.prepare_ac_opf(case, dtype="float32")
    loads = jnp.asarray(case.p_load_mw, jnp.float32), jnp.asarray(case.q_load_mvar, jnp.float32)
    traced = jax.jit(opf.ac_opf).trace(factors, *loads)
    with pytest.raises(NotImplementedError, match=r"float64, which a TPU does not have.*CPU or a GPU"):
        traced.lower(lowering_platforms=("tpu",))
