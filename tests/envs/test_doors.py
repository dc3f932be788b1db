"""Types at the door: what is no action is refused at once, what is one is taken in the dtype of the simulation.

A simulation that was built before x64 was switched on, or stepped under another setting of JAX, does what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.envs import Sim, vstep
from powerzoo_jax.envs.core import taken
from powerzoo_jax.tasks import list_tasks, make
from tests.rl.toy_battery import toy_sim
from tests.rl.toy_team import toy_team

LANES, STEPS = 2, 3
TAKEN: dict[str, Callable[[], Any]] = {
    "list": lambda: [[0.5]],
    "list of an array": lambda: [np.array([0.5])],
    "list of a JAX scalar": lambda: [[jnp.float32(0.5)]],
    "NumPy float64": lambda: np.array([[0.5]]),
    "NumPy float16": lambda: np.array([[0.5]], np.float16),
    "bfloat16": lambda: jnp.full((1, 1), 0.5, jnp.bfloat16),
    "weak type": lambda: 0.5 * jnp.ones((1, 1)),
}
WHOLE: dict[str, Callable[[], Any]] = {
    "list of integers": lambda: [[1]],
    "NumPy integers": lambda: np.array([[1]]),
    "unsigned": lambda: np.array([[1]], np.uint8),
}
REFUSED = {
    "number": (0.5, ValueError, r"expected \(A=1, U=1\), got \(\)"),
    "NumPy scalar": (np.float64(0.5), ValueError, r"expected \(A=1, U=1\), got \(\)"),
    "row": ([0.5], ValueError, r"expected \(A=1, U=1\), got \(1,\)"),
    "batch": (np.zeros((2, 1, 1)), ValueError, r"got \(2, 1, 1\)"),
    "beyond all floats": ([[10**400]], TypeError, "expected an array of numbers, got list"),
    "ragged list": ([[0.5], [0.5, 0.5]], TypeError, "expected an array of numbers, got list"),
    "text": ([["0.5"]], TypeError, "expected an array of numbers, got list"),
    "nothing": (None, TypeError, "expected an array of numbers, got NoneType"),
    "dict": ({"agent_0": 0.5}, TypeError, "expected an array of numbers, got dict"),
    "booleans": (np.ones((1, 1), bool), TypeError, r"expected float32 in \[-1, 1\], got bool"),
    "complex": (np.ones((1, 1), np.complex64), TypeError, r"expected float32 in \[-1, 1\], got complex64"),
    "objects": (np.array([["a"]], object), TypeError, "expected an array of numbers"),
}


@pytest.fixture(scope="module")
def toy() -> Sim:
    """A task of one agent and one column, in float32."""
    return toy_sim()


def alike(a: Any, b: Any) -> None:
    """Equal types, and equal bits, leaf by leaf."""
    assert jax.tree.map(lambda x: (x.dtype, x.shape), a) == jax.tree.map(lambda x: (x.dtype, x.shape), b)
    jax.tree.map(np.testing.assert_array_equal, *(jax.tree.map(words, x) for x in (a, b)))


def words(x: Any) -> Any:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", [*TAKEN, *WHOLE])
def test_numbers_of_any_type_and_lists_are_the_same_action(toy, name, x64):
    expected = jnp.full((1, 1), 1.0 if name in WHOLE else 0.5, jnp.float32)
    with jax.enable_x64(x64):  # switched on after the task was built
        alike(taken(toy.env, toy.params, {**TAKEN, **WHOLE}[name]()), expected)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_action_is_refused_at_once(toy, name, x64):

    value, error, words_of = REFUSED[name]
    with jax.enable_x64(x64), pytest.raises(error, match=f"action: .*{words_of}"):
        toy.step(None, value)


def test_choices_are_whole_numbers():
    sim, expected = toy_team(choice=True), jnp.ones((3, 1), jnp.int32)
    alike(taken(sim.env, sim.params, [[1], [1], [1]]), expected)
    alike(taken(sim.env, sim.params, np.ones((3, 1), np.uint8)), expected)
    with pytest.raises(TypeError, match="expected whole numbers, the options that are chosen, got float32"):
        taken(sim.env, sim.params, np.ones((3, 1), np.float32))


def test_a_batch_that_is_none_is_refused_at_once(toy):
    with pytest.raises(ValueError, match=r"vstep takes a batch of actions \(B, A, U\), got \(2, 1\)"):
        vstep(toy, None, [[0.5], [0.5]])
    with pytest.raises(TypeError, match="action: expected an array of numbers, got NoneType"):
        vstep(toy, None, None)


def rollout(sim: Sim, keys: jax.Array, actions: jax.Array) -> Any:
    """Some steps of some lanes: everything that they return."""
    states, obs = jax.vmap(sim.init)(keys)

    def step(states: Any, x: jax.Array) -> tuple[Any, Any]:
        out, states, seen = vstep(sim, states, x)
        return states, (out, seen)

    return states, obs, jax.lax.scan(step, states, actions)


def inputs(sim: Sim, dtype: Any) -> tuple[jax.Array, Any]:
    """Keys of the lanes, and actions beyond [-1, 1] at times."""
    dims = sim.env.dims
    drawn = np.random.default_rng(0).uniform(-1.2, 1.2, (STEPS, LANES, dims.agent, dims.act))
    return jax.random.split(jax.random.key(0), LANES), drawn.astype(np.float32).astype(dtype)


SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "jax_numpy_rank_promotion": lambda: jax.numpy_rank_promotion("raise"),
    "jax_check_tracer_leaks": lambda: jax.check_tracer_leaks(True),
    "jax_default_matmul_precision": lambda: jax.default_matmul_precision("bfloat16"),
}


@pytest.mark.tiers("long", full=["marl_opf"])
@pytest.mark.parametrize("task", list_tasks())
def test_settings_of_jax_change_nothing_in_the_program_of_a_step(task):
    """Nothing is promoted or leaks, and no product follows the default precision: the program is the same text."""
    sim = make(task)
    states, _ = jax.eval_shape(jax.vmap(sim.init), jax.random.split(jax.random.key(0), LANES))
    actions = jax.ShapeDtypeStruct((LANES, sim.env.dims.agent, sim.env.dims.act), np.float32)

    def text() -> str:
        jax.clear_caches()  # which inner functions share a name depends on what was traced before, not on the setting
        return jax.jit(lambda sim, states, x: vstep(sim, states, x)).lower(sim, states, actions).as_text()

    plain = text()
    for name, setting in SETTINGS.items():
        with setting():
            assert text() == plain, name


@pytest.mark.tiers("long", full=["dc_microgrid", "marl_opf"])
@pytest.mark.parametrize("task", list_tasks())
def test_the_types_of_a_step_are_the_same_under_x64(task):
    """The integer sum of the transmission tasks once became int64."""
    sim = make(task)

    def types(dtype: Any) -> Any:
        state, _ = jax.eval_shape(sim.init, jax.random.key(0))
        action = jax.ShapeDtypeStruct((sim.env.dims.agent, sim.env.dims.act), dtype)
        return jax.tree.map(lambda x: (x.dtype, x.shape), jax.eval_shape(sim.step, state, action))

    plain = types(np.float32)
    with jax.enable_x64(True):
        assert types(np.float64) == plain


@pytest.mark.tiers("long", full=["marl_opf"])
@pytest.mark.parametrize("task", list_tasks())
def test_a_rollout_under_x64_and_debug_nans_is_that_without(task):
    """Float64 actions, and x64 switched on after `make`: the same types, and the same numbers to rounding."""
    sim = make(task)
    expected = jax.jit(rollout)(sim, *inputs(sim, np.float32))
    with jax.debug_nans(True):
        alike(jax.jit(rollout)(sim, *inputs(sim, np.float32)), expected)
    with jax.enable_x64(True):
        wide = jax.jit(rollout)(sim, *inputs(sim, np.float64))
    assert jax.tree.map(lambda x: x.dtype, wide) == jax.tree.map(lambda x: x.dtype, expected)
    jax.tree.map(close, *(jax.tree.map(words, x) for x in (wide, expected)))


def close(wide: np.ndarray, expected: np.ndarray) -> None:
    size = max(1.0, float(np.max(np.abs(expected), initial=0)))
    np.testing.assert_allclose(wide, expected, rtol=2e-4, atol=2e-4 * size)
