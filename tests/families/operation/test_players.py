"""Players of a grid: choices as the oracle's simulations rank them, policies beside their episodes, and idle steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.envs.episode import run_episodes
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.operation import players
from powerzoo_jax.families.operation.grid2op.example import LIMITS_A, write_world
from powerzoo_jax.families.operation.types import DATA
from powerzoo_jax.rl.algorithms.ppo import make_train, policy_of
from powerzoo_jax.rl.policies import ppo_choice
from powerzoo_jax.rl.training.config import PPOConfig
from tests.references.grid2op import Action, Replay
from tests.references.grid2op_world import KINDS, World

pytestmark = pytest.mark.reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The five-bus world with limits that doing nothing breaks."""
    return write_world(tmp_path_factory.mktemp("hot") / "five", limits=0.6 * np.array(LIMITS_A), parameters={})


@pytest.fixture(scope="module")
def sim(folder):
    """Its simulation without the opponent, whom the oracle does not play."""
    found = powerzoo_jax.from_grid2op(folder)
    return found.replace(params=found.params.replace(opponent=None))


def draws_of(sim):
    n = len(sim.params.n_step)
    return Draw(load_row=jnp.arange(n), price_row=jnp.zeros((n, 1), jnp.int32), soc=jnp.zeros((n, 0)))


def play(sim, choose):
    draws = draws_of(sim)
    keys = jax.random.split(jax.random.key(0), len(sim.params.n_step))
    policy = players.as_policy(sim, choose, draws, keys)
    return run_episodes(sim, policy.act, keys, draws, policy.carry)


def action_of(table, row, grid):
    """Row of a table as the oracle takes it."""
    place = np.argsort(np.concatenate([grid.place[kind] for kind in KINDS]))
    one = jax.tree.map(lambda x: np.asarray(x[row]), table)
    busbars = (one.set_busbar.astype(int)[place], one.change_busbar[place])
    return Action(one.set_line.astype(int), one.switch_line, *busbars, one.redispatch, one.curtail, one.storage)


def ranks_of(replay, table):
    """(game over, sum of (rho - 1)+, largest rho) of every row, by the oracle."""
    found = []
    for row in range(len(table.set_line)):
        seen, over, _ = replay.simulate(action_of(table, row, replay.grid))
        rho = np.zeros(1) if over else seen["rho"]
        found.append((over, np.maximum(rho - 1, 0).sum(), rho.max()))
    return np.array(found, float)


@pytest.mark.full
def test_best_action_is_the_first_of_the_oracles_ranking(sim, folder):
    replay, table = Replay(World(folder)), sim.params.table
    replay.reset("calm")
    key = jax.random.key(0)
    state, _ = sim.env.begin(key, jax.tree.map(lambda x: x[0], draws_of(sim)), sim.params)
    best, step, chosen = jax.jit(players.best_action), jax.jit(sim.step), set()
    for _ in range(8):
        ranks = ranks_of(replay, table)
        row = int(best(sim, state))
        first = min(range(len(ranks)), key=lambda k: tuple(ranks[k]))
        # float32 may take another row of the same rank
        np.testing.assert_allclose(ranks[row], ranks[first], atol=1e-4)
        chosen.add(row)
        replay.step(action_of(table, row, replay.grid))
        state = step(state, jnp.full((1, 1), row)).state
    assert len(chosen) > 1


def test_ties_go_to_the_lowest_row(sim):
    over, zero = jnp.array([True, False, False, False]), jnp.zeros(4)
    assert players.first_of(players.ActionRanks(over, zero, jnp.array([0.1, 0.8, 0.7, 0.7]))) == 2
    assert (
        players.first_of(players.ActionRanks(over, jnp.array([0.0, 0.2, 0.1, 0.1]), jnp.array([0.1, 0.5, 1.1, 1.1])))
        == 2
    )
    assert players.first_of(players.ActionRanks(over | True, zero, jnp.ones(4))) == 0


@pytest.mark.long
def test_greedy_and_recovery_outlive_doing_nothing(sim):
    idle = play(sim, lambda sim, state, obs, key: jnp.zeros((1, 1), jnp.int32))
    for choose in (players.greedy(), players.recovery(sim)):
        found = play(sim, choose)
        # of the other episode nothing saves an outage of two lines
        assert found.length[0] == sim.params.n_step[0] > idle.length[0]


