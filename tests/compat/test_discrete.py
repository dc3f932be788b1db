"""Discrete and masked actions of one agent: levels, what they command, and masks that keep a policy feasible."""

import gymnasium
import numpy as np
import powerzoo
import pytest
from gymnasium.utils.env_checker import check_env
from powerzoo_compat.discrete_view import make_discrete_env

from powerzoo_jax.tasks import get_spec, list_tasks

BATTERY, UNITS = "battery_arbitrage", "marl_uc"
BINDING = {"version": 1}  # whose units have minimum times of one and eight hours
STEPS, MANY_STEPS = 200, 10_000  # four days, and as many as a learner takes


@pytest.fixture(scope="module")
def battery():
    return make_discrete_env(BATTERY, levels=5, split="test")


@pytest.fixture(scope="module")
def units():
    return make_discrete_env(UNITS, levels=2, split="test", **BINDING)


def played(env, choose, seed=0):
    """Infos of one episode of a policy of masks."""
    _, info = env.reset(seed=seed)
    infos, ended = [info], False
    while not ended:
        *_, terminated, truncated, info = env.step(choose(env.action_masks()))
        infos.append(info)
        ended = terminated or truncated
    return infos


@pytest.mark.full
def test_levels_of_a_battery_command_what_the_box_does(battery):
    assert battery.action_space == gymnasium.spaces.Discrete(5)
    boxed = powerzoo.make_task_env(BATTERY, "test")
    for level, power in enumerate((-0.2, -0.1, 0.0, 0.1, 0.2)):
        battery.reset(seed=1)
        boxed.reset(seed=1)
        one, other = battery.step(level), boxed.step(np.array([power], np.float32))
        np.testing.assert_allclose(one[0], other[0], atol=1e-6)
        assert one[1] == pytest.approx(other[1], abs=1e-6)
    for wrong in (5, -1, 0.5):
        with pytest.raises(ValueError, match="not in Discrete"):
            battery.step(wrong)
    with pytest.raises(ValueError, match="at least 2"):
        make_discrete_env(BATTERY, levels=1)
    with pytest.raises(RuntimeError, match="before reset"):
        make_discrete_env(BATTERY).action_masks()


@pytest.mark.full
def test_a_masked_battery_is_never_told_what_it_cannot_do(battery):
    rng = np.random.default_rng(3)
    free = played(battery, lambda mask: int(rng.integers(5)))
    masked = played(battery, lambda mask: int(rng.choice(np.flatnonzero(mask))))
    assert sum(info["cost_resource"] for info in masked) < 1e-4 < 0.1 < sum(info["cost_resource"] for info in free)
    full = battery.reset(seed=0, options={"soc": 0.9})
    assert battery.action_masks().tolist() == [False, False, True, True, True] and full[1]["soc"] == pytest.approx(0.9)


@pytest.mark.full
def test_masks_of_units_bind_and_a_masked_policy_is_not_overridden(units):
    assert units.action_space == gymnasium.spaces.MultiDiscrete([3] * 5)
    rng = np.random.default_rng(0)
    forbidden, wanted = 0, []

    def choose(mask):
        nonlocal forbidden
        assert mask.dtype == bool and mask.shape == (15,) and mask.reshape(5, 3).any(1).all()
        forbidden += int((~mask).sum())
        wanted.append([int(rng.choice(np.flatnonzero(row))) for row in mask.reshape(5, 3)])
        return np.array(wanted[-1])

    infos = played(units, choose)
    assert forbidden > 50
    for choice, info in zip(wanted, infos[1:], strict=True):
        assert [told["committed"] for told in info["agents"].values()] == [k > 0 for k in choice]


@pytest.mark.full
def test_one_operators_units_take_levels_too():
    env = make_discrete_env("comparison_tso_centralized", levels=4)
    assert env.action_space == gymnasium.spaces.MultiDiscrete([5] * 54)
    action = env.action(np.array([0, 1, 4, *[2] * 51]))
    assert action[:3].tolist() == [-1, 1, 1] and action[54:57].tolist() == [-1, -0.5, 1]  # commitment, then scores
    env.reset(seed=0)
    assert env.action_masks().shape == (54 * 5,)


@pytest.mark.full
def test_gymnasiums_checker_accepts_it(battery):
    with pytest.warns(UserWarning, match="different from the unwrapped version"):
        check_env(battery, skip_render_check=True)


@pytest.mark.tiers("full", quick=["marl_der_arbitrage"])
@pytest.mark.parametrize(
    "task",
    ["marl_der_arbitrage", "marl_der_arbitrage_5bat", "marl_ders_benchmark", "dso", "marl_ev_v2g", "joint_trans_dist"],
)
def test_whoever_obeys_the_masks_is_never_short_of_power(task):
    """Masks of joined and mixed fleets allowed every level: obeyed, they asked for 22.8 MW that nobody delivered."""
    assert obeyed(task, STEPS) > 0


@pytest.mark.long
@pytest.mark.parametrize("task", [task for task in list_tasks() if "resource" in get_spec(task).cost_names])
def test_ten_thousand_steps_under_masks_are_never_short_of_power(task):
    obeyed(task, MANY_STEPS)


def obeyed(task, steps):
    """Choices that masks forbade in steps of random allowed ones, none of which asks for what nobody delivers."""
    env = make_discrete_env(task, levels=3)
    env.reset(seed=0)
    rng, masked = np.random.default_rng(0), 0
    one = isinstance(env.action_space, gymnasium.spaces.Discrete)
    for step in range(steps):
        allowed = env.action_masks().reshape(-1, 3)
        masked += int((~allowed).sum())
        chosen = [rng.choice(np.flatnonzero(row)) for row in allowed]
        *_, terminated, truncated, info = env.step(chosen[0] if one else np.array(chosen))
        assert allowed.any(axis=1).all()
        assert info["cost_resource"] <= 1e-4, f"step {step}"
        if terminated or truncated:
            env.reset()
    return masked


@pytest.mark.full
@pytest.mark.parametrize("task", ["dso", "marl_ders_benchmark", "dc_scheduling"])
def test_what_cannot_be_delivered_is_what_the_step_charges(task):
    env = make_discrete_env(task, levels=3)
    env.reset(seed=1)
    host, rng = env._host, np.random.default_rng(0)
    place = host.sim.spec.cost_names.index("resource")
    found = []
    for _ in range(30):
        action = rng.uniform(-1, 1, (host.sim.env.dims.agent, host.sim.env.dims.act)).astype(np.float32)
        told = host.trial_costs(action[None])[0]
        found.append((told, host.step(action).cost[place]))
    np.testing.assert_allclose(*zip(*found, strict=True), rtol=1e-6, atol=1e-7)
    assert task == "dc_scheduling" or max(found)[0] > 0
