"""Agents with policies of their own: kinds, shared weights, masks; and what the program of every learner keeps to."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.oracle import random_act
from powerzoo_jax.rl.algorithms import imitation, ppo
from powerzoo_jax.rl.policies import by_kind, group_agents, kinds_of, make_actor, ppo_act
from powerzoo_jax.rl.rollout import batch_rollout
from powerzoo_jax.rl.training import learners
from powerzoo_jax.rl.training.config import ALGORITHMS, IPPOConfig, MAPPOConfig, PPOConfig
from powerzoo_jax.tasks import make
from tests.rl.programs import primitives
from tests.rl.toy_team import STEPS, toy_team

SMALL = {"lanes": 64, "steps": STEPS, "epochs": 4, "minibatches": 2, "widths": (16,), "lr": 1e-2, "gamma": 0.0}
ROUNDING = 2e-5
CALLBACKS = {"pure_callback", "io_callback", "debug_callback", "infeed", "outfeed", "device_put"}


@pytest.fixture(scope="module")
def sim():
    return toy_team()


def test_kinds_are_what_agents_of_one_name_have_in_common(sim):
    assert kinds_of(sim) == (("bat", (0, 2)), ("pv", (1,)))
    masks = sim.params.masks
    padded = masks.replace(act=masks.act.at[2, 0].set(False))
    odd = dataclasses.replace(sim, params=sim.params.replace(masks=padded))
    assert kinds_of(odd) == (("bat_0", (0,)), ("pv", (1,)), ("bat_2", (2,)))


def test_the_kinds_of_a_task_with_mixed_devices():
    found = dict(kinds_of(make("marl_ders_benchmark", split="train")))
    assert {name: len(agents) for name, agents in found.items()} == {"bat": 4, "pv": 4, "fl": 4}


def test_parts_of_a_tree_meet_their_own_agents_in_order(sim):
    groups = group_agents(sim, joint=False)
    x = jnp.arange(12.0).reshape(2, 3, 2)
    out = by_kind(groups, lambda factor, x: factor * x, {"bat": 1.0, "pv": -10.0}, x)
    np.testing.assert_array_equal(out, x * np.array([1.0, -10.0, 1.0])[:, None])


def test_a_start_of_the_wrong_width_is_refused(sim):
    assert group_agents(sim, joint=False, start=(0.5,)).start == ((0.5,), (0.5,))
    with pytest.raises(ValueError, match="has 1 numbers, but the setting start has 2"):
        group_agents(sim, joint=False, start=(0.5, 0.5))


@pytest.fixture(scope="module", params=["ippo", "mappo"])
def trained(request, sim):
    cfg = ALGORITHMS[request.param](total_steps=64 * STEPS * 60, gae_lambda=0.0, **SMALL)
    result = jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim)
    return cfg, result


@pytest.mark.long
def test_agents_of_a_kind_act_alike_and_kinds_differ(sim, trained):
    cfg, result = trained
    act = ppo_act(cfg, sim, ppo.policy_of(result.state))
    _, action = act((), jnp.full((3, 2), 0.5), jax.random.key(0))
    assert action[0, 0] == action[2, 0]
    assert abs(float(action[0, 0] - action[1, 0])) > 0.5


@pytest.mark.long
def test_agents_learn_what_their_kind_is_paid_for(sim, trained):
    cfg, result = trained
    act = ppo_act(cfg, sim, ppo.policy_of(result.state))
    steps = batch_rollout(sim, act, (), jax.random.split(jax.random.key(1), 32), STEPS)[1]
    assert float(result.metrics["return"][0]) < -2.0  # silence costs 6/3
    assert float(jnp.mean(jnp.sum(jnp.mean(steps.reward, -1), 1))) > -0.2


def test_without_sharing_every_agent_has_weights_of_its_own(sim):
    init, _ = ppo.make_update(IPPOConfig(share=False, **SMALL), sim)
    params = jax.eval_shape(init, jax.random.key(0), sim).params
    assert set(params["actor"]) == set(params["critic"]) == {"bat_0", "pv_0", "bat_1"}


def test_the_value_of_mappo_sees_all_agents_and_that_of_ippo_its_own(sim):
    def inputs(cfg):
        critic = jax.eval_shape(ppo.make_update(cfg, sim)[0], jax.random.key(0), sim).params["critic"]
        return {name: part["params"]["Torso_0"]["Dense_0"]["kernel"].shape[0] for name, part in critic.items()}

    assert inputs(MAPPOConfig(**SMALL)) == {"all": 6}
    assert inputs(IPPOConfig(**SMALL)) == {"bat": 2, "pv": 2}


@pytest.fixture(scope="module")
def chosen():
    """Choices among three levels, of which the task bars one after odd steps."""
    sim = toy_team(choice=True)
    cfg = IPPOConfig(total_steps=64 * STEPS * 40, gae_lambda=0.0, normalise_reward=True, **SMALL)
    return jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim).metrics


@pytest.mark.full
def test_a_barred_choice_is_never_made(chosen):
    np.testing.assert_array_equal(chosen["cost"][:, 1], 0.0)


@pytest.mark.full
def test_choices_are_learned_under_their_mask(chosen):
    assert float(chosen["return"][0]) < -4.0
    assert float(chosen["return"][-1]) > -1.5  # three levels for a range of two: -6 E(d^2) is at best -0.33


@pytest.mark.full
def test_the_ratio_of_masked_choices_is_one_before_the_first_gradient_step(chosen):
    assert float(chosen["ratio_error"].max()) < ROUNDING


@pytest.mark.long
def test_the_gauge_is_the_size_of_the_discounted_return(sim):
    """One update, gamma = 0: the returns are the rewards, and their moments those of the batch beside the start's."""
    cfg = PPOConfig(normalise_reward=True, total_steps=1, **SMALL)
    init, update = ppo.make_update(cfg, sim)
    state, metrics = jax.jit(lambda key, sim: update(init(key, sim), sim))(jax.random.key(0), sim)
    mean = float(metrics["return"]) / STEPS  # 64 whole episodes
    weight = 64 * STEPS / (64 * STEPS + 1)
    assert float(state.gauge.scale.mean[0]) == pytest.approx(weight * mean, rel=1e-4)
    assert 0.1 < float(state.gauge.scale.var[0]) < 2.0


