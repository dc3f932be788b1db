"""Feeder tasks with fleets, 100,000 random and adversarial steps each: energy, queues, trips, network and money."""

from __future__ import annotations

import numpy as np
import pytest

from powerzoo_jax.cases.case import without_idle_branches
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.envs.series import PLANT, SHAPE
from powerzoo_jax.powerflow import nominal_injection
from tests.families.feeder.fleet_episodes import STEPS, TASKS, WILD, Played, before, run, stack
from tests.references.newton import branch_flows, build_network, solve_states
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

F32 = "float32"
TOL = tolerance("device_balance", F32)
STORING = {"marl_der_arbitrage": 3, "marl_ders_benchmark": 4}
FLEXIBLE = ("dso", "marl_ders_benchmark")


def factors(played: Played) -> np.ndarray:
    """Load factor of each shape (B, T, Z), scaled."""
    columns = played.sim.env.columns
    names = ["load_factor", *(name for name in columns.names if name.rpartition("_")[0] == SHAPE)]
    return np.stack([played.column(name) for name in names], -1) * float(played.sim.params.load_ratio)


def shape_share(played: Played, name: str, size: int) -> np.ndarray:
    """(Z, size) share of each place that follows each load shape."""
    share = getattr(played.sim.params, name)
    return np.ones((1, size)) if share is None else np.asarray(share, np.float64)


def bus_load(played: Played) -> np.ndarray:
    """Complex load (B, T, N) [MVA]."""
    grid = played.sim.params.grid
    nominal = (np.asarray(grid.p_load, float) + 1j * np.asarray(grid.q_load, float)) * float(grid.base_mva)
    return factors(played) @ shape_share(played, "shape_bus", len(nominal)) * nominal


def device_power(played: Played) -> np.ndarray:
    """Complex power (B, T, G) [MVA] that the devices delivered."""
    q = played.info.q_mvar
    return played.info.p_mw + (0j if q is None else 1j * q)


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_the_episodes_are_as_many_and_as_hostile_as_claimed(task):
    played = run(task)
    assert played.reward.shape[0] * played.reward.shape[1] >= STEPS
    assert not played.info.terminated.any() and played.info.truncated[:, -1].all()
    # commands beyond what stores hold are refused; a fleet of plants alone would refuse nothing
    assert played.channel("resource")[played.lanes % 8 == WILD].mean() > 0


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_every_number_is_finite_and_no_cost_is_negative(task):
    played = run(task)
    assert np.isfinite(played.reward).all() and np.isfinite(played.info.terms).all()
    assert np.isfinite(played.cost).all() and (played.cost >= 0).all()


@pytest.mark.tiers("long", full=["dso"])
@pytest.mark.parametrize("task", TASKS)
def test_the_feeder_head_delivers_load_plus_losses_less_device_power(task):
    played = run(task)
    load, device = bus_load(played).real.sum(-1), played.info.p_mw
    gap = played.info.p_slack_mw - (load + played.info.p_loss_mw - device.sum(-1))
    left = played.info.pf_residual * float(played.sim.params.grid.base_mva)
    size = load + np.abs(device).sum(-1)
    assert np.all(np.abs(gap) <= TOL * size + left)


@pytest.mark.tiers(long=["marl_der_arbitrage", "marl_ev_v2g"])
@pytest.mark.parametrize("task", TASKS)
def test_sampled_states_solve_an_independent_power_flow(task):
    """Kirchhoff's laws by a Newton method of another formulation, at the injections that the env reports."""
    played = run(task)
    rng = np.random.default_rng(0)
    at = rng.integers(0, len(played.actions), 24), rng.integers(0, played.actions.shape[1], 24)
    case = without_idle_branches(load_case(played.sim.spec.case))
    place = np.asarray(played.sim.params.place_bus, float)
    load = bus_load(played)[at]
    s = (device_power(played)[at] @ place - load) / case.base_mva
    s[:, case.slack_bus] = 0
    np.testing.assert_array_equal((load != 0).any(0), nominal_injection(case) != 0)
    net = build_network(case)
    solution = solve_states(net, s)
    assert solution.converged.all()
    v = np.abs(solution.v)
    np.testing.assert_allclose(played.info.v_min_pu[at], v.min(-1), atol=tolerance("v_pu", F32))
    np.testing.assert_allclose(played.info.local_v_pu[at], v @ place.T, atol=tolerance("v_pu", F32))
    loss = branch_flows(net, solution.v).loss.real * case.base_mva
    np.testing.assert_allclose(played.info.p_loss_mw[at], loss, rtol=tolerance("loss_relative", F32))


@pytest.mark.tiers("long", full=["marl_ders_benchmark"])
@pytest.mark.parametrize("task", TASKS)
def test_the_voltage_channel_is_the_distance_outside_the_band(task):
    played = run(task)
    low = played.sim.params.grid.v_min[0] - played.info.v_min_pu
    outside = played.channel("voltage_violation")
    assert ((outside > 0) == (low > 0)).all()
    assert (outside >= np.maximum(low, 0) - 1e-6).all() and (outside <= np.maximum(low, 0) * 141 + 1e-6).all()


