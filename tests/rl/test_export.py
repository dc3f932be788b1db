"""A policy as a program of its own: the same actions, for any number of lanes, without this package."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import pytest

from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.export import PLATFORMS, export_policy
from powerzoo_jax.rl.policies import ppo_act
from powerzoo_jax.rl.training.config import PPOConfig
from tests.rl.toy_battery import toy_sim

ALONE = """
import sys, jax, numpy as np
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
np.save(sys.argv[3], program.call(np.load(sys.argv[2])))
assert not any(name.startswith(("powerzoo", "flax")) for name in sys.modules)
"""


@pytest.fixture(scope="module")
def exported():
    """The program, actions of the policy itself for obs (lanes, A, O), and a draw of such observations."""
    sim, cfg = toy_sim(), PPOConfig(lanes=4, steps=8, minibatches=2, widths=(8, 8), log_std=0.0)
    state = jax.jit(ppo.make_update(cfg, sim)[0])(jax.random.key(3), sim)
    act = ppo_act(cfg, sim, ppo.policy_of(state))
    low, high = sim.spaces()[0]
    rng = np.random.default_rng(0)

    def draw(lanes):
        return rng.uniform(low, high, (lanes, *low.shape)).astype(low.dtype)

    return export_policy(sim, act), jax.vmap(lambda obs: act((), obs, jax.random.key(0))[1]), draw


@pytest.mark.tiers("full", long=["1"])
@pytest.mark.parametrize("lanes", [1, 5])
def test_the_program_acts_as_the_policy_does(exported, lanes):
    program, act, draw = exported
    loaded, obs = jax.export.deserialize(bytearray(program)), draw(lanes)
    assert loaded.platforms == PLATFORMS
    np.testing.assert_allclose(loaded.call(obs), act(obs), atol=1e-6)
    assert np.ptp(act(draw(64))) > 1e-3  # it tells observations apart


@pytest.mark.full
def test_the_program_runs_where_the_package_is_not_loaded(exported, tmp_path):
    program, act, draw = exported
    files = [tmp_path / name for name in ("policy.stablehlo", "obs.npy", "action.npy")]
    obs = draw(3)
    files[0].write_bytes(program)
    np.save(files[1], obs)
    subprocess.run([sys.executable, "-c", ALONE, *map(str, files)], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(files[2]), act(obs), atol=1e-6)


def test_without_flatbuffers_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[export\]"):
        export_policy(toy_sim(), lambda carry, obs, key: (carry, obs))
