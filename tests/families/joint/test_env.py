"""Laws of a transmission grid with feeders below it, under random and adversarial actions, recomputed in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.envs import Sim
from powerzoo_jax.families.joint.plan.policies import units_alone, where_drawn
from powerzoo_jax.families.transmission.plan.dispatch import host_system
from powerzoo_jax.tasks.score import all_starts, seeded_starts
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

STEPS, LANES = 48, 2_100  # 100,800 steps
BUSES, SCALE = (3, 4, 3), 4.0
MISMATCH_PU = 1e-6
BASE_MVA, BATTERY_MWH = 100.0, 1.0
PEAK_SHARE = np.array([0, 500, 600, 400, 0.0]) / 1500
UNIT_BUS, PRICE = np.array([0, 0, 2, 3, 4]), np.array([14.0, 15, 30, 40, 10])
LOW, HIGH = np.array([5.0, 10, 20, 10, 20]), np.array([40.0, 170, 520, 200, 600])
FEEDER_MW = 3.715


class Played(NamedTuple):
    """Leading axes (B, T); feeders F, batteries S."""

    p: np.ndarray
    flow: np.ndarray
    load: np.ndarray
    exchange: np.ndarray
    mismatch: np.ndarray
    unserved: np.ndarray
    surplus: np.ndarray
    loss: np.ndarray
    battery: np.ndarray
    soc: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    fine: np.ndarray
    factor: np.ndarray


@jax.jit
def play(sim: Sim, lanes: jax.Array) -> tuple[jax.Array, ...]:
    shape = (STEPS, sim.env.dims.agent, 1)

    def episode(lane: jax.Array) -> tuple[jax.Array, ...]:
        key = jax.random.key(lane)
        first, _ = sim.init(key)
        free = jax.random.uniform(jax.random.fold_in(key, 1), shape, first.seen.lmp.dtype, minval=-1, maxval=1)
        held = jnp.repeat(jnp.sign(free[::8]), 8, axis=0)
        kinds = jnp.stack([free, held, jnp.full_like(free, -1), jnp.full_like(free, 1), jnp.full_like(free, jnp.nan)])
        wanted = kinds[jnp.where(lane % 2 == 0, 0, (lane // 2) % 5)]

        def advance(state, action):  # type: ignore[no-untyped-def]
            out = sim.step(state, action)
            i = out.info
            row = sim.params.bank.load_rows[state.transmission.load_row + state.t, 0]
            told = (i.unit_power_mw, i.line_flow_mw, i.load_mw, i.exchange_mw, i.boundary_mismatch_pu)
            more = (i.unserved_mw, i.surplus_mw, i.p_loss_mw, i.battery_mw, i.soc, out.reward[0], out.cost)
            fine = jnp.isfinite(out.obs).all() & jnp.isfinite(out.cost).all() & ~i.terminated
            return out.state, (*told, *more, fine, row)

        return jax.lax.scan(advance, first, wanted)[1]

    return jax.vmap(episode)(lanes)


@pytest.fixture(scope="module")
def played() -> Played:
    with jax.enable_x64(True):
        keywords = {"feeder_bus_ids": BUSES, "feeder_scale": SCALE, "trans_load_ratio": 1.1}
        sim = powerzoo_jax.make("joint_trans_dist", split="test", dtype="float64", **keywords)
        return Played(*(np.asarray(x) for x in play(sim, jnp.arange(LANES))))


@pytest.mark.full
def test_every_step_is_solved_and_finite(played):
    assert played.fine.all() and (played.cost >= 0).all()
    assert (played.p >= LOW - 1e-9).all() and (played.p <= HIGH + 1e-9).all()


@pytest.mark.full
def test_the_head_of_a_feeder_draws_load_and_losses_less_its_batteries(played):
    each = played.factor[..., None] * 0.9 * FEEDER_MW + played.loss - played.battery.sum(-1)
    drawn = SCALE * np.stack([each[..., 0] + each[..., 2], each[..., 1]], axis=-1)
    assert np.abs(drawn - played.exchange).max() / BASE_MVA < MISMATCH_PU
    assert played.mismatch.max() < MISMATCH_PU and played.loss.min() > 0


@pytest.mark.full
def test_the_lines_deliver_to_every_bus_what_its_feeders_and_the_rest_of_its_load_take(played):
    """Kirchhoff's law with loads known from the series: at a bus with feeders it is the boundary mismatch."""
    planned = played.factor * 0.9 * FEEDER_MW * SCALE
    rest = 1.1 * 1530 * played.factor[..., None] * PEAK_SHARE
    rest[..., 2] -= 2 * planned
    rest[..., 3] -= planned
    kept = 1 - played.unserved / rest.sum(-1)
    arriving = -rest * kept[..., None]
    arriving[..., 2] -= played.exchange[..., 0]
    arriving[..., 3] -= played.exchange[..., 1]
    for unit, bus in enumerate(UNIT_BUS):
        arriving[..., bus] += played.p[..., unit]
    case = load_case("pz_case5")
    arriving[..., case.slack_bus[0]] -= played.surplus
    for line, (a, b) in enumerate(zip(case.branch.from_id, case.branch.to_id, strict=True)):
        arriving[..., case.bus_index[int(a)]] -= played.flow[..., line]
        arriving[..., case.bus_index[int(b)]] += played.flow[..., line]
    assert np.abs(arriving).max() / BASE_MVA < MISMATCH_PU
    assert (played.unserved > 0).any() and (kept > 0).all()


