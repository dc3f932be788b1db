"""The step of a data-centre island on a core: one kernel, and the numbers of the step by many."""

import jax
import numpy as np
import powerzoo
import pytest
from powerzoo_compat._host import StepProgram

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def host():
    env = powerzoo.make_task_env("dc_microgrid")
    env.reset(seed=2)
    return env._host


def test_the_step_is_a_single_call_that_xla_compiles_as_one_function(host):
    given = host._given.arrays, host._state, host.kernel_action({0: np.full(5, 0.5, np.float32)})
    text = host._advance._run.lower(*given).compile().as_text()
    entry = text[text.index("ENTRY") :]
    launches = (" fusion(", " call(", " while(", " dot(")
    launched = [line for line in entry.splitlines() if any(op in line for op in launches)]
    assert len(launched) == 1 and " call(" in launched[0] and "xla_cpu_small_call" in launched[0]
    one, many = (host._advance.read(run(*given)[1]) for run in (host._advance._run, jax.jit(host._advance._step)))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


def test_what_xla_refuses_as_one_kernel_runs_as_many(host):
    program = StepProgram(host.sim.env, jax.tree.structure(host._given.packed), host._structure, True)
    given = host._given.arrays, host._state, host.kernel_action({0: np.zeros(5, np.float32)})
    program._run = refused
    _, words = program(*given)
    for x, y in zip(jax.tree.leaves(program.read(words)), jax.tree.leaves(host._advance.read(words)), strict=True):
        np.testing.assert_array_equal(x, y)
    program._run = refused
    with pytest.raises(jax.errors.JaxRuntimeError, match="scatter"):
        program(*given)


def refused(*given):
    raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: Unhandled opcode for elemental IR emission: scatter")