@pytest.mark.tiers(long=["marl_der_arbitrage"])
@pytest.mark.parametrize("task", STORING)
def test_stored_energy_changes_by_terminal_energy_times_efficiency(task):
    played, count, cell = run(task), STORING[task], stack(run(task), "storage")
    p = played.info.p_mw[..., :count]
    drawn = 0.5 * np.where(p > 0, p / cell.eta_discharge, p * cell.eta_charge)
    soc = played.states.storage.soc
    change = (soc - before(played.first.storage.soc, soc)) * cell.capacity_mwh
    assert np.abs(change + drawn).max() <= TOL * cell.capacity_mwh.max()
    assert soc.min() >= cell.soc_min.min() and soc.max() <= cell.soc_max.max()
    assert soc.min() == pytest.approx(0.1) and soc.max() == pytest.approx(0.9)


def test_inverters_stay_in_their_circles_and_active_power_comes_first():
    played = run("marl_ders_benchmark")
    rating = np.r_[stack(played, "storage").s_mva, stack(played, "renewable").s_mva]
    size = np.abs(device_power(played)[..., :8])
    assert (size <= rating * (1 + TOL)).all() and (size > 0.99 * rating).any(axis=(0, 1)).all()


def test_plants_deliver_and_curtail_what_the_sun_offers():
    played = run("marl_ders_benchmark")
    cf = np.stack([played.column(f"{PLANT}_{k}") for k in range(1, 5)], -1)
    offered = 0.5 * cf * stack(played, "renewable").capacity_mw
    found = 0.5 * played.info.renewable.p_mw + played.info.renewable.curtailed_mwh
    assert np.abs(found - offered).max() <= TOL * 0.2
    assert played.info.renewable.p_mw.min() >= 0 and played.info.renewable.p_mw.max() > 0.19


@pytest.mark.parametrize("task", FLEXIBLE)
def test_deferred_load_comes_back_and_no_load_becomes_generation(task):
    played = run(task)
    state, fleet = played.states.flexload, stack(played, "flexload")
    deferred, returned = np.cumsum(state.shift_mw, 1), np.cumsum(state.return_mw, 1)
    assert np.abs(deferred - returned - state.due_mw.sum(-1)).max() <= TOL * deferred.max()
    nominal = np.asarray(played.sim.params.flex_p_mw, float)
    load = factors(played) @ shape_share(played, "flex_shape", len(nominal)) * nominal
    assert (state.curtail_mw + state.shift_mw <= load * (1 + TOL)).all() and state.due_mw.min() >= 0
    assert (state.curtail_mw <= fleet.curtail_cap_mw * (1 + TOL)).all()
    p = played.info.flexload.p_mw
    np.testing.assert_allclose(p, state.curtail_mw + state.shift_mw - state.return_mw, atol=TOL * 0.15)


def away_and_driven(played: Played) -> tuple[np.ndarray, np.ndarray]:
    """From the schedules alone: away during a step, and energy driven on a trip that ends in it, (B, T, G)."""
    plan, state = stack(played, "vehicle").trips, played.first.vehicle
    start = np.arange(played.actions.shape[1])[:, None, None] * 60
    begin, length = state.depart_min[:, None], plan.duration_min
    since = (start + 59 - begin) % 1440
    arrived = ((begin + length - start) % 1440 < 60) & plan.mask.astype(bool)
    away = ((since < length) & plan.mask.astype(bool)).any(-1)
    return away, np.where(arrived, state.trip_mwh[:, None], 0.0).sum(-1)


def test_a_vehicle_stores_what_it_charged_less_what_it_drove():
    played = run("marl_ev_v2g")
    cell, p = stack(played, "vehicle"), played.info.p_mw
    away, driven = away_and_driven(played)
    drawn = np.where(p > 0, p / cell.eta_discharge, p * cell.eta_charge)
    soc = played.states.vehicle.soc
    change = (soc - before(played.first.vehicle.soc, soc)) * cell.capacity_mwh
    assert np.abs(change + drawn + driven - played.info.vehicle.unmet_mwh).max() <= TOL * 0.06
    assert not p[away].any() and 0.05 < away.mean() < 0.3
    assert driven.sum() > 0 and soc.min() >= np.float32(0.1) and soc.max() <= np.float32(0.95)


def test_trips_keep_to_their_jitter_and_to_the_recorded_energies():
    played = run("marl_ev_v2g")
    plan, state = stack(played, "vehicle").trips, played.first.vehicle
    shift = (state.depart_min - plan.depart_min)[:, plan.mask.astype(bool)]
    assert set(np.unique(shift)) == {-60, 0, 60}
    factor = (state.trip_mwh / np.where(plan.mask, plan.energy_mwh, 1))[:, plan.mask.astype(bool)]
    assert factor.min() >= 0.5 - 1e-6 and factor.max() <= 2 + 1e-6 and factor.mean() == pytest.approx(1, abs=0.1)


