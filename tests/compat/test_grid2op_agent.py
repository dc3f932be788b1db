"""Agents for Grid2Op: state, observation and action at what the oracle of its rules shows, without Grid2Op."""

import dataclasses
import datetime
import sys
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from powerzoo_compat.grid2op_agent import as_agent

import powerzoo_jax
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.operation.actions import to_grid2op
from powerzoo_jax.families.operation.grid2op.example import EPISODES, LIMITS_A, write_world
from powerzoo_jax.families.operation.players import greedy
from tests.references.grid2op import Action, Replay
from tests.references.grid2op_world import KINDS, World

pytestmark = [pytest.mark.reference, pytest.mark.full]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("hot") / "five", limits=0.6 * np.array(LIMITS_A), parameters={})


@pytest.fixture(scope="module")
def sim(folder):
    found = powerzoo_jax.from_grid2op(folder)
    return found.replace(params=found.params.replace(opponent=None))


@pytest.fixture
def library(monkeypatch):
    """A module in the place of grid2op, with the base class of its agents."""

    class BaseAgent:
        def __init__(self, action_space):
            self.action_space = action_space

    package, agents = ModuleType("grid2op"), ModuleType("grid2op.Agent")
    agents.BaseAgent = BaseAgent
    monkeypatch.setitem(sys.modules, "grid2op", package)
    monkeypatch.setitem(sys.modules, "grid2op.Agent", agents)


def environment(grid, episode, **other):
    """What an agent reads of an environment of Grid2Op."""
    sizes = {"n_line": grid.n_line, "n_sub": grid.n_sub, "n_gen": 3, "dim_topo": len(grid.sub_of_place)} | other
    data = SimpleNamespace(subpaths=[f"chronics/{name}" for name in EPISODES])
    handler = SimpleNamespace(get_id=lambda: f"chronics/{episode}", real_data=data)
    return type("Environment", (), sizes | {"chronics_handler": handler, "action_space": staticmethod(lambda x: x)})()


def observed(replay):
    """Observation of the oracle as Grid2Op has it."""
    time = datetime.datetime(2030, 6, 3) + datetime.timedelta(minutes=5 * (replay.row + 1))
    more = {"current_step": replay.row, "hour_of_day": time.hour, "minute_of_hour": time.minute}
    more |= {"timestep_protection_engaged": replay.state.engaged, "curtailment": np.zeros(3, np.float32)}
    return SimpleNamespace(**replay.observation, **more)


def oracle_action(sim, row, grid):
    place = np.argsort(np.concatenate([grid.place[kind] for kind in KINDS]))
    one = jax.tree.map(lambda x: np.asarray(x[row]), sim.params.table)
    busbars = (one.set_busbar.astype(int)[place], one.change_busbar[place])
    return Action(one.set_line.astype(int), one.switch_line, *busbars, one.redispatch, one.curtail, one.storage)


@pytest.mark.long
def test_an_agent_sees_and_does_the_same_there(sim, folder, library):
    replay, episode = Replay(World(folder)), EPISODES[0]
    replay.reset(episode)
    agent = as_agent(greedy(), environment(replay.grid, episode), sim)
    drawn = Draw(load_row=jnp.asarray(0), price_row=jnp.zeros(1, jnp.int32), soc=jnp.zeros(0))
    state, obs = sim.env.begin(jax.random.key(0), drawn, sim.params)
    choose, step, rows = jax.jit(greedy()), jax.jit(sim.step), set()
    for _ in range(25):
        order = agent.act(observed(replay), 0.0)
        np.testing.assert_allclose(agent.seen, obs, atol=2e-4)  # of float32
        row = int(choose(sim, state, obs, jax.random.key(0))[0, 0])
        assert agent.index == row
        assert order == to_grid2op(sim, row)
        rows.add(row)
        replay.step(oracle_action(sim, row, replay.grid))
        out = step(state, jnp.full((1, 1), row))
        state, obs = out.state, out.obs
    assert len(rows) > 1


def test_an_agent_is_refused_where_its_grid_or_episode_is_another(sim, folder, library):
    replay = Replay(World(folder))
    replay.reset("calm")
    with pytest.raises(ValueError, match="8 lines, ours 7"):
        as_agent(greedy(), environment(replay.grid, "calm", n_line=8), sim)
    with pytest.raises(ValueError, match="1 names of episodes for 2"):
        as_agent(greedy(), environment(replay.grid, "calm"), sim, ["calm"])
    agent = as_agent(greedy(), environment(replay.grid, "stormy"), sim)
    with pytest.raises(ValueError, match="stormy"):
        agent.act(observed(replay), 0.0)
    with pytest.raises(ValueError, match="rows 0 to"):
        to_grid2op(dataclasses.replace(sim), 10**6)
