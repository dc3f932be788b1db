"""Rewards of random steps, of every end: as the plain replay of Grid2Op's rules has them."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.families.operation import names, rewards
from powerzoo_jax.families.operation.build import from_grid2op
from powerzoo_jax.families.operation.grid2op.example import write_world
from powerzoo_jax.families.operation.types import DATA, ENDS
from tests.references.grid2op import REWARDS, Replay, nothing
from tests.references.grid2op_world import World
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.full]

EPISODES = 12


def test_rewards_are_those_of_the_replay(tmp_path):
    world = World(write_world(tmp_path / "five"))
    replay, rng, found, expected = Replay(world), np.random.default_rng(8), [], []
    for episode in range(EPISODES):
        replay.reset("calm")  # two of them to their end
        over = False
        while not over:
            action = nothing(world.grid)
            if rng.random() < 0.3 and episode > 1:
                action.set_line[rng.integers(world.grid.n_line)] = rng.choice([-1, 1])
            if rng.random() < 0.3 and episode % 2:
                action.redispatch[1] = rng.uniform(-6, 6)
                action.storage[:] = rng.uniform(-8, 8)
            over = replay.step(action)[1]
            s, out, flow = replay.state, replay.outcome, replay.flow
            found.append({
                "flow": {"on": flow.in_service, "a_or": flow.a_or, "gen_p": flow.gen_p}, "p_load": s.p_load,
                "dispatch": {"actual": s.actual.copy(), "storage": s.storage}, "t": np.int32(replay.steps),
                "end": np.int32(ENDS.index(out.end or "running")), "episode": np.int32(0),
                "bad": out.illegal or out.ambiguous or out.refused_dispatch,
            })  # fmt: skip
            expected.append([replay.rewards()[key] for key in REWARDS])
    params = from_grid2op(world.folder, episodes=["calm"], actions=[]).params
    given, expected = jax.tree.map(lambda *x: np.stack(x), *found), np.asarray(expected)

    def one(given):
        parts = {key: SimpleNamespace(**given[key]) for key in ("flow", "dispatch")}
        return rewards.terms(SimpleNamespace(**given | parts), given["bad"], params)

    got = jax.jit(jax.vmap(one))(jax.tree.map(jnp.asarray, given))
    assert got.shape == (len(found), len(names.TERMS)) and got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=tolerance("grid2op_rewards", float), atol=1e-6)
    ends = given["end"]
    assert (ends == DATA).any() and (ends > DATA).any() and given["bad"].any() and not given["bad"].all()
