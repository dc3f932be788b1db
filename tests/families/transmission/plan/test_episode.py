"""Plans of transmission episodes against the environments that execute them and the bounds that they carry."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.commitment.plan import solve_commitment
from powerzoo_jax.families.transmission.plan.episode import commitment_problem, episode_load, schedule_actions
from powerzoo_jax.tasks.score import all_starts
from tests.families.transmission.dispatch_episode import solve_dispatch
from tests.references.opf_dc import clear_with_highs

pytestmark = [pytest.mark.reference, pytest.mark.full]


@jax.jit
def totals(sim, drawn, actions):
    """Return and cost channels of an episode that plays actions (T, A, U)."""
    state, _ = sim.env.begin(jax.random.key(0), drawn, sim.params)

    def advance(state, action):
        out = sim.step(state, action)
        return out.state, (out.reward[0], out.cost)

    reward, cost = jax.lax.scan(advance, state, actions)[1]
    return jnp.sum(reward), jnp.sum(cost, axis=0)


def first_start(sim) -> Draw:
    return jax.tree.map(lambda x: x[0], all_starts(sim))


@pytest.fixture(scope="module")
def dispatch():
    with jax.enable_x64(True):
        # 1.0 of 1530 MW: lines bind by day
        sim = powerzoo_jax.make("marl_opf", split="test", action_mode="direct", max_load_ratio=1.0, dtype="float64")
        drawn = first_start(sim)
        return sim, drawn, solve_dispatch(sim, drawn)


def test_the_dispatch_of_every_step_equals_highs(dispatch):
    sim, drawn, plan = dispatch
    case = load_case("pz_case5")
    share = np.array([0, 500, 600, 400, 0]) / 1500
    price = np.array([14.0, 15, 30, 40, 10])
    for t in range(0, 48, 5):
        found = clear_with_highs(case, episode_load(sim, drawn)[t] * share, price)
        assert plan.cost_usd[t] == pytest.approx(0.5 * found.cost, rel=1e-6)


@pytest.mark.long
def test_the_executed_dispatch_costs_what_was_planned_and_no_other_keeps_the_ratings_for_less(dispatch):
    sim, drawn, plan = dispatch
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        total, cost = totals(sim, drawn, jnp.asarray(schedule_actions(sim, plan.p_mw)))
        assert -1e3 * float(total) == pytest.approx(plan.cost_usd.sum(), rel=1e-6)
        assert float(cost[0]) < 1e-3 and float(cost[3]) == 0
        for _ in range(5):
            other, excess = totals(sim, drawn, jnp.asarray(rng.uniform(-1, 1, (48, 5, 1))))
            assert -1e3 * float(other) > plan.bound_usd.sum() or float(excess[0]) > 1e-3
    np.testing.assert_allclose(plan.bound_usd, plan.cost_usd, rtol=1e-6)
    assert (plan.bound_usd <= plan.cost_usd * (1 + 1e-9)).all()


def commitment_actions(sim, plan, problem) -> np.ndarray:
    """Kernel actions (T, A, 2) of a task in direct mode that follow a commitment plan, place in the ramp's window."""
    rules = {name: np.asarray(value, np.float64) for name, value in vars(sim.params.rules).items()}
    was, before = np.asarray(problem.state.on), np.asarray(problem.state.p_mw, np.float64)
    actions = np.zeros((*plan.on.shape, 2))
    for t, (on, p) in enumerate(zip(plan.on, plan.p_mw, strict=True)):
        stays = was & on
        low = np.where(stays, np.maximum(rules["p_min_mw"], before - rules["ramp_mw"]), rules["p_min_mw"])
        climbed = np.where(stays, before + rules["ramp_mw"], rules["start_mw"])
        high = np.minimum(rules["p_max_mw"], climbed)
        place = np.where(on, (p - low) / np.where(high > low, high - low, 1.0), 0.0)
        actions[t] = np.stack([2 * np.clip(place, 0, 1) - 1, np.where(on, 1.0, -1.0)], axis=-1)
        was, before = on, p
    return actions


def test_a_commitment_plan_is_executed_exactly_and_bounds_every_policy():
    """All on, all off, flicker and random play cost more than the certified bound; the plan costs what it says."""
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("marl_uc", split="test", action_mode="direct", dtype="float64")
        drawn = first_start(sim)
        problem = commitment_problem(sim, drawn)
        plan = solve_commitment(problem)
        total, cost = totals(sim, drawn, jnp.asarray(commitment_actions(sim, plan, problem)))
        assert -1e3 * float(total) == pytest.approx(plan.cost_usd, rel=1e-6)
        assert float(cost[3]) < 1e-6
        assert plan.relaxed_usd <= plan.bound_usd * (1 + 1e-9) <= plan.cost_usd * (1 + 2e-9)
        assert plan.gap < 5e-4
        kinds = [np.ones((48, 5, 2)), -np.ones((48, 5, 2)), rng.uniform(-1, 1, (48, 5, 2))]
        kinds.append(np.where(np.arange(48)[:, None, None] % 2 == 0, 1.0, -1.0) * np.ones((48, 5, 2)))
        for actions in kinds:
            other, _ = totals(sim, drawn, jnp.asarray(actions))
            assert -1e3 * float(other) > plan.cost_usd * (1 + 1e-6)
