"""Slow loops, actions that are no numbers, programs compiled anew: users are told, or need not care."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.envs import core
from powerzoo_jax.tasks import list_tasks

TASK = "battery_arbitrage"
STEP = r"sim\.step was called outside of jax\.jit.*Write step = jax\.jit\(sim\.step\) once"


@pytest.fixture(scope="module")
def begun():
    sim = powerzoo_jax.make(TASK)
    return sim, jax.jit(sim.init)(jax.random.key(0))[0]


@pytest.fixture
def untold(monkeypatch):
    monkeypatch.setattr(core, "_told", False)


@pytest.mark.full
def test_a_step_outside_of_jit_warns_once_with_the_line_to_write(begun, untold):
    sim, state = begun
    with pytest.warns(UserWarning, match=STEP) as caught:
        out = sim.step(state, jnp.zeros((1, 1)))
        sim.step(out.state, jnp.zeros((1, 1)))
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_batch_outside_of_jit_warns(begun, untold):
    sim, state = begun
    batch = jax.tree.map(lambda x: x[None], state)
    # a batch of the wrong shape: told before anything runs
    told = pytest.warns(UserWarning, match=r"Write step = jax\.jit\(powerzoo_jax\.vstep\)")
    with told, pytest.raises(ValueError, match="takes a batch of actions"):
        powerzoo_jax.vstep(sim, batch, jnp.zeros((1, 1)))


def test_a_traced_step_warns_of_nothing_and_its_program_is_the_same(begun, untold):
    sim, state = begun
    action = jnp.zeros((1, 1))
    programs = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for told in (False, True):
            core._told = told
            programs.append(str(jax.make_jaxpr(lambda s, a: sim.step(s, a))(state, action)))
            jax.eval_shape(lambda: sim.step(state, action))  # all of it a constant
            jax.eval_shape(jax.vmap(sim.step, in_axes=(None, 0)), state, action[None])
        with jax.disable_jit():
            core.tell_if_slow("sim.step", state)
    assert programs[0] == programs[1]


@pytest.mark.tiers("full", quick=[TASK])
@pytest.mark.parametrize("task", list_tasks())
def test_entries_of_an_action_that_are_no_numbers_are_counted_and_change_nothing_else(task):
    sim = powerzoo_jax.make(task)
    state, _ = jax.eval_shape(sim.init, jax.random.key(0))
    space = sim.spaces()[1]
    action = jnp.zeros(space.shape, space.low.dtype)
    told = jax.eval_shape(sim.step, state, action).info.nan_actions
    assert (told.shape, told.dtype, told.weak_type) == ((), jnp.int32, False)
    bad = action.at[0].set(jnp.nan).at[0, 0].set(jnp.inf)
    real = np.asarray(sim.params.masks.act)
    for tried, count in ((action, 0), (bad, real[0].sum())):
        assert int(core.not_finite(tried, sim.params.masks.act)) == count
    assert int(core.not_finite(jnp.zeros(space.shape, jnp.int32), sim.params.masks.act)) == 0


def test_a_policy_that_has_diverged_shows_in_the_info_of_a_step(begun):
    sim, state = begun
    step = jax.jit(sim.step)
    idle, lost = (step(state, jnp.full((1, 1), value)) for value in (0.0, jnp.nan))
    assert (int(idle.info.nan_actions), int(lost.info.nan_actions)) == (0, 1)
    same = idle._replace(info=idle.info.replace(nan_actions=lost.info.nan_actions))
    for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(lost), strict=True):
        typed = jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
        assert np.array_equal(*map(jax.random.key_data, (a, b))) if typed else np.array_equal(a, b)


SCRIPT = """
import json, sys, jax
import powerzoo_jax
{before}
first = jax.config.jax_compilation_cache_dir
powerzoo_jax.make("battery_arbitrage")
print(json.dumps([first, jax.config.jax_compilation_cache_dir]))
"""


@pytest.mark.full
@pytest.mark.parametrize("named", ["nobody", "environment", "empty", "program", "read-only"])
def test_a_script_keeps_its_programs_where_the_commands_do_unless_the_user_says_where(named, tmp_path):
    own = str(tmp_path / "own")
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    if named in ("environment", "empty"):
        environment["JAX_COMPILATION_CACHE_DIR"] = own if named == "environment" else ""
    if named == "read-only":
        (tmp_path / "cache").write_text("a file, where a folder is wanted")
    before = f"jax.config.update('jax_compilation_cache_dir', {own!r})" if named == "program" else ""
    script = SCRIPT.format(before=before)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    first, then = json.loads(done.stdout)
    ours = str(tmp_path / "cache" / "powerzoo_jax" / "jax")
    expected = {"nobody": (None, ours), "environment": (own, own), "program": (own, own), "read-only": (None, None)}
    if named == "empty":  # the user's way to keep nothing
        assert not first and not then
    else:
        assert (first, then) == expected[named]
    assert done.stderr == "" and (named != "nobody" or Path(ours).is_dir())