@pytest.mark.long
def test_the_planner_sees_the_lines_as_they_are(played):
    """The oracle dispatches on its own model of both networks: its flows are those of the environment."""
    with jax.enable_x64(True):
        keywords = {"feeder_bus_ids": BUSES, "feeder_scale": SCALE, "trans_load_ratio": 1.1}
        sim = powerzoo_jax.make("joint_trans_dist", split="test", dtype="float64", **keywords)
        system, of_bus = host_system(units_alone(sim)), np.asarray(sim.params.factors.of_bus)
    planned = played.factor[..., None] * 0.9 * FEEDER_MW * SCALE * np.array([2.0, 1.0])
    balanced = np.argwhere((played.unserved == 0) & (played.surplus == 0))[::997]
    assert len(balanced) > 50
    for lane, t in balanced:
        there = where_drawn(system, of_bus, (played.exchange - planned)[lane, t])
        flow = there.flow(played.p[lane, t], played.load[lane, t])
        np.testing.assert_allclose(flow, played.flow[lane, t], atol=1e-6 * BASE_MVA)


@pytest.mark.full
def test_money_is_generation_wear_and_what_is_not_served(played):
    money = 0.5 * (played.p @ PRICE + 10_000 * played.unserved + 500 * played.surplus)
    money += SCALE * 1.0 * 0.5 * np.abs(played.battery).sum((-1, -2))
    left = BATTERY_MWH * (played.soc[:, -1] - 0.5)
    delivered = np.where(left > 0, left * np.sqrt(0.95), left / np.sqrt(0.95))  # at the terminals
    money[:, -1] -= SCALE * 20.0 * delivered.sum((-1, -2))
    np.testing.assert_allclose(-1e3 * played.reward, money, rtol=tolerance("money_relative", "float64"))


@pytest.mark.full
def test_batteries_keep_their_energy(played):
    eta = np.sqrt(0.95)
    moved = np.where(played.battery > 0, played.battery / eta, played.battery * eta) * 0.5 / BATTERY_MWH
    before = np.concatenate([np.full_like(played.soc[:, :1], 0.5), played.soc[:, :-1]], axis=1)
    np.testing.assert_allclose(played.soc, before - moved, atol=tolerance("device_balance", "float64"))
    assert played.soc.min() >= 0.1 - 1e-12 and played.soc.max() <= 0.9 + 1e-12


@jax.jit
def _init(sim, key):  # type: ignore[no-untyped-def]
    return sim.init(key)


@jax.jit
def _step(sim, state, action):  # type: ignore[no-untyped-def]
    return sim.step(state, action)


@pytest.mark.long
def test_the_boundary_matches_in_single_precision_as_well():
    sim = powerzoo_jax.make("joint_trans_dist")
    state, _ = _init(sim, jax.random.key(3))
    worst = []
    for t in range(STEPS):
        action = jax.random.uniform(jax.random.key(t), (8, 1), minval=-1, maxval=1)
        out = _step(sim, state, action)
        state = out.state
        worst.append(float(out.info.boundary_mismatch_pu))
    assert 0 < max(worst) < MISMATCH_PU and bool(out.info.truncated)


@pytest.mark.long
def test_episodes_can_be_chosen_as_the_environment_draws_them():
    sim = powerzoo_jax.make("joint_trans_dist", feeder_bus_ids=(3, 3), feeder_scale=5.0, initial_soc=(0.3, 0.7))
    drawn = seeded_starts(sim, 2, seed=7)
    assert drawn.soc.shape == (2, 6) and len(np.unique(np.asarray(drawn.soc))) == 12
    one = jax.tree.map(lambda x: x[0], drawn)
    state, _ = jax.eval_shape(sim.env.begin, jax.random.key(7), one, sim.params)
    assert state.feeder.storage.soc.shape == (2, 3)
    assert np.asarray(all_starts(sim).soc).ravel() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"feeder_scale": 200.0}, ValueError, "bus 3 has less load than its feeders"),
        ({"feeder_bus_ids": ()}, ValueError, "Name at least one bus"),
        ({"feeder_scales": 2.0}, TypeError, "feeder_scale"),
        ({"split": "load_stress"}, ValueError, "Valid: test, train, val"),
        ({"reward_type": "individual"}, ValueError, "shared"),
        ({"num_batteries": 9}, ValueError, "battery_bus_ids"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(keywords, error, words):
    with pytest.raises(error, match=words):
        powerzoo_jax.make("joint_trans_dist", **keywords)
