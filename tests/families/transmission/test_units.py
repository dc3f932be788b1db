"""Laws of the transmission environments under random and adversarial actions, recomputed in NumPy."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.commitment import CommitmentTable, commitment_table, from_technologies
from powerzoo_jax.envs import Sim
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

STEPS, LANES = 48, 2_100  # 100,800 steps a task
# half of them in float64, where money and balance must agree to its tolerances
TASKS = {
    "marl_opf by score": ("marl_opf", {"dtype": "float64"}),
    "marl_opf by schedule": ("marl_opf", {"action_mode": "direct", "max_load_ratio": 1.3}),
    "marl_uc": ("marl_uc", {"max_load_ratio": 1.1, "dtype": "float64"}),
    "opf_118": ("opf_118", {"max_load_ratio": 1.4}),
    "tso": ("comparison_tso_centralized", {}),
}
LARGE = ("opf_118", "tso")
SCALE = {"opf_118": 0.7}  # of the ratings of the case, as CHANGELOG.md states it
COMMITTED = ("marl_uc", "tso")
every_task = pytest.mark.parametrize("name", TASKS)


class Played(NamedTuple):
    """A batch of episodes: leading axes (B, T)."""

    sim: Sim
    on: np.ndarray
    p: np.ndarray
    flow: np.ndarray
    load: np.ndarray
    unserved: np.ndarray
    surplus: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    legal: np.ndarray
    finite: np.ndarray


def actions(key: jax.Array, kind: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """(T, A, U): random, all lowest, all highest, flickering, held for eight steps, or not a number."""
    free = jax.random.uniform(key, shape, minval=-1, maxval=1)
    flicker = jnp.broadcast_to(jnp.where(jnp.arange(shape[0]) % 2 == 0, 1.0, -1.0)[:, None, None], shape)
    held = jnp.repeat(jnp.sign(free[::8]), 8, axis=0)
    kinds = jnp.stack([free, jnp.full(shape, -1.0), jnp.full(shape, 1.0), flicker, held, jnp.full(shape, jnp.nan)])
    # half of the lanes are random
    return kinds[jnp.where(kind % 2 == 0, 0, (kind // 2) % 6)]


@jax.jit
def play(sim: Sim, seed: jax.Array) -> tuple[jax.Array, ...]:
    def episode(lane: jax.Array) -> tuple[jax.Array, ...]:
        key = jax.random.key(lane)
        state, _ = sim.init(key)
        wanted = actions(jax.random.fold_in(key, 1), lane, (STEPS, sim.env.dims.agent, sim.env.dims.act))

        def advance(state, action):  # type: ignore[no-untyped-def]
            out = sim.step(state, action)
            info = out.info
            kept = (info.committed, info.unit_power_mw, info.line_flow_mw, info.load_mw, info.unserved_mw)
            told = (info.surplus_mw, out.reward[0], out.cost, info.legal.reshape(-1))
            return out.state, (*kept, *told, jnp.isfinite(out.obs).all() & jnp.isfinite(out.cost).all())

        return jax.lax.scan(advance, state, wanted)[1]

    return jax.vmap(episode)(seed)


@cache
def played(name: str) -> Played:
    task, keywords = TASKS[name]
    with jax.enable_x64(dtype_of(name) == "float64"):
        sim = powerzoo_jax.make(task, split="test", **keywords)
        out = play(sim, jnp.arange(LANES))
        return Played(sim, *(np.asarray(x) for x in out))


def dtype_of(name: str) -> str:
    return TASKS[name][1].get("dtype", "float32")


def within(name: str, quantity: str) -> float:
    return tolerance(quantity, dtype_of(name))


def case_of(name: str) -> Case:
    return load_case("pz_case118" if name in LARGE else "pz_case5")


def table_of(name: str) -> CommitmentTable:
    """Minimum times, ramps and costs of running: on Case5 of peak, peak, base, peak and base units."""
    if name == "tso":
        return commitment_table(load_case("pz_case118"))
    return from_technologies(np.array([2, 2, 0, 2, 0]), np.array([40.0, 170, 520, 200, 600]))


def limits(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits of running units from the case and its table, not from the environment."""
    if name in COMMITTED:
        return table_of(name).p_min_mw, table_of(name).p_max_mw
    if name == "opf_118":
        return case_of(name).unit.p_min_mw, case_of(name).unit.p_max_mw
    return np.array([5.0, 10, 20, 10, 20]), np.array([40.0, 170, 520, 200, 600])


