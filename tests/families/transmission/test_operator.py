"""A grid under one operator: published dispatches and flows, outages and switches against a fresh solve."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.envs import Sim
from powerzoo_jax.families.transmission.operator_types import TransGridInfo
from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
from powerzoo_jax.families.transmission.tasks.series import load_series
from powerzoo_jax.powerflow import Status
from powerzoo_jax.tasks.contract import check_sim
from tests.references.meshed import build_meshed
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

CASE5_PRICE = np.array([14.0, 15, 30, 40, 10])
NONE_GIVEN = np.full((1, 5), np.nan)
STRANDING = ((1, 1, 0, 0), (0, 0, 0, 0))  # closed switches 1-2, 1-4, 2-3, 3-4 that leave a bus alone


@jax.jit
def first_step(sim, action):  # type: ignore[no-untyped-def]
    state, _ = sim.init(jax.random.key(0))
    return state, sim.step(state, action)


def at_load(sim: Sim, load_mw: float, share: tuple[float, ...] | None = None) -> Sim:
    """The same grid with one constant load, at the buses in given shares."""
    params = sim.params
    rows = params.bank.load_rows.at[:, 0].set(load_mw / float(params.full_load_mw))
    params = dataclasses.replace(params, bank=dataclasses.replace(params.bank, load_rows=rows))
    if share is not None:
        params = dataclasses.replace(params, load_share=jnp.asarray(share, params.voll.dtype))
    return dataclasses.replace(sim, params=params)


GOLDEN = {
    "1000 MW": (
        (1000.0, (0, 0.3, 0.3, 0.4, 0)),
        17480.4696,
        [40, 170, 308.5235, 10, 471.4765],
        [16.9774, 26.3845, 30, 39.9427, 10],
    ),
    "1377 MW": ((1377.0, None), 27894.0849, [40, 170, 520, 90.4695, 556.5305], [16.9907, 26.4158, 30.0382, 40, 10]),
    "1600 MW": ((1600.0, None), 826094.7826, [40, 170, 520, 200, 590.6522], [1747.3913, 10000, 10000, 10000, 10]),
}


@pytest.mark.tiers("full", long=["1000MW"])
@pytest.mark.parametrize(("load", "cost", "p", "lmp"), GOLDEN.values(), ids=[name.replace(" ", "") for name in GOLDEN])
def test_the_optimum_of_case5_is_the_published_one(load, cost, p, lmp):
    """Spec 07 section 4, through the environment; the table prints four digits."""
    with jax.enable_x64(True):
        _, out = first_step(at_load(make_transgrid(dtype="float64"), *load), jnp.asarray(NONE_GIVEN))
    info = out.info
    np.testing.assert_allclose(info.unit_power_mw, p, atol=1e-4)
    np.testing.assert_allclose(info.lmp, lmp, atol=1e-4)
    assert -2 * float(out.reward[0]) / 0.01 == pytest.approx(cost, rel=1e-6)
    assert float(out.cost[0]) == pytest.approx(0, abs=1e-4) and bool(info.lmp_available)


@pytest.mark.full
def test_a_schedule_takes_the_place_of_the_optimum():
    case = load_case("pz_case5")
    low, high = case.unit.p_min_mw, case.unit.p_max_mw
    p = np.array([40, 170, 308.5235, 10, 471.4765])
    with jax.enable_x64(True):
        sim = at_load(make_transgrid(dtype="float64"), 1000.0, (0, 0.3, 0.3, 0.4, 0))
        _, out = first_step(sim, jnp.asarray(2 * (p - low) / (high - low) - 1)[None])
        beyond = first_step(at_load(sim, 1600.0), jnp.ones((1, 5)))[1]
    flows = [255.7347, 185.7418, -231.4765, -44.2653, -35.7418, -240]
    np.testing.assert_allclose(out.info.line_flow_mw, flows, atol=2e-3)
    assert not bool(out.info.lmp_available) and float(out.cost[2]) == 0
    # 70 MW beyond all units: out of balance, and priced
    np.testing.assert_allclose(beyond.cost[2:4], [70, 35])
    money = 0.5 * (high @ CASE5_PRICE + 10_000 * 70)
    assert float(beyond.reward[0]) == pytest.approx(-0.01 * money, rel=1e-9)


@pytest.fixture(scope="module")
def case14() -> tuple[Case, Sim, np.ndarray]:
    """The 14-bus network at nominal load in AC, and the schedule of its table."""
    case = load_case("pz_case14")
    low, high = case.unit.p_min_mw, case.unit.p_max_mw
    with jax.enable_x64(True):
        sim = make_transgrid("pz_case14", physics="ac", solver_mode="pf", dtype="float64")
        return case, at_load(sim, case.p_load_mw.sum()), 2 * (case.unit.p_mw - low) / (high - low) - 1


@pytest.mark.long
def test_the_ac_flow_of_case14_is_the_published_one(case14):
    """Spec 07 section 1: losses 13.3933 MW, the slack unit covers them; vm 1.010 to 1.090."""
    case, sim, place = case14
    with jax.enable_x64(True):
        _, out = first_step(sim, jnp.asarray(place)[None])
    info = out.info
    assert float(info.p_loss_mw) == pytest.approx(13.3933, abs=5e-5)
    assert float(info.unit_power_mw[0]) == pytest.approx(232.393, abs=5e-4)
    made = np.asarray(info.unit_power_mw).sum()
    assert made == pytest.approx(case.p_load_mw.sum() + float(info.p_loss_mw), abs=1e-6)
    v = np.asarray(info.vm_pu)
    assert (v.min().round(3), v.max().round(3)) == (1.010, 1.090)
    above = np.maximum(v - case.bus.v_max_pu, 0).sum()
    assert float(out.cost[1]) == pytest.approx(above, abs=1e-9) and above > 0
    # published: -16.55 Mvar at the reference bus, whose unit gives 0 to 10; the other units are within their limits
    assert sim.spec.cost_names[-1] == "reactive_shortfall" and float(out.cost[-1]) == pytest.approx(16.55, abs=5e-3)
    assert not np.asarray(info.at_q_limit).any()


def unit_reactive(case: Case, info: TransGridInfo, reactive_mvar: np.ndarray) -> np.ndarray:
    """Reactive power of the units at every bus [Mvar], from the voltages and the reactive load."""
    v = np.asarray(info.vm_pu) * np.exp(1j * np.asarray(info.va_rad))
    return (v * np.conj(build_meshed(case).ybus @ v)).imag * case.base_mva + reactive_mvar


@pytest.mark.long
def test_a_bus_at_a_reactive_limit_gives_up_its_voltage(case14):
    """At 0.3 of nominal load the condensers of buses 3 and 6 have to take in all they can."""
    case, sim, place = case14
    level = 0.3
    with jax.enable_x64(True):
        _, out = first_step(at_load(sim, level * case.p_load_mw.sum()), jnp.asarray(place)[None])
    at_limit, v = np.asarray(out.info.at_q_limit), np.asarray(out.info.vm_pu)
    assert case.bus.id[at_limit == -1].tolist() == [3, 6] and not (at_limit > 0).any()
    q = unit_reactive(case, out.info, level * case.q_load_mvar)
    slack, *units = q[case.positions(case.unit.bus_id)]
    room = tolerance("meshed_kcl_pu", "float64") * case.base_mva
    assert (units >= case.unit.q_min_mvar[1:] - room).all() and (units <= case.unit.q_max_mvar[1:] + room).all()
    # published set-points 1.045, 1.010, 1.070, 1.090: too much reactive power lifts a voltage above its own
    assert v[[1, 7]] == pytest.approx([1.045, 1.090], abs=1e-9) and (v[[2, 5]] > [1.010, 1.070]).all()
    assert float(out.cost[-1]) == pytest.approx(slack - case.unit.q_max_mvar[0], abs=room) and slack > 10


@pytest.mark.long
def test_limits_that_cannot_be_kept_leave_a_shortfall_and_no_failure(case14):
    """Six times the reactive load has a flow while voltages are held, and none within limits."""
    case, sim, place = case14
    with jax.enable_x64(True):
        far = dataclasses.replace(sim.params, reactive_share=6 * sim.params.reactive_share)
        _, out = first_step(dataclasses.replace(sim, params=far), jnp.asarray(place)[None])
    assert int(out.info.pf_status) == Status.CONVERGED and not bool(out.info.terminated)
    q = unit_reactive(case, out.info, 6 * case.q_load_mvar)[case.positions(case.unit.bus_id)]
    beyond = np.maximum(q - case.unit.q_max_mvar, 0) + np.maximum(case.unit.q_min_mvar - q, 0)
    assert float(out.cost[-1]) == pytest.approx(beyond.sum(), rel=1e-6) and (beyond[1:] > 1).any()


@pytest.mark.long
def test_voltages_are_held_whatever_it_takes_where_limits_are_not_enforced():
    sim = make_transgrid("pz_case14", physics="ac", solver_mode="pf", enforce_q_lim=False)
    assert sim.params.factors.reactive is None and "reactive_shortfall" not in sim.spec.cost_names
    state, _ = jax.eval_shape(sim.init, jax.random.key(0))
    asked = jax.ShapeDtypeStruct((1, sim.env.dims.act), sim.params.voll.dtype)
    out = jax.eval_shape(sim.step, state, asked)
    assert out.cost.shape == (5,) and out.info.at_q_limit.shape == (14,)


@pytest.mark.full
def test_the_ac_optimum_of_case14_is_the_published_one():
    """Spec 07 section 3: 8081.5247 USD/h."""
    case = load_case("pz_case14")
    with jax.enable_x64(True):
        sim = at_load(make_transgrid("pz_case14", physics="ac", dtype="float64"), case.p_load_mw.sum())
        _, out = first_step(sim, jnp.asarray(NONE_GIVEN))
    assert 2 * float(out.info.gen_cost_usd) == pytest.approx(
        8081.5247, rel=tolerance("opf_ac_cost_relative", "float64")
    )
    assert np.asarray(out.cost).max() < 1e-6 and bool(out.info.lmp_available) and out.cost.shape == (6,)
    made = np.asarray(out.info.unit_power_mw).sum()
    assert made == pytest.approx(case.p_load_mw.sum() + float(out.info.p_loss_mw), abs=1e-5)


@pytest.mark.full
def test_reactive_load_beyond_the_collapse_ends_the_episode_as_a_blackout(case14):
    _, sim, place = case14
    with jax.enable_x64(True):
        far = dataclasses.replace(sim.params, reactive_share=40 * sim.params.reactive_share)
        state, out = first_step(dataclasses.replace(sim, params=far), jnp.asarray(place)[None])
    assert bool(out.info.terminated) and not bool(out.info.truncated)
    assert all(np.isfinite(np.asarray(x)).all() for x in (out.obs, out.reward, out.cost, out.info.line_flow_mw))
    rows = load_series("fr_2017_2019", "train", 30, 48, 0).rows[:, 0]
    energy = 0.5 * float(far.full_load_mw) * rows[int(state.load_row) : int(state.load_row) + 48].sum()
    assert float(out.cost[3]) == pytest.approx(energy, rel=1e-9)
    assert float(out.reward[0]) == pytest.approx(-0.01 * 10_000 * energy, rel=1e-9)


def lines_of(case: Case, on: np.ndarray, net_mw: np.ndarray) -> np.ndarray:
    """DC flows [MW] of the branches `on`, from a fresh Laplacian."""
    f, t = (np.array([case.bus_index[int(i)] for i in x]) for x in (case.branch.from_id, case.branch.to_id))
    b = np.where(on, 1 / case.branch.x_pu, 0)
    laplacian = np.zeros((case.n_bus, case.n_bus))
    for k in range(case.n_branch):
        for row, column, sign in ((f[k], f[k], 1), (t[k], t[k], 1), (f[k], t[k], -1), (t[k], f[k], -1)):
            laplacian[row, column] += sign * b[k]
    free = np.arange(case.n_bus) != case.slack_bus[0]
    angle = np.zeros(case.n_bus)
    angle[free] = np.linalg.solve(laplacian[np.ix_(free, free)], net_mw[free])
    return b * (angle[f] - angle[t])


def net_of(case: Case, p: np.ndarray, load_mw: float) -> np.ndarray:
    net = -load_mw * np.array([0, 500, 600, 400, 0]) / 1500
    np.add.at(net, case.positions(case.unit.bus_id), p)
    return net


@pytest.mark.full
def test_the_cost_of_outages_is_the_worst_overload_of_any_one():
    case = load_case("pz_case5")
    # ratings of both paths that share what the third one loses; the generator behind the others would outweigh all
    given = np.array([150.0, 150, 0, 150, 150, 0])
    rate = np.where(given > 0, given, np.inf)
    found, expected, base = [], [], []
    with jax.enable_x64(True):
        sim = make_transgrid(solver_mode="pf", n_minus_1=True, dtype="float64")
        factors = sim.params.factors
        factors = dataclasses.replace(factors, dc=dataclasses.replace(factors.dc, rate_mva=jnp.asarray(given)))
        sim = dataclasses.replace(sim, params=dataclasses.replace(sim.params, factors=factors))
        for seed in range(8):
            action = np.random.default_rng(seed).uniform(-1, 1, (1, 5))
            _, out = first_step(sim, jnp.asarray(action))
            served = float(out.info.load_mw - out.info.unserved_mw)  # two of the days have more load than can be served
            net = net_of(case, np.asarray(out.info.unit_power_mw), served)
            after = [lines_of(case, np.arange(case.n_branch) != lost, net) for lost in range(case.n_branch)]
            expected.append(max(np.maximum(np.abs(flow) - rate, 0).sum() for flow in after))
            found.append(float(out.cost[-1]))
            base.append(float(out.cost[0]))
    assert sim.spec.cost_names[-1] == "n_minus_1"
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)
    assert (np.array(expected) > np.array(base)).sum() >= 4


@pytest.fixture(scope="module")
def switchable() -> Sim:
    return make_transgrid(solver_mode="pf", switch_lines=(0, 1, 3, 4))


@pytest.mark.tiers("full", long=["closed0"])
@pytest.mark.parametrize("closed", [(1, 1, 1, 1), (0, 1, 1, 1), (1, 0, 1, 0), (1, 0, 0, 1)])
def test_an_open_line_carries_nothing_and_the_others_what_is_left(switchable, closed):
    case = load_case("pz_case5")
    action = jnp.asarray([[0.2, -0.3, 0.4, 0.9, 0.1, *(2.0 * np.array(closed) - 1)]], jnp.float32)
    _, out = first_step(switchable, action)
    info = out.info
    on = np.ones(6, bool)
    on[[0, 1, 3, 4]] = np.array(closed, bool)
    expected = lines_of(case, on, net_of(case, np.asarray(info.unit_power_mw, float), float(info.load_mw)))
    largest = np.abs(expected).max()
    np.testing.assert_allclose(info.line_flow_mw, expected, atol=tolerance("dc_relative", "float32") * largest)
    assert (np.asarray(info.line_flow_mw)[~on] == 0).all() and np.asarray(info.closed).tolist() == list(
        map(bool, closed)
    )


@pytest.mark.full
@pytest.mark.parametrize("closed", STRANDING)
def test_a_wish_that_would_cut_a_bus_off_changes_nothing(switchable, closed):
    _, out = first_step(switchable, jnp.asarray([[*np.zeros(5), *(2.0 * np.array(closed) - 1)]], jnp.float32))
    assert np.asarray(out.info.closed).all()
    assert int(out.info.switch_overrides) == 4 - sum(closed)


@pytest.mark.long
def test_the_contract_is_kept_by_the_optimum_with_switches():
    sims = (make_transgrid(switch_lines=(0, 1, 3, 4), split=split) for split in ("train", "val", "test"))
    first, *others = sims
    assert first.env.fields.names[-1] == "switch_4_closed"
    check_sim(first, others=tuple(others))


def test_a_difficulty_is_a_step_length_and_a_load():
    grids = [make_transgrid(difficulty=d) for d in ("easy", "medium", "hard")]
    assert [round(60 * g.env.dt_hours) for g in grids] == [60, 30, 15]
    assert [float(g.params.full_load_mw) for g in grids] == pytest.approx([0.70 * 1530, 0.90 * 1530, 0.95 * 1530])


def test_sizes_are_those_of_the_specification():
    assert {c: make_transgrid(c).env.dims.obs for c in ("pz_case5", "pz_case14", "pz_case118")} == {
        "pz_case5": 18,
        "pz_case14": 41,
        "pz_case118": 360,
    }


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"physics": "acdc"}, ValueError, "dc, ac|ac"),
        ({"physics": "ac", "n_minus_1": True}, ValueError, "physics='dc'"),
        ({"difficulty": "expert"}, ValueError, "easy"),
        ({"n_minus_1": True, "switch_lines": (1,)}, ValueError, "Leave out switch_lines"),
        ({"solve_mode": "pf"}, TypeError, "solver_mode"),
        ({"split": "tests"}, ValueError, "test"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(keywords, error, words):
    with pytest.raises(error, match=words):
        make_transgrid(**keywords)


@pytest.mark.long
@pytest.mark.parametrize("limits", [False, True], ids=["magnitudes held", "reactive limits"])
def test_a_flow_that_is_out_of_its_fixed_steps_fails_the_step_and_says_so(limits):
    sim = make_transgrid("pz_case14", physics="ac", solver_mode="pf", enforce_q_lim=limits, solver="fixed")
    state, _ = jax.jit(sim.init)(jax.random.key(0))
    step = jax.jit(lambda sim, state: sim.step(state, jnp.zeros((1, sim.env.dims.act))))
    kept = step(sim, state)
    assert kept.info.pf_status == Status.CONVERGED and not kept.info.terminated and not kept.state.failed
    meshed = sim.params.factors.meshed
    short = dataclasses.replace(meshed, counts=meshed.counts._replace(chord=1))
    factors = dataclasses.replace(sim.params.factors, meshed=short)
    lost = step(dataclasses.replace(sim, params=dataclasses.replace(sim.params, factors=factors)), state)
    assert lost.info.pf_status == Status.OUT_OF_STEPS
    assert lost.info.terminated and lost.state.failed
    # as after any failure: the load to the horizon is unserved, and the last network that was solved is observed
    energy = sim.spec.cost_names.index("unserved_energy")
    assert lost.cost[energy] > kept.cost[energy] and lost.reward < kept.reward
    np.testing.assert_array_equal(lost.state.seen.line_use, state.seen.line_use)
    assert all(np.isfinite(x).all() for x in (lost.obs, lost.reward, lost.cost))


@pytest.mark.full
def test_a_fixed_number_of_steps_solves_schedules_anywhere_in_the_ranges_of_units():
    """Steps counted on states in which loads alone vary solved none of them."""
    found = {}
    for solver in ("fixed", "adaptive"):
        sim = make_transgrid("case118", physics="ac", solver_mode="pf", enforce_q_lim=False, solver=solver)
        states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(5), 32))
        shape = (32, sim.env.dims.agent, sim.env.dims.act)
        requested = jax.random.uniform(jax.random.key(6), shape, minval=-1.0)
        found[solver] = jax.jit(jax.vmap(sim.step))(states, requested).info
    for info in found.values():
        assert (np.asarray(info.pf_status) == Status.CONVERGED).all()
        assert np.asarray(info.pf_residual).max() < 1e-4
    np.testing.assert_allclose(found["fixed"].vm_pu, found["adaptive"].vm_pu, atol=2e-5)
