"""Thousands of random actions on random states of five substations: as the plain replay of Grid2Op's rules has it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.families.operation import topology
from powerzoo_jax.families.operation.build import from_grid2op
from powerzoo_jax.families.operation.grid2op.example import PARAMETERS, write_world
from powerzoo_jax.families.operation.types import GridAction, OperationState
from tests.references.grid2op import Action, Replay, nothing
from tests.references.grid2op_world import World

pytestmark = [pytest.mark.reference, pytest.mark.full]

KINDS = ("or", "ex", "unit", "load", "storage")
COUNT, ACTIONS, STATES = 4000, 300, 20


def draw(rng: np.random.Generator, replay: Replay) -> Action:
    """An action of few entries, which may contradict itself, on a state drawn before it."""
    grid, s = replay.grid, replay.state
    lines, places, many = grid.n_line, len(grid.sub_of_place), rng.choice([0.1, 0.3])
    s.topology = rng.choice([1, 2, -1], places, p=[0.6, 0.3, 0.1])
    out = rng.random(lines) < 0.2
    both = [grid.place[end] for end in ("or", "ex")]
    for end in both:
        s.topology[end] = np.where(out, -1, np.abs(s.topology[end]))
    s.last_busbar = np.where(s.topology > 0, s.topology, rng.integers(1, 3, places))
    s.in_service = ~out
    s.cooldown_line, s.cooldown_sub = (rng.choice([0, 2], n, p=[0.9, 0.1]) for n in (lines, grid.n_sub))
    units = len(grid.sub["unit"])
    found = Action(
        set_line=rng.choice([0, 1, -1], lines, p=[1 - many / 2, many / 4, many / 4]),
        switch_line=rng.random(lines) < many / 4,
        set_bus=rng.choice([0, 1, 2, -1], places, p=[1 - many / 2, many / 6, many / 6, many / 6]),
        change_bus=rng.random(places) < many / 4,
        redispatch=(rng.uniform(-9, 9, units) * (rng.random(units) < 0.1)).astype(np.float32),
        curtail=np.where(rng.random(units) < 0.9, -1, rng.uniform(-0.1, 1.1, units)).astype(np.float32),
        storage=(rng.uniform(-9, 9, 1) * (rng.random() < 0.3)).astype(np.float32),
    )
    kept = rng.random(len(found)) < 0.5
    return Action(*(own if keep else idle for own, idle, keep in zip(found, nothing(grid), kept, strict=True)))


def state_of(before: tuple) -> OperationState:
    idle = dict.fromkeys(OperationState.__dataclass_fields__)
    return OperationState(**idle | dict(zip(("busbar", "last", "cooldown_line", "cooldown_sub"), before, strict=True)))


def orders_of(action: Action, places: np.ndarray) -> GridAction:
    """The action by element, NumPy."""
    kept = {key: getattr(action, key) for key in ("set_line", "switch_line", "redispatch", "curtail", "storage")}
    kept["set_line"] = kept["set_line"].astype(np.int8)
    return GridAction(
        set_busbar=action.set_bus[places].astype(np.int8), change_busbar=action.change_bus[places], **kept
    )


@pytest.mark.parametrize("drawn", [False, True], ids=["one", "areas"])
def test_orders_contradict_touch_and_change_what_the_replay_says(tmp_path, drawn):
    most = {"MAX_SUB_CHANGED": 2, "MAX_LINE_STATUS_CHANGED": 2} if not drawn else {}
    world = World(write_world(tmp_path / "five", parameters=PARAMETERS | most, drawn=drawn))
    replay, rng = Replay(world), np.random.default_rng(3)
    replay.reset("calm")
    grid, rows = world.grid, []
    params = from_grid2op(world.folder, actions=[]).params
    places = np.concatenate([grid.place[kind] for kind in KINDS])
    for _ in range(COUNT):
        action = draw(rng, replay)
        s = replay.state
        before = (np.maximum(s.topology[places], 0), s.last_busbar[places], s.cooldown_line, s.cooldown_sub)
        bad = replay._ambiguous(action)
        lines, subs = replay._impact(action)
        fine = replay._legal(action, lines, subs)
        kept = s.topology.copy()
        replay._apply_topology(action)
        rows.append((orders_of(action, places), before, (bad, lines, subs, fine, np.maximum(s.topology[places], 0))))
        s.topology = kept

    def all_of(orders, before):
        state = state_of(before)
        lines, subs = topology.touched(orders, state, params)
        fine = topology.allowed(orders, lines, subs, state, params)
        return (
            topology.ambiguous(orders, params),
            lines,
            subs,
            fine,
            topology.apply_topology(orders, state.busbar, state.last),
        )

    orders, before, expected = (jax.tree.map(lambda *x: np.stack(x), *part) for part in zip(*rows, strict=True))
    before = tuple(jnp.asarray(x, d) for x, d in zip(before, (jnp.int8, jnp.int8, jnp.int32, jnp.int32), strict=True))
    found = jax.jit(jax.vmap(all_of))(orders, before)
    sane = ~expected[0]
    assert 0.2 < sane.mean() < 0.9 and 0.05 < expected[3].mean() < 0.9
    for name, ours, theirs in zip(("ambiguous", "lines", "subs", "allowed", "busbar"), found, expected, strict=True):
        rows_of = slice(None) if name == "ambiguous" else sane  # an ambiguous action is replaced before all else
        np.testing.assert_array_equal(np.asarray(ours)[rows_of], theirs[rows_of], err_msg=name)


def test_the_legality_of_a_whole_table_is_that_of_its_actions(tmp_path):
    """In words of bits for all actions at once."""
    world = World(write_world(tmp_path / "five", drawn=True))
    replay, rng = Replay(world), np.random.default_rng(5)
    replay.reset("calm")
    grid = world.grid
    table = [nothing(grid), *(draw(rng, replay) for _ in range(ACTIONS))]
    places = np.concatenate([grid.place[kind] for kind in KINDS])
    params = from_grid2op(world.folder, actions=[]).params
    rows = jax.tree.map(lambda *x: jnp.stack(x), *(orders_of(action, places) for action in table))
    params = params.replace(reach=topology.reach(rows, params))
    legal = jax.jit(topology.legal)
    for _ in range(STATES):
        draw(rng, replay)
        s = replay.state
        expected = [not replay._ambiguous(a) and replay._legal(a, *replay._impact(a)) for a in table]
        before = (np.maximum(s.topology[places], 0), s.last_busbar[places], s.cooldown_line, s.cooldown_sub)
        found = legal(state_of(tuple(map(jnp.asarray, before))), params)
        np.testing.assert_array_equal(found, expected)
        assert found[0] and 0.05 < np.mean(expected) < 0.7
