"""Copies and pickles of environments at any time: they go on as the original does, on the same compiled program."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import cloudpickle
import numpy as np
import pytest
from powerzoo.tasks import make_task_env
from powerzoo_compat import _host, gymnasium_view, safety_view, vector_view

import powerzoo_jax
from powerzoo_jax import tasks

COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
    "cloudpickle": lambda env: pickle.loads(cloudpickle.dumps(env)),
}
VIEWS = {
    "dropin": lambda: make_task_env("battery_arbitrage", max_steps=6),
    "safe": lambda: safety_view.make_safe_env("battery_arbitrage", max_steps=6),
    "gymnasium": lambda: gymnasium_view.make_env("battery_arbitrage", max_steps=6),
    "vector": lambda: vector_view.make_vec_env("battery_arbitrage", 3, max_steps=6),
    "agents": lambda: make_task_env("marl_der_arbitrage", max_steps=6),
    "pettingzoo": lambda: make_task_env("marl_der_arbitrage", framework="pettingzoo", max_steps=6),
}


def steps(env, count):
    """Rewards of equal actions."""
    found = []
    for _ in range(count):
        if hasattr(env, "possible_agents"):
            action = {agent: np.full(env.action_space(agent).shape, 0.1, np.float32) for agent in env.possible_agents}
        else:
            action = np.full(env.action_space.shape, 0.1, np.float32)
        found.append(np.array(list(out.values()) if isinstance(out := env.step(action)[1], dict) else out))
    return found


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_copy_goes_on_as_its_original_does(view, how):
    """Between a reset and the first step every host view failed; pickles failed at any time."""
    env = VIEWS[view]()
    if how != "pickle":  # which is tried before a reset as well
        env.reset(seed=1)
    twin = COPIES[how](env)
    if how == "pickle":
        env.reset(seed=1), twin.reset(seed=1)
    np.testing.assert_array_equal(steps(env, 2), steps(twin, 2))
    later = COPIES[how](env)
    ahead = steps(env, 2)
    np.testing.assert_array_equal(ahead, steps(later, 2))
    np.testing.assert_array_equal(ahead, steps(twin, 2))


def test_copies_share_the_compiled_program():
    env = VIEWS["gymnasium"]()
    env.reset(seed=0), steps(env, 1)
    program = env._host._advance
    for how in COPIES.values():
        twin = how(env)
        steps(twin, 1)
        assert twin._host._advance is program
    assert program._run._cache_size() == 1 and isinstance(program, _host.StepProgram)


@pytest.mark.parametrize("task", tasks.list_tasks())
def test_a_simulation_that_was_pickled_is_the_same_environment(task):
    """Field tables held functions without a name: pickle refused them, cloudpickle made others."""
    sim = powerzoo_jax.make(task)
    for dumps in (pickle.dumps, cloudpickle.dumps):
        env, spec = pickle.loads(dumps((sim.env, sim.spec)))
        assert env == sim.env and hash(env) == hash(sim.env) and spec == sim.spec


def test_a_pickle_opens_in_another_process_and_stacks_with_what_is_made_there(tmp_path):
    target = tmp_path / "sim.pickle"
    target.write_bytes(cloudpickle.dumps(powerzoo_jax.make("battery_arbitrage", v_max=1.06)))
    code = (
        "import pickle, sys, powerzoo_jax as pz\n"
        "given = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "print(pz.stack([given, pz.make('battery_arbitrage')]).params.horizon.shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2,)", done.stderr