def test_the_channels_of_vehicles_add_up_what_drivers_missed():
    played = run("marl_ev_v2g")
    report = played.info.vehicle
    np.testing.assert_allclose(played.channel("unmet_energy"), report.unmet_mwh.sum(-1), atol=1e-8)
    np.testing.assert_allclose(played.channel("departure_shortfall"), report.shortfall_mwh.sum(-1), atol=1e-8)
    assert report.unmet_mwh.max() > 0 and report.shortfall_mwh.max() > 0


@pytest.mark.tiers(long=["marl_der_arbitrage"])
@pytest.mark.parametrize("task", TASKS)
def test_the_reward_is_the_money_of_what_the_step_did(task):
    played = run(task)
    money = MONEY[task](played)
    reward = played.reward[..., 0] / played.sim.spec.term_weights[0]
    assert (played.reward == played.reward[..., :1]).all()
    gap = np.abs(reward - money) / np.maximum(np.abs(money), 1)
    assert gap.max() <= 2 * tolerance("money_relative", F32)


def settled(played: Played, cell: object, soc: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Value (B,) of what is left in store at the episode's mean price."""
    rise = (soc[:, -1] - start) * cell.capacity_mwh
    value = np.where(rise > 0, rise * cell.eta_discharge, rise / cell.eta_charge).sum(-1)
    return played.price.mean(1) * value


def der_money(played: Played) -> np.ndarray:
    p = played.info.p_mw
    money = 0.5 * (played.price * p.sum(-1) - 5 * np.abs(p).sum(-1))
    state = played.states.storage
    money[:, -1] += settled(played, stack(played, "storage"), state.soc, played.first.storage.soc)
    return money / 3


def flex_money(played: Played, state: object) -> np.ndarray:
    """Comfort, deferral and what is left at the end, of flexible loads at 50 and 10 $/MWh."""
    money = -0.5 * (50 * state.curtail_mw + 10 * state.shift_mw).sum(-1)
    money[:, -1] -= 0.5 * 50 * state.due_mw[:, -1].sum((-1, -2))
    return money


def dso_money(played: Played) -> np.ndarray:
    loss = 0.5 * np.maximum(played.price, 0) * played.info.p_loss_mw
    return flex_money(played, played.states.flexload) - loss


def ders_money(played: Played) -> np.ndarray:
    p, price = played.info.p_mw[..., :4], played.price
    money = 0.5 * (price * (p.sum(-1) - played.info.p_loss_mw) - 5 * np.abs(p).sum(-1))
    money -= np.maximum(price, 0) * played.info.renewable.curtailed_mwh.sum(-1)
    money += flex_money(played, played.states.flexload)
    cell = stack(played, "storage")
    money[:, -1] += settled(played, cell, played.states.storage.soc, played.first.storage.soc)
    return money


def vehicle_money(played: Played) -> np.ndarray:
    p = played.info.p_mw
    money = played.price * p.sum(-1) - 10 * np.abs(p).sum(-1) - 2000 * played.info.vehicle.unmet_mwh.sum(-1)
    cell = stack(played, "vehicle")
    money[:, -1] += settled(played, cell, played.states.vehicle.soc, played.first.vehicle.soc)
    return money / 5


MONEY = {
    "dso": dso_money,
    "marl_der_arbitrage": der_money,
    "marl_ders_benchmark": ders_money,
    "marl_ev_v2g": vehicle_money,
}

FATAL = {"dso": 12.0, "marl_der_arbitrage": 10.0, "marl_ders_benchmark": 30.0, "marl_ev_v2g": 10.0}


@pytest.mark.tiers("long", full=["dso"])
@pytest.mark.parametrize("task", TASKS)
def test_a_blackout_is_never_cheaper_than_survival(task):
    """Even losing only the lightest load of the last step costs more than the worst episode that survives."""
    alive, dark = run(task), run(task, FATAL[task])
    assert dark.info.terminated[:, -1].all()
    worst = alive.reward[..., 0].sum(1).min()
    assert dark.reward[..., 0].sum(1).max() < worst
    weight, hours = alive.sim.spec.term_weights[0], alive.sim.spec.dt_hours
    lightest = 10_000 * hours * bus_load(alive).real.sum(-1).min()
    assert -weight * lightest < worst


@pytest.mark.tiers("long", full=["dso"])
@pytest.mark.parametrize("task", TASKS)
def test_a_blackout_leaves_all_remaining_load_unserved(task):
    dark = run(task, FATAL[task])
    at = np.argmax(dark.info.terminated, axis=1)
    hours = dark.sim.spec.dt_hours
    remaining = np.cumsum(bus_load(dark).real.sum(-1)[:, ::-1], axis=1)[:, ::-1] * hours
    found = dark.channel("unserved_energy")[dark.lanes, at]
    np.testing.assert_allclose(found, remaining[dark.lanes, at], rtol=tolerance("money_relative", F32))
    later = np.arange(dark.actions.shape[1]) > at[:, None]
    assert not dark.reward[later].any() and not dark.cost[later].any()
