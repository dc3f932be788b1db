"""Imitation: a cloned policy is its teacher, DAgger asks where the policy goes, and PPO goes on from there."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.envs.episode import first_carry
from powerzoo_jax.oracle.registry import PlanCarry, SafetyFilter, get_safety_filter, plan_act
from powerzoo_jax.rl import policies
from powerzoo_jax.rl.algorithms import apg, imitation, ppo
from powerzoo_jax.rl.algorithms.imitation import Teacher, teacher_of
from powerzoo_jax.rl.export import memory_of, program_of
from powerzoo_jax.rl.policies import apg_act, clone_act, ppo_act
from powerzoo_jax.rl.rollout import batch_rollout, evaluate_policy
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import APGConfig, CloneConfig, DAggerConfig, ESConfig, IPPOConfig
from powerzoo_jax.rl.training.warmstart import start_at
from powerzoo_jax.tasks import make
from tests.rl.test_checkpoint import words
from tests.rl.toy_battery import STEPS, toy_sim
from tests.rl.toy_cue import toy_cue
from tests.rl.toy_team import SIGN, toy_team

# without hidden layers a policy is linear, and so is the teacher: nothing but the fit keeps them apart
LINEAR = CloneConfig(
    joint=False, updates=30, lanes=16, gradients=32, batch=96, lr=3e-2, widths=(), running_obs=False, log_std=-2.0
)
SMALL = DAggerConfig(updates=3, lanes=3, gradients=2, batch=16, widths=(4,), rounds=2, teacher_share=0.0)
CLONED = {name: value for name, value in vars(SMALL).items() if name != "teacher_share"}


def repeat_heard(carry, obs, key):
    """What pays most in `toy_team`, half as loud."""
    del key
    return carry, 0.5 * (SIGN * obs[:, 0])[:, None]


def choose_heard(carry, obs, key):
    """The level nearest to what pays most there, as the number of its option."""
    del key
    return carry, jnp.round(SIGN * obs[:, 0] + 1.0).astype(jnp.int32)[:, None]


def sell_and_count(carry, obs, key):
    """Sell by what is stored, less with every step: a planner that remembers."""
    del key
    return carry + 1, jnp.reshape(0.5 * obs[0, 0] - 0.01 * carry, (1, 1)).astype(obs.dtype)


COUNTING = Teacher(sell_and_count, jnp.zeros(()))


def greedy(sim, cfg, state, count=64):
    """First observations (B, A, O) of as many episodes, and what the policy does there (B, A, U)."""
    act = ppo_act(cfg, sim, imitation.policy_of(state))

    def watched(carry, obs, key):
        del carry
        action = act((), obs, key)[1]
        return (obs, action), action

    blank = watched((), sim.init(jax.random.key(0))[1], jax.random.key(0))[0]
    return batch_rollout(sim, watched, blank, keys(count), 1)[0]


def keys(count):
    return jax.random.split(jax.random.key(5), count)


@pytest.mark.full
def test_a_policy_cloned_from_a_linear_teacher_is_the_teacher():
    sim = toy_team()
    train = imitation.make_train(LINEAR, sim, Teacher(repeat_heard))
    state, metrics = jax.jit(train)(jax.random.key(0), sim)
    obs, action = greedy(sim, LINEAR, state)
    np.testing.assert_allclose(action, jax.vmap(lambda x: repeat_heard((), x, None)[1])(obs), atol=1e-3)
    assert float(metrics["loss"][0]) > 1e-3 > 1e-6 > float(metrics["loss"][-1])


@pytest.mark.long
def test_choices_are_cloned_too():
    """Three options by what is heard: a linear policy tells all of them, up to those near a boundary."""
    sim, cfg = toy_team(choice=True), replace(LINEAR, lr=1e-1)
    state, _ = jax.jit(imitation.make_train(cfg, sim, Teacher(choose_heard)))(jax.random.key(0), sim)
    obs, action = greedy(sim, cfg, state, 256)
    wanted = jax.vmap(lambda x: choose_heard((), x, None)[1])(obs)
    assert set(np.unique(action)) == {0, 1, 2}
    assert np.mean(np.asarray(action == wanted)) > 0.97


def recall(carry, obs, key):
    """What pays most in `toy_cue`: the cue of the first step, for ever."""
    del key
    cue = jnp.where(obs[0, 1] < 2.1, obs[0, 0], carry)
    return cue, cue[None, None]


@pytest.mark.long
def test_a_policy_that_remembers_is_cloned_from_a_teacher_that_does():
    """DAgger with a recurrent unit: it then plays by itself from an episode's first step on, and recalls the cue."""
    sim = toy_cue()
    cfg = DAggerConfig(updates=40, lanes=32, gradients=8, batch=64, widths=(8,), memory=8, lr=3e-2, rounds=3)
    state, _ = jax.jit(imitation.make_train(cfg, sim, Teacher(recall, jnp.zeros(()))))(jax.random.key(0), sim)
    totals = evaluate_policy(sim, clone_act(cfg, sim, imitation.policy_of(state)), keys(256))
    assert 0.9 < float(totals.total.mean()) <= 1.0


