"""The causal planner of a data centre: its room is the environment's, it cools while energy is cheap, and it pays."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.tree import take
from powerzoo_jax.devices import datacenter, datacenter_params
from powerzoo_jax.devices.datacenter import DataCenterExogenous, Order
from powerzoo_jax.devices.facility import QueueSizes
from powerzoo_jax.devices.jobs import Jobs
from powerzoo_jax.oracle import evaluate_baseline, get_causal
from powerzoo_jax.oracle.datacenter.room import Ahead, room_step, set_point_place
from powerzoo_jax.tasks.score import all_starts, episode_keys, seeded_starts

HALF_HOUR, SUBSTEPS = 0.5, 6
STEPS = 24


class Room(NamedTuple):
    """Room before a step, its set-point and the weather [degC]."""

    zone_c: float
    set_c: float
    outdoor_c: float


@pytest.mark.full
@pytest.mark.parametrize("room", [Room(24.0, 18.0, 31.0), Room(29.5, 27.0, 5.0), Room(19.0, 27.0, 12.0)])
def test_a_step_of_the_room_is_that_of_the_environment(room):
    site = datacenter_params(1, np.float32)
    state = datacenter.init(site, QueueSizes(queue=4, arrivals=(1, 1), bins=(9, 4)))
    state = state.replace(t_zone_c=jnp.full(1, room.zone_c))
    nobody = Jobs(*(jnp.zeros((1, 1)) for _ in Jobs._fields))
    order = Order(jnp.zeros(1), jnp.zeros(1), jnp.full(1, room.set_c))
    weather = DataCenterExogenous(jnp.full(1, 0.5), jnp.full(1, room.outdoor_c))
    after, _ = datacenter.step(site, state, order, HALF_HOUR, jnp.zeros(()), (nobody, nobody), weather)
    zone, cooling = room_step(
        site, jnp.float32(room.zone_c), jnp.full(1, room.set_c), after.it_mw, weather.t_outdoor_c, HALF_HOUR, SUBSTEPS
    )
    np.testing.assert_allclose(zone, after.t_zone_c, rtol=1e-3)
    np.testing.assert_allclose(cooling, after.cool_mw, rtol=1e-3)


@pytest.mark.full
def test_the_room_is_cooled_while_energy_is_cheap_and_kept_below_its_critical_temperature():
    site = datacenter_params(1, np.float32, t_critical_c=30.0)

    def place(price, zone_c=24.0, it_mw=0.9):
        fill = np.ones(STEPS, np.float32)
        ahead = Ahead(
            jnp.asarray(price * fill), jnp.asarray(it_mw * fill), jnp.asarray(15 * fill), jnp.ones(STEPS, bool)
        )
        return float(set_point_place(site, jnp.float32(zone_c), ahead, jnp.float32(50.0), HALF_HOUR, SUBSTEPS))

    cheap_first = np.where(np.arange(STEPS) < STEPS // 2, 20.0, 80.0)
    # fans that run in any case remove the heat of a set-point 1.25 degC below the room
    assert place(cheap_first) < 0.3 < 0.5 < place(cheap_first[::-1])
    # servers at full power warm the room by 8 degC above its set-point
    assert place(cheap_first[::-1], zone_c=29.8, it_mw=1.6) < 0.5


def test_what_the_plan_does_not_know_is_refused():
    sim = powerzoo_jax.make("dc_scheduling", split="val", pue_bonus_weight=1.0)
    with pytest.raises(SolverError, match=r"knows no pue_bonus_weight\. Leave it at 0"):
        get_causal("dc_scheduling")(sim, seeded_starts(sim, 1), episode_keys(0, 1))


@pytest.mark.long
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_planner_keeps_the_budgets_and_earns_more_than_the_rule(split):
    sim = powerzoo_jax.make("dc_scheduling", split=split)
    draws = take(all_starts(sim), slice(0, None, 3))
    causal, rule = (evaluate_baseline(sim, name, draws=draws) for name in ("causal", "rule"))
    assert causal.feasible
    assert causal.mean_reward > rule.mean_reward
