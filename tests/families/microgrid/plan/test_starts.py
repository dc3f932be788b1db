"""Job starts of the microgrid by what is observed."""

from __future__ import annotations

import numpy as np
import pytest

from powerzoo_jax.families.microgrid.env import FIELDS
from powerzoo_jax.oracle.registry import get_column_rule
from powerzoo_jax.tasks import make

# the site of the task, as its card has it
GPUS, ACTIVE_W, IDLE_W, BASE_MW, AUX, COP = 1000, 580.0, 55.0, 0.4, 0.05, 5.0
SUN_MW, DIESEL_MW = 0.8, 0.9


def observed(sim, **values) -> np.ndarray:
    obs = np.array(sim.spaces()[0].low)
    for name, value in {"queue_urgency": 1.0, **values}.items():
        obs[0, FIELDS.names.index(name)] = value
    return obs


def load_mw(gpus: float, cop: float) -> float:
    """Load with so many GPUs at work: servers, auxiliaries, and the chiller that carries away their heat."""
    it = BASE_MW + (GPUS * IDLE_W + gpus * (ACTIVE_W - IDLE_W)) / 1e6
    return it * (1 + AUX + 1 / cop)


@pytest.fixture(scope="module")
def played():
    sim = make("dc_microgrid", split="val")
    site = sim.params.site
    assert [float(x[0]) for x in (site.n_gpus, site.active_w, site.idle_w)] == [GPUS, ACTIVE_W, IDLE_W]
    assert [round(float(x[0]), 6) for x in (site.base_mw, site.aux_share, site.cop)] == [BASE_MW, AUX, COP]
    return sim, get_column_rule("dc_microgrid", "starts").of(sim)


@pytest.mark.parametrize("cop_ratio, factor", [(0.5, 0.8), (0.75, 1.0)])
@pytest.mark.parametrize("busy, sun", [(400, 0.0), (500, 0.25), (800, 0.5), (300, 1.0)])
def test_as_many_gpus_start_as_sun_diesel_and_the_reserve_carry(played, busy, sun, cop_ratio, factor):
    """Were the share of the free GPUs started, the load would be what can be had, or no GPU would be left."""
    sim, rule = played
    action = np.asarray(rule(observed(sim, gpu_util=busy / GPUS, solar_cf=sun, cop_ratio=cop_ratio)))[0]
    started = (action[:2] + 1) / 2 * (GPUS - busy)
    supply = SUN_MW * sun + DIESEL_MW + 0.05
    room = supply - load_mw(busy, COP * factor)
    full = supply - load_mw(GPUS, COP * factor)
    expected = 0.0 if room < 0 else GPUS - busy if full > 0 else None
    if expected is None:
        np.testing.assert_allclose([load_mw(busy + x, COP * factor) for x in started], supply, rtol=1e-5)
    else:
        np.testing.assert_allclose(started, expected, atol=1e-3)


def test_a_job_that_can_hardly_wait_starts_where_there_is_no_room(played):
    sim, rule = played
    short = {"gpu_util": 0.95, "cop_ratio": 0.5}
    for slack, share in ((1.6, -1.0), (1.4, 1.0)):  # durations, beside the 1.5 that are urgent
        action = rule(observed(sim, queue_urgency=slack / 5, **short))
        np.testing.assert_array_equal(np.asarray(action)[0, :2], share)


def test_a_rule_that_a_task_does_not_have_is_named():
    with pytest.raises(ValueError, match=r"rule of columns of 'dc_microgrid'.*'start'.*Did you mean 'starts'"):
        get_column_rule("dc_microgrid", "start")
