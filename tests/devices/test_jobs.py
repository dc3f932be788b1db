"""Queues of jobs in the form for accelerators: the same bits as on a core, classes joined and sums by comparison."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.solver_mode import FIXED, auto_is
from powerzoo_jax.devices import datacenter, jobs
from powerzoo_jax.devices.datacenter import DataCenterExogenous, Order
from powerzoo_jax.devices.facility import QueueSizes, datacenter_params, sizes

pytestmark = pytest.mark.property

STEPS, LANES, UNITS, DT = 48, 8, 2, 0.5
SMALL = QueueSizes(queue=6, arrivals=sizes(30).arrivals, bins=sizes(30).bins)  # so that a queue is full now and then


def episode(*, force_start: bool) -> Any:
    """States and deliveries of every step of a few lanes under random orders."""
    params = datacenter_params(UNITS, "float32", n_gpus=[400, 900], infer_gpu_peak=[200, 400])

    def step(state: Any, given: tuple[jax.Array, jax.Array]) -> Any:
        key, t = given
        minute = 30.0 * t
        draws = jax.random.uniform(key, (4, UNITS), jnp.float32)
        arrivals = datacenter.draw_arrivals(key, params, SMALL, DT, minute)
        order, weather = Order(draws[0], draws[1], 18 + 9 * draws[2]), DataCenterExogenous(draws[3], 40 * draws[3])
        state, out = datacenter.step(params, state, order, DT, minute, arrivals, weather, force_start=force_start)
        return state, (state, out)

    def lane(key: jax.Array) -> Any:
        given = jax.random.split(key, STEPS), jnp.arange(STEPS, dtype=jnp.float32)
        return jax.lax.scan(step, datacenter.init(params, SMALL), given)[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lane))(jax.random.split(jax.random.key(3), LANES)))


@pytest.mark.tiers("full", long=["True"])
@pytest.mark.parametrize("force_start", [False, True])
def test_the_form_for_accelerators_has_the_same_bits(force_start: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = episode(force_start=force_start)
    monkeypatch.setattr(jobs, "by_mode", lambda mode, core, elsewhere, *given: elsewhere(*given))
    monkeypatch.setattr(jobs, "by_device", lambda core, elsewhere, *given: elsewhere(*given))
    there = episode(force_start=force_start)
    state, out = here
    assert (state.train.gpus[..., 0] > 0).any() and (out.missed_jobs > 0).any() and (state.job_gpus > 0).any()
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_what_enters_a_calendar_has_the_same_bits_in_a_single_kernel_of_a_core() -> None:
    """Whole GPUs and grains, at steps before, within and behind the calendar."""
    rng = np.random.default_rng(0)
    calendar = rng.integers(0, 500, (UNITS, 20)).astype(np.float32)
    steps = rng.integers(-1, 24, (UNITS, 30)).astype(np.float32)
    amount = rng.integers(0, 5000, (UNITS, 30)).astype(np.float32) / jobs.GRAIN
    many = jax.jit(lambda *given: jobs._entered(*given))(calendar, steps, amount)
    with auto_is(FIXED):
        single = jax.jit(lambda *given: jobs._entered(*given))(calendar, steps, amount)
    assert not np.array_equal(many, calendar)
    np.testing.assert_array_equal(many, single)