@pytest.fixture(scope="module")
def battery():
    return toy_sim()


@pytest.fixture(scope="module")
def dagger(battery):
    """(first states after each of two updates, compiled update) of DAgger from a teacher that counts steps."""
    init, update = imitation.make_update(SMALL, battery, COUNTING)
    update = jax.jit(update)
    first = update(jax.jit(init)(jax.random.key(0), battery), battery)[0]
    return first, update(first, battery)[0], update


def led_by(sim, state, act, carry):
    """Observations (B, T, F) of the episodes of the next update, led by a policy, and what the teacher says there."""
    lanes = jax.random.split(jax.random.split(state.key, 3)[1], SMALL.lanes)

    def one(key):
        at, obs = sim.init(jax.random.split(key, 4)[0])

        def advance(loop, _):
            at, obs, carry, asked = loop
            carry, action = act(carry, obs, jax.random.key(0))
            asked, advised = sell_and_count(asked, obs, None)
            out = sim.step(at, action)
            return (out.state, out.obs, carry, asked), (obs[0], advised[0])

        return jax.lax.scan(advance, (at, obs, carry, jnp.zeros(())), length=STEPS)[1]

    return jax.jit(jax.vmap(one))(lanes)


@pytest.mark.full
def test_dagger_visits_the_states_of_the_policy_and_asks_the_teacher_there(battery, dagger):
    """Round 0 is the teacher's, round 1 the policy's: its states are those of the policy that round 0 has trained."""
    first, second, _ = dagger
    own = led_by(battery, first, ppo_act(SMALL, battery, imitation.policy_of(first)), ())
    shown = led_by(battery, first, sell_and_count, jnp.zeros(()))
    found = second.store.x[1].reshape(own[0].shape), second.store.action[1].reshape(own[1].shape)
    np.testing.assert_allclose(found[0], own[0], atol=1e-5)
    np.testing.assert_allclose(found[1], own[1], atol=1e-5)
    assert np.abs(shown[0] - own[0]).max() > 0.05  # the teacher would have gone elsewhere


@pytest.mark.full
def test_a_clone_learns_from_the_states_of_its_teacher(battery):
    init, update = imitation.make_update(CloneConfig(**CLONED), battery, COUNTING)
    state = jax.jit(init)(jax.random.key(0), battery)
    after = jax.jit(update)(state, battery)[0]
    seen, said = led_by(battery, state, sell_and_count, jnp.zeros(()))
    np.testing.assert_allclose(after.store.x[0].reshape(seen.shape), seen, atol=1e-5)
    np.testing.assert_allclose(after.store.action[0].reshape(said.shape), said, atol=1e-5)


