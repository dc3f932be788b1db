"""Environments and forked processes: what is built starts no JAX, so that Gymnasium's workers may be forked."""

import os
import subprocess
import sys

import jax
import numpy as np
import powerzoo
import pytest
from powerzoo_compat import _apart

FRESH = """
import multiprocessing, time
import gymnasium, numpy as np, powerzoo
from powerzoo_compat import _apart

ID, LANES = "PowerZoo/BatteryArbitrage-v1", 2

def main():
    grid = powerzoo.DistGridEnv()
    grid.register_resource(powerzoo.BatteryEnv(power_mw=0.4), 6)
    built = [powerzoo.make_task_env("battery_arbitrage"), powerzoo.make_task_env("marl_uc"), grid]
    for env in built:
        repr(env), env.observation_space, env.action_space, env.metadata
    assert not _apart.has_started()
    assert built[0]._host.sim is powerzoo.make_task_env("battery_arbitrage")._host.sim

def forked():
    runs = {}
    for mode in ("async", "sync"):  # the workers are forked first
        envs = gymnasium.make_vec(ID, num_envs=LANES, vectorization_mode=mode)
        obs, _ = envs.reset(seed=3)
        played = [obs]
        for _ in range(2):
            obs, reward, *_ = envs.step(np.array([[0.2], [-0.3]], np.float32))
            played += [obs, reward]
        runs[mode] = played
        envs.close()
        assert _apart.has_started() == (mode == "sync")
    for one, other in zip(runs["async"], runs["sync"], strict=True):
        np.testing.assert_array_equal(one, other)

    env = powerzoo.make_task_env("battery_arbitrage")
    env.reset(seed=0)
    told = multiprocessing.Queue()

    def child():
        for call in (lambda: env.reset(seed=1), lambda: env.step(env.action_space.sample()),
                     lambda: powerzoo.make_task_env("battery_arbitrage"), lambda: gymnasium.make(ID),
                     lambda: powerzoo.DistGridEnv()):
            began = time.monotonic()
            try:
                call()
            except RuntimeError as err:
                told.put((time.monotonic() - began, str(err)))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    for _ in range(5):
        seconds, words = told.get(timeout=30)
        assert seconds < 1 and "spawn" in words and "forked" in words, (seconds, words)
    process.join()


main()
forked()
"""


@pytest.mark.full
def test_what_is_built_starts_no_jax_and_forked_workers_step_or_say_why_not():
    """One fresh process for both: the first half leaves it as the second needs it."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", FRESH], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def test_arrays_move_to_the_device_once():
    sim = powerzoo.make_task("battery_arbitrage").sim
    assert _apart.on_device(sim) is sim  # JAX runs here, so that it was built on the device
    apart = sim.replace(params=jax.tree.map(np.asarray, sim.params))
    first, second = _apart.on_device(apart), _apart.on_device(apart.replace(spec=sim.spec))
    assert first.params is second.params
    for moved, given in zip(jax.tree.leaves(first.params), jax.tree.leaves(sim.params), strict=True):
        assert isinstance(moved, jax.Array) and moved.dtype == given.dtype and moved.weak_type == given.weak_type
        np.testing.assert_array_equal(moved, given)