@pytest.mark.tiers("long", full=["marl_opf by schedule"])
@every_task
def test_generation_equals_load_less_shed_plus_spill_in_every_step(name):
    e = played(name)
    balance = e.p.astype(float).sum(-1) + e.unserved - e.surplus - e.load
    assert np.abs(balance / np.maximum(e.load, 1)).max() < within(name, "balance_relative")
    assert (e.unserved >= 0).all() and (e.surplus >= 0).all()
    assert not ((e.unserved > 0) & (e.surplus > 0)).any()
    assert e.finite.all()


@pytest.mark.tiers("long", full=["marl_opf by schedule", "marl_uc"])
@every_task
def test_no_unit_leaves_its_limits_or_runs_when_off(name):
    e, (low, high) = played(name), limits(name)
    assert (e.p[~e.on] == 0).all()
    assert ((e.p >= low * (1 - 1e-6)) | ~e.on).all() and ((e.p <= high * (1 + 1e-6)) | ~e.on).all()
    assert (e.p >= 0).all()


@pytest.mark.tiers("full", long=["opf_118", "tso"])
@every_task
def test_flows_obey_the_law_of_kirchhoff_at_every_bus(name):
    """What units and served loads inject at a bus leaves it by its lines; surplus is taken at the reference bus."""
    e, case = played(name), case_of(name)
    shape = case.p_load_mw if name in LARGE else np.array([0, 500, 600, 400, 0.0])
    injected = np.zeros((*e.p.shape[:2], case.n_bus))
    for unit, bus in enumerate(case.positions(case.unit.bus_id)):
        injected[..., bus] += e.p[..., unit]
    injected -= (e.load - e.unserved)[..., None] * (shape / shape.sum())
    injected[..., case.slack_bus[0]] -= e.surplus
    leaving = np.zeros_like(injected)
    for line, (a, b) in enumerate(zip(case.branch.from_id, case.branch.to_id, strict=True)):
        leaving[..., case.bus_index[int(a)]] += e.flow[..., line]
        leaving[..., case.bus_index[int(b)]] -= e.flow[..., line]
    assert np.abs(injected - leaving).max() / 100 < within(name, "kcl_pu") * 3  # flows of up to 15 pu


@pytest.mark.tiers("full", quick=["marl_opf by schedule"], long=["opf_118"])
@every_task
def test_money_equals_that_of_the_dispatch(name):
    e, case = played(name), case_of(name)
    cost = np.zeros((case.n_unit, 3))
    cost[:, 3 - case.unit.cost.shape[1] :] = case.unit.cost
    p, on = e.p.astype(float), e.on
    money = 0.5 * (on * ((cost[:, 0] * p + cost[:, 1]) * p + cost[:, 2])).sum(-1)
    money += 0.5 * (500.0 * e.surplus + 10_000.0 * e.unserved)
    if name in COMMITTED:
        was, table = np.concatenate([np.ones_like(on[:, :1]), on[:, :-1]], axis=1), table_of(name)
        money += 0.5 * on @ table.no_load_usd_per_hour + (on & ~was) @ table.startup_usd
    scale = 1e-4 if name == "tso" else 1e-3
    # the balance is rounded before it is priced at up to 10,000 USD/MWh
    rounding = 0.5 * 10_000 * within(name, "balance_relative") * e.load * (e.unserved > 0)
    gap = np.abs(money * scale + e.reward) / scale
    assert (gap < within(name, "money_relative") * money + rounding).all()


def least_cost(load_mw: np.ndarray) -> np.ndarray:
    """Cost [USD/h] of serving a load of Case5 by merit order, as if no unit had a minimum and no line a rating."""
    left, cost = load_mw.copy(), np.zeros_like(load_mw)
    for price, size in sorted(zip((14.0, 15, 30, 40, 10), (40.0, 170, 520, 200, 600), strict=True)):
        taken = np.minimum(left, size)
        left, cost = left - taken, cost + price * taken
    return cost + 10_000 * left


