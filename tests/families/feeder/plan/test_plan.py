"""The feeder planner against closed forms, exhaustive search, published losses and the device kernels."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import load_case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.devices import flexload, renewable, storage, vehicle
from powerzoo_jax.devices.trips import CommuteTrip, at_home, daily_trips, events
from powerzoo_jax.families.feeder.plan.network import (
    RadialNetwork,
    loading_tangents,
    loss_tangents,
    reach_of,
    solve_steps,
    tree_network,
    voltage_tangents,
)
from powerzoo_jax.families.feeder.plan.plan import EXACT as NO_MARGIN
from powerzoo_jax.families.feeder.plan.plan import FeederSearch, plan_feeder
from powerzoo_jax.families.feeder.plan.problem import (
    FeederEpisode,
    FlexUnits,
    PlantUnits,
    SetPoints,
    StorageUnits,
    VehicleUnits,
    ViolationPrices,
    play_devices,
    run,
)
from powerzoo_jax.families.feeder.plan.program import FeederProgram
from powerzoo_jax.oracle.linear_program import dual_bound, solve

pytestmark = pytest.mark.reference

EXACT = 1e-9  # float64 arithmetic
PRINTED = 1e-6  # digits of the published tables, relative
STEPS = 6


def line(r=0.05, x=0.05, base_mva=1.0):
    """Two buses."""
    one = np.ones((1, 1))
    return RadialNetwork(np.array([1]), np.array([-1]), np.array([r]), np.array([x]), one, 1.0, base_mva)


def problem(network, load, price, **fields):
    steps, load = len(price), np.asarray(load, float)
    given = {"loss_per_mwh": np.zeros(steps), "mean_price_per_mwh": 0.0, "v_min": 0.5, "v_max": 1.5, "dt_hours": 1.0}
    given |= {"load_p_mw": load, "load_q_mvar": 0.5 * load, "price_per_mwh": np.asarray(price, float)}
    return FeederEpisode(network=network, **given | fields)


def column(value, n=1):
    return np.full(n, float(value))


def battery(node=0, n=1, **fields):
    given = {"capacity_mwh": 1.0, "power_mw": 0.5, "s_mva": 0.5, "eta_charge": 0.9, "eta_discharge": 0.9}
    given |= {"soc_start": 0.5, "soc_min": 0.0, "soc_max": 1.0, "wear_per_mwh": 1.0}
    reactive = fields.pop("reactive", False)
    columns = {name: column(value, n) for name, value in (given | fields).items()}
    return StorageUnits(node=np.arange(node, node + n), reactive=reactive, **columns)


def flexible(load_mw, horizon=2, node=0):
    load = np.asarray(load_mw, float)
    return FlexUnits(
        node=np.array([node]),
        curtail_cap_mw=column(0.2),
        shift_cap_mw=column(0.2),
        curtail_per_mwh=column(50.0),
        shift_per_mwh=column(10.0),
        load_mw=load,
        q_ratio=np.full_like(load, 0.5),
        horizon=horizon,
    )


def radial_network(case, v_slack):
    """Read a case into a tree."""
    f, t = branch_positions(case)
    slack = int(case.slack_bus[0])
    z = case.branch.r_pu, case.branch.x_pu
    return tree_network(case.n_bus, (f, t), case.branch.in_service, z, slack, v_slack, float(case.base_mva))


def feeder_with_everything(seed=0):
    """case33bw at a load that breaks the band, with two batteries, a PV plant, a flexible load and a vehicle."""
    case, rng = load_case("case33bw"), np.random.default_rng(seed)
    network = radial_network(case, 1.0)
    shape = rng.uniform(0.7, 1.1, (STEPS, 1))
    load_p, load_q = shape * case.p_load_mw[network.bus], shape * case.q_load_mvar[network.bus]
    at = {int(b): k for k, b in enumerate(case.bus.id[network.bus])}
    prices = np.array([20.0, 35.0, 50.0, 80.0, 60.0, 30.0])
    nodes, flex_node = np.array([at[12], at[25]]), at[18]
    batteries = dataclasses.replace(battery(n=2, s_mva=0.6, reactive=True), node=nodes)
    away = np.array([False, False, True, True, False, False])[:, None]
    vehicles = VehicleUnits(
        node=np.array([at[30]]),
        capacity_mwh=column(0.06),
        charge_mw=column(0.02),
        discharge_mw=column(0.02),
        eta_charge=column(0.95),
        eta_discharge=column(0.95),
        soc_start=column(0.6),
        soc_min=column(0.1),
        soc_max=column(0.95),
        wear_per_mwh=column(10.0),
        need=column(0.8),
        unmet_per_mwh=column(2000.0),
        home=~away,
        driven_mwh=np.where(np.arange(STEPS) == 4, 0.01, 0.0)[:, None],
        departs=(np.arange(STEPS) == 2)[:, None],
    )
    plants = PlantUnits(
        node=np.array([at[22]]),
        s_mva=column(0.5),
        available_mw=np.array([0.0, 0.2, 0.4, 0.4, 0.2, 0.0])[:, None],
        curtail_per_mwh=prices[:, None],
    )
    flex = dataclasses.replace(flexible(load_p[:, [flex_node]]), node=np.array([flex_node]))
    kinds = {"storage": batteries, "plants": plants, "flex": flex, "vehicles": vehicles}
    limits = {"v_min": 0.92, "v_max": 1.06, "dt_hours": 1.0, "loss_per_mwh": prices, "mean_price_per_mwh": 45.0}
    return FeederEpisode(
        network=network, load_p_mw=load_p, load_q_mvar=load_q, price_per_mwh=prices, scale=0.1, **limits, **kinds
    )


def random_points(case, rng, size=1.0):
    units = {"storage_mw": 2, "storage_mvar": 2, "plant_mw": 1, "plant_mvar": 1, "shed_mw": 1, "defer_mw": 1}
    units["vehicle_mw"] = 1
    return SetPoints(**{name: size * rng.uniform(-0.6, 0.6, (case.horizon, n)) for name, n in units.items()})


@pytest.mark.parametrize(
    ("name", "loss_kw", "v_min"), [("case33bw", 202.6771, 0.913090), ("case141", 632.6956, 0.927862)]
)
def test_the_host_power_flow_reproduces_published_losses_and_voltages(name, loss_kw, v_min):
    case = load_case(name)
    network = radial_network(case, 1.0)
    p, q = case.p_load_mw[network.bus] / case.base_mva, case.q_load_mvar[network.bus] / case.base_mva
    solved = solve_steps(network, p[None], q[None])
    assert solved.loss_pu[0] * case.base_mva * 1000 == pytest.approx(loss_kw, rel=PRINTED)
    assert np.abs(solved.v).min() == pytest.approx(v_min, abs=PRINTED)


@pytest.mark.parametrize("resistance", [1.0, 0.002])
def test_tangents_are_derivatives_and_hold_at_all_injections_within_reach(resistance):
    case, rng = feeder_with_everything(), np.random.default_rng(1)
    last, base = np.arange(32) == 31, case.network.base_mva
    network = dataclasses.replace(case.network, r=np.where(last, resistance, 1.0) * case.network.r)
    # reactive power of a device at the last bus flows back towards the head
    p, q = case.load_p_mw / base, case.load_q_mvar / base - 0.05 * last
    solved = solve_steps(network, p, q)
    reach = reach_of(network, 1.2 * np.hypot(case.load_p_mw, case.load_q_mvar) / base + 0.005)
    loss = loss_tangents(network, solved, reach, np.arange(32))
    step, node = (x.ravel() for x in np.indices(p.shape))
    voltage = voltage_tangents(network, solved, reach, np.arange(32), step, node)
    # planes are inexact only where a branch without resistance carries it, and by next to nothing
    assert (loss.error.max() > 0.0) == (resistance < 1.0) and loss.error.max() < 0.05 * solved.loss_pu.max()
    move = 1e-6 * rng.normal(size=(2, *p.shape))
    ahead, behind = (solve_steps(network, p + s * move[0], q + s * move[1]) for s in (1, -1))
    slope = (loss.by_p * move[0] + loss.by_q * move[1]).sum(axis=1)
    np.testing.assert_allclose((ahead.loss_pu - behind.loss_pu) / 2, slope, atol=1e-12)
    slope = (voltage.by_p * move[0][step] + voltage.by_q * move[1][step]).sum(axis=1)
    np.testing.assert_allclose((np.abs(ahead.v) - np.abs(behind.v))[step, node] / 2, slope, atol=1e-12)
    loading = loading_tangents(network, solved, reach, np.arange(32), step, node)
    slope = (loading.by_p * move[0][step] + loading.by_q * move[1][step]).sum(axis=1)
    taken = [np.abs(x.v_up * np.conj(x.current))[step, node] for x in (ahead, behind)]
    np.testing.assert_allclose((taken[0] - taken[1]) / 2, slope, atol=1e-11)
    for size in (0.001, 0.003, 0.005):
        far = size * rng.uniform(-1, 1, (2, *p.shape))
        there = solve_steps(network, p + far[0], q + far[1])
        plane = loss.value + (loss.by_p * far[0] + loss.by_q * far[1]).sum(axis=1)
        assert (there.loss_pu >= plane - loss.error).all()
        plane = voltage.value + (voltage.by_p * far[0][step] + voltage.by_q * far[1][step]).sum(axis=1)
        assert (np.abs(there.v)[step, node] <= plane + voltage.error).all()
        plane = loading.value + (loading.by_p * far[0][step] + loading.by_q * far[1][step]).sum(axis=1)
        assert (np.abs(there.v_up * np.conj(there.current))[step, node] >= plane - loading.error - EXACT).all()


def test_the_reach_contains_every_solution():
    case, rng = feeder_with_everything(), np.random.default_rng(2)
    size = np.hypot(case.load_p_mw, case.load_q_mvar) / case.network.base_mva
    reach = reach_of(case.network, size)
    for _ in range(20):
        s = size * np.exp(2j * np.pi * rng.uniform(size=size.shape))
        solved = solve_steps(case.network, s.real, s.imag)
        assert (np.abs(solved.current) <= reach.current + EXACT).all()
        assert (np.abs(solved.v_up) <= reach.v_up + EXACT).all()


def test_a_flexible_load_sheds_what_the_two_bus_formula_asks_for():
    # |v|^2 = (1 - 2 (r p + x q) + sqrt(...)) / 2 with r = x = 0.05, q = p / 2: v = 0.96 at the p solved for below
    v, r, x = 0.96, 0.05, 0.05
    a, b = r + x / 2, (r**2 + x**2) * 1.25
    # v^4 + v^2 (2 a p - 1) + b p^2 = 0
    p_most = (-2 * a * v**2 + np.sqrt((2 * a * v**2) ** 2 - 4 * b * (v**4 - v**2))) / (2 * b)
    load = np.array([[0.3], [0.3], [0.7], [0.3], [0.3]])
    case = problem(line(), load, np.zeros(5), flex=flexible(load), v_min=v)
    plan = plan_feeder(case)
    need = 0.7 - p_most
    assert 0.05 < need < 0.2 and plan.violation_pu == 0.0
    # deferring at 10 is cheaper than shedding at 50, and leaves room for the return
    assert plan.points.defer_mw.sum() == pytest.approx(need, abs=1e-3) and plan.points.shed_mw.max() < 1e-6
    assert plan.objective == pytest.approx(-10 * need, rel=5e-3)
    assert plan.kept_bound == pytest.approx(-10 * need, rel=1e-3) and plan.bound == pytest.approx(0.0, abs=1e-6)


def test_no_plan_on_a_grid_beats_the_planner_nor_its_bound():
    load = np.array([[1.0], [0.2], [1.5]])
    prices = {"loss_per_mwh": np.array([300.0, 20.0, 500.0]), "mean_price_per_mwh": 30.0}
    case = problem(line(r=0.08), load, [30.0, 25.0, 45.0], storage=battery(s_mva=0.6, reactive=True), **prices)
    plan = plan_feeder(case)
    levels = np.linspace(-0.5, 0.5, 11)
    best = -np.inf
    for p in itertools.product(levels, repeat=3):
        for q in (0.0, 0.3, 0.6):
            asked = dataclasses.replace(plan.points, storage_mw=np.array(p)[:, None], storage_mvar=np.full((3, 1), q))
            best = max(best, run(case, asked).money_usd)
    assert best <= plan.objective + EXACT <= plan.bound + 1e-6
    assert plan.objective - best < 0.03 * abs(best) and plan.bound - plan.objective < 2e-3 * abs(plan.objective)


def test_a_vehicle_charges_in_the_cheap_hour_before_it_leaves():
    case = feeder_with_everything()
    vehicles = dataclasses.replace(case.vehicles, charge_mw=column(0.012), wear_per_mwh=column(0.0))
    alone = dataclasses.replace(
        case,
        price_per_mwh=np.array([20.0, 35.0, 50.0, 80.0, 10.0, 10.0]),
        mean_price_per_mwh=0.0,
        storage=None,
        plants=None,
        flex=None,
        vehicles=vehicles,
        v_min=0.5,
        loss_per_mwh=np.zeros(STEPS),
        scale=1.0,
    )
    plan = plan_feeder(alone)
    # 0.012 MWh stored are missing for departure: full power in the cheaper first hour, the rest in the second
    first, rest = 0.012, 0.012 / 0.95 - 0.012
    np.testing.assert_allclose(-plan.points.vehicle_mw[:2, 0], [first, rest], atol=1e-9)
    assert plan.missed_mwh < EXACT and plan.points.vehicle_mw[2:4].max() == 0.0
    assert plan.bound >= plan.kept_bound - EXACT >= plan.objective - 2 * EXACT


@pytest.mark.parametrize(
    "spike", [[50.0, 9000.0, 9000.0, 40.0, 60.0, 3000.0], [9000.0, 30.0, 20.0, 9000.0, 5.0, 9000.0]]
)
@pytest.mark.parametrize("shortfall", [0.0, 2500.0, 1e5])
def test_no_vehicle_buys_en_route_what_it_sold_from_a_battery_that_is_not_empty(spike, shortfall):
    """Energy en route costs 2,000 $/MWh: above that the linear program sells what the trip needs, as none can."""
    vehicles = dataclasses.replace(feeder_with_everything().vehicles, driven_mwh=np.eye(STEPS)[:, [4]] * 0.03)
    load = np.full((STEPS, 1), 0.1)
    case = problem(line(), load, spike, vehicles=dataclasses.replace(vehicles, node=np.array([0])))
    case = dataclasses.replace(case, mean_price_per_mwh=2500.0)
    prices = ViolationPrices(0.0, 0.0, shortfall, 0.0)
    found, best = FeederSearch(case, NO_MARGIN).improve(prices), -np.inf
    at_home, levels = np.flatnonzero(vehicles.home[:, 0]), np.linspace(-0.02, 0.02, 7)
    for p in itertools.product(levels, repeat=at_home.size):
        asked = np.zeros((STEPS, 1))
        asked[at_home, 0] = p
        played = play_devices(case, dataclasses.replace(found.best.points, vehicle_mw=asked))
        best = max(best, played.money_usd - shortfall * played.shortfall_mwh)
    worth = found.best.worth(prices)
    assert best <= worth + EXACT <= found.bound_usd + 2 * EXACT and found.bound_usd - worth < 1e-3 * abs(worth)
    linear = FeederProgram(case, most_loss=np.ones(STEPS)).priced(prices)
    assert found.bound_usd < -solve(linear).objective - 1.0  # by the trip alone


def test_vehicles_that_meet_in_no_limit_are_planned_one_by_one_and_not_where_a_rating_is_priced():
    one = dataclasses.replace(
        feeder_with_everything().vehicles, node=np.array([0]), driven_mwh=np.full((STEPS, 1), 0.0)
    )
    driven = np.zeros((STEPS, 2))
    driven[4] = 0.03, 0.045
    fields = {field.name: np.repeat(getattr(one, field.name), 2, axis=-1) for field in dataclasses.fields(one)}
    both = dataclasses.replace(one, **fields | {"driven_mwh": driven, "soc_start": np.array([0.6, 0.9])})
    prices, load = [9000.0, 9000.0, 50.0, 40.0, 60.0, 3000.0], np.full((STEPS, 1), 0.1)
    case = problem(line(), load, prices, vehicles=both, mean_price_per_mwh=2500.0, rate_mva=np.array([0.14]))
    missed = ViolationPrices(0.0, 0.0, 2500.0, 0.0)
    apart = FeederSearch(case, NO_MARGIN).improve(missed)
    search = FeederSearch(case, NO_MARGIN)
    assert len(search.apart) == 2
    search.apart = []
    together = search.improve(missed)
    assert apart.bound_usd == pytest.approx(together.bound_usd, rel=2e-3)
    assert apart.best.worth(missed) == pytest.approx(together.best.worth(missed), rel=2e-3)
    # both charge at once in the cheap hours, beyond the rating: with a price on it they are planned together
    rated = FeederSearch(case, NO_MARGIN).improve(missed._replace(rating=1e6))
    assert apart.best.overload_mva > 1e-3 and rated.best.overload_mva < 1e-6


def test_the_planner_keeps_a_band_that_idle_devices_break():
    case = feeder_with_everything()
    nothing = SetPoints(
        **{name: 0 * value for name, value in vars(random_points(case, np.random.default_rng(0))).items()}
    )
    assert run(case, dataclasses.replace(nothing, plant_mw=case.plants.available_mw)).violation_pu > 0.01
    plan = plan_feeder(case)
    assert plan.violation_pu == 0.0 and plan.missed_mwh < EXACT
    # the back-off from the band and the tangents of the inverter circles
    assert 0 <= plan.gap < 1e-2 * abs(plan.objective)


def test_the_planner_gives_up_money_to_keep_a_rating():
    case = feeder_with_everything()
    rating = np.where(case.network.up < 0, 4.6, 0.0)
    rated, plan = dataclasses.replace(case, rate_mva=rating), plan_feeder(case)
    assert run(rated, plan.points).overload_mva > 0.05
    kept = plan_feeder(rated)
    assert kept.overload_mva == 0.0 and kept.violation_pu == 0.0
    assert kept.objective < plan.objective and 0 <= kept.gap < 1e-2 * abs(plan.objective)


def test_no_random_policy_earns_more_than_the_bounds():
    case, rng = feeder_with_everything(), np.random.default_rng(4)
    plan = plan_feeder(case)
    for size in np.linspace(0, 1, 100):
        out = run(case, random_points(case, rng, size))
        assert case.scale * out.money_usd <= plan.bound
        assert case.scale * (out.money_usd - out.broken_usd) <= plan.kept_bound - plan.broken


def test_at_a_price_of_broken_limits_no_plan_is_worth_more_than_the_bound():
    case, rng = feeder_with_everything(), np.random.default_rng(6)
    # a rating at the head that the load exceeds, and a vehicle that cannot reach what its driver expects
    rating = np.where(case.network.up < 0, 4.4, 0.0)
    slow = dataclasses.replace(case.vehicles, charge_mw=column(0.004))
    case = dataclasses.replace(case, rate_mva=rating, vehicles=slow)
    search, spent, money = FeederSearch(case, NO_MARGIN), [], []
    for scale in (0.0, 0.03, 1.0, 30.0):
        prices = ViolationPrices(400 * scale, 60 * scale, 500 * scale, 500 * scale)
        found = search.improve(prices)
        fresh = FeederSearch(case, NO_MARGIN).improve(prices)
        # tangents that were found at other prices change nothing but where a search begins
        assert found.best.worth(prices) == pytest.approx(fresh.best.worth(prices), abs=2e-3 * abs(found.bound_usd))
        assert found.best.worth(prices) <= found.bound_usd + EXACT
        assert found.bound_usd - found.best.worth(prices) < 1e-2 * max(1.0, abs(found.best.money_usd))
        for size in np.linspace(0, 1, 25):
            assert run(case, random_points(case, rng, size)).worth(prices) <= found.bound_usd
        out = found.best
        spent.append([out.violation_pu, out.overload_mva, out.shortfall_mwh + out.unmet_mwh])
        money.append(out.money_usd)
    assert np.all(np.diff(money) < 0) and np.all(np.diff(spent, axis=0) <= EXACT)
    assert spent[0][0] > 0.01 and spent[0][1] > 0.01 and spent[0][2] > spent[-1][2] > 0


def test_paid_losses_enter_the_bound_with_the_most_that_can_be_lost():
    case = dataclasses.replace(feeder_with_everything(), vehicles=None, v_min=0.5)
    case = dataclasses.replace(case, loss_per_mwh=np.where(np.arange(STEPS) == 1, -30.0, case.loss_per_mwh))
    plan, rng = plan_feeder(case), np.random.default_rng(5)
    lossy = max(run(case, random_points(case, rng)).money_usd for _ in range(50))
    assert case.scale * lossy <= plan.bound and plan.objective <= plan.bound


def test_the_bound_needs_no_trust_in_the_multipliers():
    case = feeder_with_everything()
    program = FeederProgram(case, most_loss=np.ones(STEPS))
    linear = program.priced(ViolationPrices(1.0, 1.0, 1.0, 1.0))
    found = solve(linear)
    assert dual_bound(linear, found.dual) == pytest.approx(found.objective, abs=1e-6)
    wrong = found.dual + np.random.default_rng(3).normal(size=found.dual.shape)
    assert dual_bound(linear, wrong) < found.objective


@pytest.mark.full
def test_devices_are_played_as_the_kernels_do():
    case, rng = feeder_with_everything(), np.random.default_rng(7)
    # trips on the clock: away in steps 2 and 3 of an episode that starts at 06:00
    with jax.enable_x64(True):
        trips = daily_trips([[CommuteTrip(8.0, 10.0, 10.0)]], 60, np.float64)
        asked = random_points(case, rng)
        played = play_devices(case, asked)
        done = {"storage": [], "storage_q": [], "plant": [], "plant_q": [], "flex": [], "flex_q": [], "vehicle": []}
        cells = storage.storage_params(
            2, np.float64, capacity_mwh=1.0, power_mw=0.5, s_mva=0.6, eta_roundtrip=0.81, soc_min=0.0, soc_max=1.0
        )
        store = storage.init(cells, jnp.full(2, 0.5))
        plants = renewable.renewable_params(1, np.float64, capacity_mw=0.5, s_mva=0.5)
        flex = flexload.flexload_params(1, np.float64, curtail_cap_mw=0.2, shift_cap_mw=0.2)
        buffer = flexload.init(flex, 2)
        cars = vehicle.vehicle_params(
            trips, np.float64, charge_kw=20.0, discharge_kw=20.0, initial_soc=0.6, degradation_per_mwh=10.0
        )
        car = vehicle.init(cars, jnp.full(1, 0.6), trips)
        missed = 0.0
        for t in range(STEPS):
            minute = jnp.asarray(60 * (6 + t), jnp.int32)
            assert bool(at_home(trips, minute, 60)[0]) == bool(case.vehicles.home[t, 0])
            assert bool(events(trips, minute, 60).departs[0]) == bool(case.vehicles.departs[t, 0])
            store, out = storage.step(cells, store, asked.storage_mw[t], 1.0, asked.storage_mvar[t])
            done["storage"].append(out.p_mw)
            done["storage_q"].append(out.q_mvar)
            cf = jnp.asarray(case.plants.available_mw[t] / 0.5)
            share = jnp.asarray(1 - np.clip(asked.plant_mw[t], 0, None) / np.maximum(case.plants.available_mw[t], 1e-9))
            _, out = renewable.step(plants, renewable.init(plants), (share, jnp.asarray(asked.plant_mvar[t])), 1.0, cf)
            done["plant"].append(out.p_mw)
            done["plant_q"].append(out.q_mvar)
            load = jnp.asarray(case.flex.load_mw[t])
            ordered = jnp.asarray(asked.shed_mw[t]), jnp.asarray(asked.defer_mw[t])
            buffer, out = flexload.step(flex, buffer, ordered, 1.0, load, 0.5 * load)
            done["flex"].append(out.p_mw)
            done["flex_q"].append(out.q_mvar)
            car, out = vehicle.step(cars, car, jnp.asarray(asked.vehicle_mw[t]), 1.0, minute)
            done["vehicle"].append(out.p_mw)
            missed += float(out.shortfall_mwh[0])
        left = flexload.terminal_usd(flex, buffer, 1.0)
    np.testing.assert_allclose(played.points.storage_mw, done["storage"], atol=EXACT)
    np.testing.assert_allclose(played.points.storage_mvar, done["storage_q"], atol=EXACT)
    np.testing.assert_allclose(played.points.plant_mw, done["plant"], atol=EXACT)
    np.testing.assert_allclose(played.points.plant_mvar, done["plant_q"], atol=EXACT)
    node = int(case.flex.node[0])
    np.testing.assert_allclose(played.p_mw[:, node], np.array(done["flex"])[:, 0], atol=EXACT)
    np.testing.assert_allclose(played.q_mvar[:, node], np.array(done["flex_q"])[:, 0], atol=EXACT)
    np.testing.assert_allclose(played.points.vehicle_mw, done["vehicle"], atol=EXACT)
    assert played.shortfall_mwh == pytest.approx(missed, abs=EXACT) and missed > 0
    assert 50.0 * float(case.flex.left_over() @ played.points.defer_mw[:, 0]) == pytest.approx(
        float(left[0]), abs=EXACT
    )