def test_moments_of_the_bounds_stay_where_the_settings_say_so(sim):
    init, update = ppo.make_update(PPOConfig(running_obs=False, **SMALL), sim)
    state = jax.eval_shape(init, jax.random.key(0), sim)
    program = jax.make_jaxpr(lambda state: update(state, sim)[0].scale)(state).jaxpr
    assert all(v in program.invars for v in program.outvars)  # handed through untouched


@pytest.mark.tiers("full", long=["mappo"])
def test_evaluation_standardises_as_training_did(sim, trained):
    cfg, result = trained
    obs = jax.random.uniform(jax.random.key(2), (3, 2), minval=-1.0)
    _, action = ppo_act(cfg, sim, ppo.policy_of(result.state))((), obs, jax.random.key(0))
    scale, weights = result.state.scale["pv"], result.state.params["actor"]["pv"]
    assert float(scale.count) == 1 + 64 * STEPS * 60  # one agent of the kind
    x = (obs[1] - scale.mean) / jnp.sqrt(scale.var)
    mean, _ = make_actor(cfg, group_agents(sim, joint=False)).apply(weights, x)
    assert float(action[1, 0]) == pytest.approx(float(jnp.clip(mean[0], -1, 1)), abs=1e-5)


@pytest.mark.tiers("long", full=["ppo", "ppo_lagrangian", "sac", "apg", "apg_lagrangian"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_seeds_and_settings_side_by_side_are_one_program_that_never_leaves_the_device(algorithm, monkeypatch):
    """A restart stays a branch under two seeds and two learning rates, and nothing calls back to the host."""
    home = toy_team(0.5)
    monkeypatch.setattr(imitation, "teacher_of", lambda cfg, sim: imitation.Teacher(random_act(sim)))
    few = {"sac": {"capacity": 64, "gradients": 2}, "ppo_gru": {"minibatches": 2}}
    cfg = ALGORITHMS[algorithm](**{"lanes": 2, "widths": (4,)} | few.get(algorithm, {}))

    def train(key, lr, sim):
        return learners.make_train(dataclasses.replace(cfg, lr=lr), home)(key, sim)

    keys, rates = jax.random.split(jax.random.key(0), 2), jnp.array([1e-3, 1e-2])
    one = primitives(jax.make_jaxpr(train)(keys[0], rates[0], home).jaxpr)
    both = primitives(jax.make_jaxpr(jax.vmap(train, (0, 0, None)))(keys, rates, home).jaxpr)
    # the analytic gradient, evolution strategies and imitation play whole episodes: they never restart one
    whole = algorithm.startswith(("apg", "es", "clone", "dagger"))
    assert both["cond"] == one["cond"] and (one["cond"] > 0) == (not whole)
    assert not {name for name in both if name in CALLBACKS or "callback" in name}
