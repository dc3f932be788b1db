"""The snippets of the PowerZoo API contract and of PettingZoo's wrapper page, executed as they are printed there.

In PettingZoo's, the line that makes the environment is the only one replaced. The loops over every public task stand in
test_public_tasks.py, where each task is compiled once.
"""

from __future__ import annotations

import pytest
from powerzoo.tasks import PUBLIC_TASKS

SINGLE_AGENT = """
from powerzoo.tasks import make_task_env
env = make_task_env("battery_arbitrage", split="train")
obs, info = env.reset(seed=0)
terminated = truncated = False
while not (terminated or truncated):
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
"""

PETTINGZOO = """
from powerzoo.tasks import make_task_env
env = make_task_env("marl_opf", framework="pettingzoo")
obs, info = env.reset(seed=42)
while env.agents:
    actions = {a: env.action_space(a).sample() for a in env.agents}
    obs, rewards, terms, truncs, info = env.step(actions)
"""

AUTO = """
from powerzoo.tasks import make_task_env
env = make_task_env("marl_opf", framework="auto")
obs, infos = env.reset(seed=42)
terminated = truncated = False
while not (terminated or truncated):
    actions = {a: env.action_space[a].sample() for a in env.possible_agents}
    obs, rewards, terms, truncs, infos = env.step(actions)
    terminated = bool(terms.get("__all__", False))
    truncated = bool(truncs.get("__all__", False))
"""

MODES = """
from powerzoo.tasks.observation import OBSERVATION_MODES
print(OBSERVATION_MODES)
"""

LADDER = """
from powerzoo.tasks import make_task_env
easy = make_task_env("marl_opf", split="train", obs_mode="global")
medium = make_task_env("marl_opf", split="train", obs_mode="local_plus_forecast")
hard = make_task_env("marl_opf", split="train", obs_mode="local")
"""

CATALOG = """
from powerzoo.tasks import PUBLIC_TASKS, list_public_tasks, get_public_task_catalog
print(PUBLIC_TASKS)
print(list_public_tasks())
catalog = get_public_task_catalog()
print(catalog[0]['task_id'], catalog[0]['default_episode_horizon_steps'])
"""

TO_AEC = """
from powerzoo_compat.pettingzoo_view import parallel_env, parallel_to_aec
aec = parallel_to_aec(parallel_env("marl_opf"))
aec.reset(seed=0)
for agent in aec.agent_iter():
    obs, reward, termination, truncation, info = aec.last()
    aec.step(None if termination or truncation else aec.action_space(agent).sample())
"""

AEC_WRAPPER = """
from pettingzoo.utils import TerminateIllegalWrapper
from powerzoo_compat import pettingzoo_view
env = pettingzoo_view.env("marl_uc", levels=2)
env = TerminateIllegalWrapper(env, illegal_reward=-1)

env.reset()
for agent in env.agent_iter():
    observation, reward, termination, truncation, info = env.last()
    if termination or truncation:
        action = None
    else:
        action = env.action_space(agent).sample()  # this is where you would insert your policy
    env.step(action)
env.close()
"""

PARALLEL_WRAPPER = """
from pettingzoo.utils import BaseParallelWrapper
from powerzoo_compat import pettingzoo_view

parallel_env = pettingzoo_view.parallel_env("marl_opf", render_mode="human")
parallel_env = BaseParallelWrapper(parallel_env)

observations, infos = parallel_env.reset()

while parallel_env.agents:
    actions = {agent: parallel_env.action_space(agent).sample() for agent in parallel_env.agents}
    observations, rewards, terminations, truncations, infos = parallel_env.step(actions)
"""

ROUND_TRIP = """
from pettingzoo.utils import ClipOutOfBoundsWrapper
from powerzoo_compat import pettingzoo_view
from pettingzoo.utils import aec_to_parallel

parallel_env = pettingzoo_view.env("marl_opf", render_mode="human")
parallel_env = ClipOutOfBoundsWrapper(parallel_env)
parallel_env = aec_to_parallel(parallel_env)

observations, infos = parallel_env.reset()

while parallel_env.agents:
    actions = {agent: parallel_env.action_space(agent).sample() for agent in parallel_env.agents}
    observations, rewards, terminations, truncations, infos = parallel_env.step(actions)
"""


def executed(snippet):
    """What a snippet leaves behind."""
    left: dict[str, object] = {}
    exec(snippet, left)
    return left


@pytest.mark.full
def test_the_single_agent_loop_reaches_the_end():
    left = executed(SINGLE_AGENT)
    assert left["truncated"] and not left["terminated"]
    assert left["info"]["episode_summary"]["l"] == left["env"].time_step == 48
    assert {"is_safe", "pf_converged", "cost_sum"} <= left["info"].keys()


@pytest.mark.parametrize("snippet", [PETTINGZOO, AUTO], ids=["pettingzoo", "auto"])
def test_the_multi_agent_loops_reach_the_end(snippet):
    left = executed(snippet)
    infos = left["info"] if snippet == PETTINGZOO else left["infos"]
    assert set(left["obs"]) == set(left["env"].possible_agents) and infos["unit_0"]["episode_summary"]["l"] == 48
    env = left["env"]
    assert env.action_space("unit_0") is env.action_spaces["unit_0"]


def test_the_modes_have_their_names_and_make_a_ladder(capsys):
    executed(MODES)
    printed = "('global', 'local', 'local_plus_forecast', 'local_plus_voltage', 'ders_local')\n"
    assert capsys.readouterr().out == printed
    left = executed(LADDER)
    assert [len(left[name].get_observation_fields()) for name in ("easy", "medium", "hard")] == [15, 19, 15]


@pytest.mark.full
def test_the_catalog_begins_with_the_first_public_task(capsys):
    executed(CATALOG)
    public, listed, first = capsys.readouterr().out.splitlines()
    assert public == str(PUBLIC_TASKS) and listed == str(list(PUBLIC_TASKS)) and first == "marl_opf 48"


@pytest.mark.full
def test_the_snippets_of_pettingzoo_reach_the_end_on_our_tasks(capsys):
    played = {TO_AEC: "aec", AEC_WRAPPER: "env", PARALLEL_WRAPPER: "parallel_env", ROUND_TRIP: "parallel_env"}
    for snippet, name in played.items():
        assert executed(snippet)[name].agents == []
    assert "step 48/48" in capsys.readouterr().out