@pytest.mark.long
def test_a_resumed_run_ends_bit_for_bit_as_if_it_had_not_stopped(battery, dagger, tmp_path):
    first, second, update = dagger
    checkpoint.save(tmp_path / "run", first, SMALL, updates=1)
    resumed = checkpoint.restore(tmp_path / "run", jax.eval_shape(lambda: first))
    for a, b in zip(words(update(resumed, battery)[0]), words(second), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.full
def test_plans_are_played_on_the_days_they_are_made_for(battery):
    """Two days, each with an action of its own: what is learnt is the plan of the day that is seen."""
    days, horizon = jnp.asarray([3, 11], jnp.int32), battery.spec.horizon
    plans = jnp.broadcast_to(jnp.asarray([-0.2, 0.3])[:, None, None, None], (2, horizon, 1, 1))
    teacher = Teacher(plan_act, PlanCarry(jnp.zeros(2, jnp.int32), plans), keys(2), days)
    init, update = imitation.make_update(CloneConfig(**CLONED | {"lanes": 8}), battery, teacher)
    after = jax.jit(update)(jax.jit(init)(jax.random.key(0), battery), battery)[0]
    starts = np.stack([battery.env.begin(keys(1)[0], day, battery.params)[1][0] for day in days])
    x, action = after.store.x[0].reshape(8, horizon, -1), after.store.action[0].reshape(8, horizon)
    day = np.argmin(np.abs(np.asarray(x)[:, 0, None] - starts).sum(-1), axis=1)
    np.testing.assert_allclose(np.asarray(x)[:, 0], starts[day], atol=1e-6)
    np.testing.assert_allclose(action, np.broadcast_to(np.float32([-0.2, 0.3])[day][:, None], (8, horizon)))
    assert set(day) == {0, 1}


def first_state(module, cfg, sim, seed):
    """First state of a learner; of an imitator too, which needs its teacher only to go on."""
    return jax.jit(module.make_update(cfg, sim)[0])(jax.random.key(seed), sim)


@pytest.mark.tiers("full", long=["False"])
@pytest.mark.parametrize("squash", [False, True])
def test_fine_tuning_begins_with_the_cloned_policy(squash):
    """Of an imitator whose weights have moved: PPO acts as it does, and the analytic gradient, which squashes."""
    sim = toy_team()
    cfg = replace(LINEAR, widths=(4,), squash=squash)
    started = imitation.policy_of(first_state(imitation, cfg, sim, 0))
    cloned = jax.tree.map(lambda x: x + 0.3, started)
    heard = sim.init(jax.random.key(3))[1]
    wanted = ppo_act(cfg, sim, cloned)((), heard, None)[1]
    assert np.abs(wanted - ppo_act(cfg, sim, started)((), heard, None)[1]).max() > 0.1
    tuned = IPPOConfig(lanes=4, steps=6, minibatches=2, widths=(4,), squash=squash)
    state = start_at(first_state(ppo, tuned, sim, 9), cloned)
    np.testing.assert_array_equal(ppo_act(tuned, sim, ppo.policy_of(state))((), heard, None)[1], wanted)
    if squash:
        smooth = APGConfig(lanes=2, widths=(4,), joint=False)
        state = start_at(first_state(apg, smooth, sim, 9), cloned)
        np.testing.assert_allclose(apg_act(smooth, sim, apg.policy_of(state))((), heard, None)[1], wanted, rtol=1e-6)


def test_a_policy_of_other_weights_is_refused_by_their_names():
    sim = toy_team()
    cloned = imitation.policy_of(jax.eval_shape(lambda: first_state(imitation, LINEAR, sim, 0)))
    for module, cfg in ((ppo, IPPOConfig(lanes=4, steps=6, minibatches=2, widths=(4,))), (apg, APGConfig(lanes=2))):
        state = jax.eval_shape(lambda module=module, cfg=cfg: first_state(module, cfg, sim, 9))
        with pytest.raises(SettingsError, match=r"other weights: .*Torso_0.*widths"):
            start_at(state, cloned)


@pytest.mark.full
def test_teachers_are_the_planners_of_the_task():
    """The causal planner answers everywhere and knows no day; the oracle has a plan for each of its days."""
    sim = make("battery_arbitrage", split="train")
    causal = teacher_of(DAggerConfig(), sim)
    assert causal.plans == 0 and causal.carry.t.shape == ()
    oracle = teacher_of(CloneConfig(teacher="oracle", plans=3), sim)
    assert oracle.plans == 3 and oracle.carry.action.shape == (3, sim.spec.horizon, 1, 1)
    with pytest.raises(SettingsError, match="cannot say what to do where the policy has led"):
        teacher_of(DAggerConfig(teacher="oracle", plans=3), sim)
    with pytest.raises(ValueError, match="Did you mean 'causal'"):
        teacher_of(CloneConfig(teacher="casual"), sim)


@pytest.mark.full
def test_a_teacher_may_plan_for_another_variant_of_the_task():
    """A battery of another power is planned otherwise; a name that the task does not know is refused."""
    sim = make("battery_arbitrage", split="train")
    altered = CloneConfig(teacher="oracle", plans=2, teacher_keywords=("battery_power_mw=5",))
    own = teacher_of(CloneConfig(teacher="oracle", plans=2), sim)
    other = teacher_of(altered, sim)
    np.testing.assert_array_equal(own.draws.price_row, other.draws.price_row)
    assert (np.asarray(own.carry.action) != np.asarray(other.carry.action)).any()
    with pytest.raises(SettingsError, match=r"teacher_keywords 'rating' is not of the form NAME=VALUE"):
        teacher_of(CloneConfig(teacher_keywords=("rating",)), sim)
    with pytest.raises(TypeError, match="no_such_keyword"):
        teacher_of(CloneConfig(teacher_keywords=("no_such_keyword=1",)), sim)


@pytest.mark.long
def test_a_teacher_is_found_while_a_program_is_traced():
    """Learners are built inside the trace of their program, where NumPy cannot read what JAX computes."""
    sim = make("battery_arbitrage", split="train")
    cfg = CloneConfig(teacher="oracle", plans=2, lanes=2, updates=1, gradients=1, batch=8, widths=(4,))
    init, update = imitation.make_update(cfg, sim)
    after = jax.eval_shape(lambda key: update(init(key, sim), sim)[0], jax.random.key(0))
    assert after.done.shape == ()


def halve_the_first(memory, obs, action):
    """Half of what is wished for in the first step, and all of it later."""
    del obs
    return memory + 1, jnp.where(memory == 0, 0.5, 1.0) * action


def filtered(monkeypatch, sees: bool):
    """A toy team whose filter looks at every action, or at none of them."""
    sim = toy_team()
    seen = np.full((3, 1), sees)
    of = SafetyFilter(of=lambda sim: (jnp.zeros(()), halve_the_first, seen))
    monkeypatch.setattr(policies, "get_safety_filter", lambda task, name: {"half": of}[name])
    return sim


@pytest.mark.tiers("full", quick=["CloneConfig-0"])
@pytest.mark.parametrize(("kind", "memory"), [(CloneConfig, 0), (CloneConfig, 3), (ESConfig, 0)])
def test_actions_go_through_the_filter_that_settings_name(kind, memory, monkeypatch):
    sim = filtered(monkeypatch, True)
    clone = CloneConfig(widths=(4,), joint=False, memory=memory, updates=1)
    cfg = clone if kind is CloneConfig else ESConfig(widths=(4,), joint=False, squash=False)
    init, _ = imitation.make_update(clone, sim, Teacher(repeat_heard))
    policy = imitation.policy_of(init(jax.random.key(0), sim))
    policy = policy.replace(actor=jax.tree.map(lambda x: x + 0.1, policy.actor))
    make_act = clone_act if kind is CloneConfig else ppo_act
    bare, through = make_act(cfg, sim, policy), make_act(replace(cfg, safety_filter="half"), sim, policy)
    obs, key = sim.init(jax.random.key(1))[1], jax.random.key(0)
    plain, mended = first_carry(bare, ()), first_carry(through, ())
    for share in (0.5, 1.0, 1.0):
        plain, wanted = bare(plain, obs, key)
        mended, played = through(mended, obs, key)
        assert np.abs(wanted).min() > 0
        np.testing.assert_allclose(played, share * wanted, rtol=1e-6)
    assert not any(leaf.any() for leaf in memory_of(through))
    lanes, action = program_of(through)(tuple(x[None] for x in memory_of(through)), obs[None])
    np.testing.assert_allclose(action[0], 0.5 * bare(first_carry(bare, ()), obs, key)[1], rtol=1e-6)
    assert float(lanes[-1][0]) == 1


@pytest.mark.parametrize("sees", [True, False])
def test_only_what_the_filter_looks_at_is_learnt(sees, monkeypatch):
    sim = filtered(monkeypatch, sees)
    cfg = replace(SMALL, joint=False, updates=1, rounds=1, safety_filter="half")
    init, update = imitation.make_update(cfg, sim, Teacher(repeat_heard))
    _, metrics = jax.jit(update)(init(jax.random.key(0), sim), sim)
    assert (float(metrics["loss"]) > 0) == sees


def test_a_filter_is_named_and_reads_one_observation():
    with pytest.raises(SettingsError, match="safety_filter = 'security' reads one observation, and history = 3"):
        DAggerConfig(task="comparison_tso_centralized", safety_filter="security", history=3)
    with pytest.raises(ValueError, match=r"safety filter of 'comparison_tso_centralized'.*'secure'.*security"):
        get_safety_filter("comparison_tso_centralized", "secure")