@pytest.mark.long
def test_greedy_does_nothing_in_a_cold_grid(sim):
    cold = sim.replace(params=sim.params.replace(limit_a=sim.params.limit_a * 10))
    actions = play(cold, players.greedy()), play(cold, lambda sim, state, obs, key: jnp.zeros((1, 1), jnp.int32))
    jax.tree.map(np.testing.assert_array_equal, *actions)


@pytest.mark.long
def test_recovery_closes_lines_then_goes_back_to_base(sim):
    wide = sim.replace(params=sim.params.replace(limit_a=sim.params.limit_a * 10))
    choose, step = jax.jit(players.recovery(wide)), jax.jit(wide.step)
    obs, key, table = None, jax.random.key(0), sim.params.table
    state, _ = sim.env.begin(key, jax.tree.map(lambda x: x[0], draws_of(sim)), wide.params)
    split = int(np.flatnonzero((np.asarray(table.set_busbar) == 2).any(axis=1))[0])
    moved = step(state, jnp.full((1, 1), split)).state
    opened = step(moved, jnp.full((1, 1), 3)).state  # toggles line 2
    assert not opened.flow.on[2]
    for _ in range(2):
        opened = step(opened, choose(wide, opened, obs, key)).state
    assert opened.flow.on.all()
    assert (opened.busbar == 1).all()
    assert choose(wide, opened, obs, key) == 0


@pytest.mark.long
def test_idle_steps_are_passed_within(sim):
    """An operator who is asked when hot lives through the episodes that a player who looks himself lives through."""
    asked = players.when_hot(sim, most=5)
    draws = draws_of(sim)
    first = jax.tree.map(lambda x: x[0], draws)
    best, step = jax.jit(lambda sim, state: players.best_action(sim, state)), jax.jit(asked.step)
    state, _ = asked.env.begin(jax.random.key(0), first, asked.params)
    total, steps, alone = 0.0, 0, jnp.arange(sim.env.dims.choice) == 0
    while state.end != DATA and steps < 60:
        row = best(sim, state.inner) if state.hot else jnp.zeros((), jnp.int32)
        before = int(state.t)
        out = step(state, row.reshape(1, 1))
        state, total, steps = out.state, total + float(out.reward[0]), steps + 1
        assert 1 <= int(state.t) - before <= 6
        if not (out.info.terminated | out.info.truncated):
            assert bool(state.hot) == bool(players.is_hot(sim, state.inner))
            np.testing.assert_array_equal(out.info.legal[0] & ~alone & ~state.hot, False)
    found = play(sim, players.greedy())
    assert int(state.t) == found.length[0]
    np.testing.assert_allclose(total, found.total[0], rtol=1e-5)
    assert steps < found.length[0]


@pytest.mark.long
def test_what_is_learnt_is_legal(sim):
    cfg = PPOConfig(task="five", total_steps=256, lanes=8, steps=8, epochs=1, minibatches=1)
    asked = players.when_hot(sim)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax needs them
        state, metrics = jax.jit(make_train(cfg, asked))(jax.random.key(0), asked)
        assert np.isfinite(metrics["loss"]).all()
        choice = ppo_choice(cfg, asked, policy_of(state))
        legal = jnp.arange(sim.env.dims.choice)[None] == 3
        assert choice(jnp.zeros((1, sim.env.dims.obs)), legal, jax.random.key(0)) == 3
        assert (play(sim, players.learnt(choice)).length > 0).all()


@pytest.mark.full
def test_a_class_of_actions_may_be_another_than_the_worlds(folder):
    """PlayableAction changes lines; a class that only sets them has a row to open and one to close each."""
    lines = len(LIMITS_A)
    own, other = (
        powerzoo_jax.from_grid2op(folder, action_class=name).params.table for name in (None, "PowerlineSetAction")
    )
    assert own.switch_line.any() and not other.switch_line.any()
    assert len(other.set_line) == 1 + 2 * lines
    with pytest.raises(ValueError, match="PowerlineSetAction"):
        powerzoo_jax.from_grid2op(folder, action_class="PowerLineSetAction")
