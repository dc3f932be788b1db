"""Many devices give what one gives: eight simulated ones in a process, and two processes over the loopback."""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.training.parallel import make_mesh, over_devices, spread
from tests.rl.toy_battery import toy_sim

pytestmark = pytest.mark.full

SCRIPT = Path(__file__).with_name("devices.py")
COUNT = 8
OBSERVED = 202  # numbers that the toy battery sees
STEP = 1e-6  # of a rollout: sums of 202 observations in another order
UPDATE = 1e-5  # of weights after the first update


def launch(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def wait(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err


def read(path: Path, count: int) -> dict[str, np.ndarray]:
    with np.load(path) as content:
        rows = {key.partition(" ")[2]: content[key] for key in content if key.startswith(f"{count} ")}
    return {key: rows[key] for key in sorted(rows)}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("devices") / "local.npz"
    wait(launch(path, COUNT, "updates"))
    return path


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("devices") / "replay.npz"
    wait(launch(path, COUNT, "replay"))
    return path


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("devices") / "processes.npz"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wait(*(launch(path, COUNT, "updates", f"127.0.0.1:{port}", 2, i) for i in range(2)))
    return path


@pytest.mark.long
@pytest.mark.parametrize("where", ["local", "processes"])
def test_rollouts_equal_those_of_one_device(request, local, where):
    """Thirteen episodes on eight devices: some devices hold one that does not count."""
    one, many = read(local, 1), read(request.getfixturevalue(where), COUNT)
    keys = [key for key in one if "steps" in key]
    assert len(keys) == 3 and all(one[key].shape[:2] == (13, 48) for key in keys)
    for key in keys:
        np.testing.assert_allclose(many[key], one[key], rtol=STEP, atol=STEP)


@pytest.mark.long
@pytest.mark.parametrize("where", ["local", "processes"])
def test_weights_after_the_first_update_equal_those_of_one_device(request, local, where):
    one, many = read(local, 1), read(request.getfixturevalue(where), COUNT)
    keys = [key for key in one if "params" in key]
    assert len(keys) == 9
    for key in keys:
        np.testing.assert_allclose(many[key], one[key], rtol=0, atol=UPDATE)


@pytest.mark.long
@pytest.mark.parametrize("where", ["local", "processes"])
def test_the_score_of_a_run_is_that_of_one_device_within_the_noise_of_seeds(request, local, where):
    (one,), (many,) = (
        [x for key, x in read(path, count).items() if "final" in key]
        for path, count in ((local, 1), (request.getfixturevalue(where), COUNT))
    )
    assert abs(many.mean() - one.mean()) < one.std(ddof=1)


def transfers(path: Path, count: int, name: str) -> list[tuple[str, int]]:
    """Kind and bytes of every transfer of an update."""

    def size(letters: str, bits: str, shape: str) -> int:
        width = 1 if letters == "pred" else int(bits) // 8
        return width * math.prod(int(n) for n in shape.split(",") if n)

    lines = (line.split(" ", 1) for line in read(path, count)[name].tolist())
    arrays = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")
    return [(kind, sum(size(*found) for found in arrays.findall(what))) for kind, what in lines]


def test_an_update_sends_gradients_and_moments_whatever_the_lanes_and_steps(local):
    """One array of flags, gradients, moments and means; a trajectory of 16 lanes would be 620 kB."""
    assert read(local, 1)["talk"].size == 0
    sent = transfers(local, COUNT, "talk")
    assert {kind for kind, _ in sent} == {"all-reduce"}
    assert read(local, COUNT)["talk"].tolist() == read(local, COUNT)["larger"].tolist()
    weights = sum(x.nbytes for key, x in read(local, COUNT).items() if "params" in key)
    moments = 4 * 4 * OBSERVED  # mean and variance, of both passes over the samples
    assert weights < sum(size for _, size in sent) < weights + moments + 200


@pytest.mark.long
def test_a_replay_buffer_of_many_devices_learns_what_that_of_one_learns(replay):
    one, many = read(replay, 1), read(replay, COUNT)
    stored, learnt = ([key for key in one if kind in key] for kind in ("stored", "learnt"))
    assert len(stored) == 5 and len(learnt) == 11
    for key in stored:
        np.testing.assert_allclose(many[key], one[key], rtol=STEP, atol=STEP)
    for key in learnt:
        np.testing.assert_allclose(many[key], one[key], rtol=0, atol=UPDATE)


@pytest.mark.long
def test_every_device_keeps_the_transitions_of_its_lanes_and_sends_none(replay):
    """16 lanes, 16 steps of each. A batch of 64 transitions is 104 kB; what is sent are gradients, means, variances
    with means of their own, and a few numbers.
    """
    assert read(replay, 1)["part"].tolist() == [16, 16, 1, OBSERVED]
    assert read(replay, COUNT)["part"].tolist() == [2, 16, 1, OBSERVED]
    sent = transfers(replay, COUNT, "replay")
    assert {kind for kind, _ in sent} == {"all-reduce"}
    assert read(replay, COUNT)["replay"].tolist() == read(replay, COUNT)["longer"].tolist()
    weights = sum(x.nbytes for key, x in read(replay, COUNT).items() if "learnt" in key)
    assert weights < sum(size for _, size in sent) < weights + 3 * 4 * OBSERVED + 200


def test_one_device_changes_nothing():
    sim = toy_sim()
    assert spread(sim, make_mesh(jax.devices()[:1])) is sim
    x = jnp.arange(4.0)
    assert over_devices(x) is x