@pytest.mark.full
@pytest.mark.parametrize("name", ["marl_opf by score", "opf_118"])
def test_saturated_and_zero_scores_are_all_the_same_dispatch(name):
    """Scores only compare units: all lowest, all highest, all zero (not a number) share the load by room alone."""
    e, (low, high) = played(name), limits(name)
    kind = (np.arange(LANES) // 2) % 6 * (np.arange(LANES) % 2)
    for k in (1, 2, 5):
        p, load = e.p[kind == k].astype(float), e.load[kind == k].astype(float)
        above = p - low
        level = above.max(-1, keepdims=True)
        # every unit has the same part above its minimum, or is full
        equal = np.abs(above - np.minimum(level, high - low)) < 1e-3 * np.maximum(level, 1)
        assert equal[load < high.sum()].all()


@pytest.mark.full
def test_an_operator_that_switches_all_units_off_pays_for_every_load():
    e = played("tso")
    kind = (np.arange(LANES) // 2) % 6 * (np.arange(LANES) % 2)
    off, on = kind == 1, kind == 2
    np.testing.assert_allclose(-1e4 * e.reward[off], 5_000 * e.load[off], rtol=1e-5)
    assert e.on[on].all() and (e.unserved[on] < 1e-2 * e.load[on]).all() and (e.surplus[on] > 0).mean() > 0.1


@pytest.mark.full
def test_no_way_of_playing_unit_commitment_costs_less_than_the_merit_order():
    """All off, all on at the highest or at equal scores, switching in every step: none is a way around the cost."""
    e = played("marl_uc")
    kind = (np.arange(LANES) // 2) % 6 * (np.arange(LANES) % 2)
    paid, least = -1e3 * e.reward.astype(float), 0.5 * least_cost(e.load.astype(float))
    assert (paid >= least * (1 - within("marl_uc", "money_relative"))).all()
    off, on, flicker, equal = (kind == k for k in (1, 2, 3, 5))
    # who never runs pays for every MWh; who always does never saves a start, and serves what the units can
    np.testing.assert_allclose(paid[off], 5_000 * e.load[off], rtol=1e-5)
    assert (e.unserved[off] > 0).all() and (e.cost[off, :, -1] > 0).all()
    for running in (on, equal):
        assert e.on[running].all() and (e.unserved[running] <= np.maximum(e.load[running] - 1530, 0) + 0.01).all()
    assert paid[flicker].sum(1).min() > max(paid[on].sum(1).max(), paid[equal].sum(1).max())


@pytest.mark.full
@pytest.mark.parametrize("name", COMMITTED)
def test_minimum_times_and_ramps_hold_in_every_history(name):
    e = played(name)
    table = table_of(name)
    up, down = (np.ceil(x / 0.5) for x in (table.min_up_hours, table.min_down_hours))
    ramp = table.ramp_mw_per_hour * 0.5
    since = np.maximum(np.full(e.on.shape[2], 100.0), 0) * np.ones((LANES, 1))
    was = np.ones(e.on[:, 0].shape, bool)
    switches = 0
    for t in range(STEPS):
        now = e.on[:, t]
        assert not (was & ~now & (since < up)).any() and not (~was & now & (since < down)).any()
        if t:
            both = was & now
            assert (np.abs(e.p[:, t] - e.p[:, t - 1])[both] <= (ramp * np.ones_like(since))[both] * (1 + 1e-5)).all()
            masked = e.legal[:, t - 1].reshape(LANES, -1, 2)
            assert np.take_along_axis(masked, now[..., None].astype(int), 2).all()
        switches += int((now != was).sum())
        since, was = np.where(now == was, since + 1, 1), now
    assert switches > 10_000


@pytest.mark.full
def test_thermal_overload_is_the_excess_over_the_ratings_of_the_case():
    for name in ("marl_opf by schedule", *LARGE):
        e = played(name)
        rate = case_of(name).branch.rate_a_mva * SCALE.get(name, 1.0)
        excess = np.where(rate > 0, np.maximum(np.abs(e.flow) - rate, 0), 0).sum(-1)
        np.testing.assert_allclose(e.cost[..., 0], excess, rtol=1e-5, atol=1e-3)
        assert excess.max() > 10
