"""Actions of Grid2Op as rows of a table: dicts both ways, the ids of its discrete space, usefulness of settings."""

import hashlib

import jax
import numpy as np
import pytest

from powerzoo_jax.families.operation import actions
from powerzoo_jax.families.operation.actions import KEYS, ElementNames, Screen
from powerzoo_jax.families.operation.grid2op.example import write_world
from powerzoo_jax.families.operation.types import Fleet
from tests.references.grid2op_world import KINDS, World


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(write_world(tmp_path_factory.mktemp("five") / "five"))


@pytest.fixture(scope="module")
def elements(world):
    names = world.grid.names
    sub = np.concatenate([world.grid.sub[kind] for kind in KINDS])
    return ElementNames(names["line"], names["unit"], names["load"], names["storage"], sub)


def fleet(world):
    given = {key: getattr(world, key) for key in Fleet.__dataclass_fields__ if hasattr(world, key)}
    return Fleet(**{key: given.get(key) for key in Fleet.__dataclass_fields__})


# Of Grid2Op 1.12.6: converter.all_actions of the DiscreteActSpace of this world made with action_class=PlayableAction,
# each field stacked as int8 or float32 in Grid2Op's order of elements, sha256 of its bytes.
DIGESTS = {
    "set_line": "0c3119d66fc19999",
    "switch_line": "9577a0a206f98e03",
    "set_busbar": "821d4f3a38ef8a00",
    "change_busbar": "dbf298472cdc6d1d",
    "redispatch": "bb769acfbb63714e",
    "curtail": "7c9e6022c8ce2b2e",
    "storage": "2c681bf34f7affb4",
}


def test_ids_of_the_discrete_space_are_grid2ops(world, elements):
    table = actions.discrete(elements, KEYS, fleet(world))
    for name, digest in DIGESTS.items():
        values = getattr(table, name)
        assert len(values) == 214
        values = values[:, elements.order] if "busbar" in name else values
        values = values.astype(np.float32 if values.dtype.kind == "f" else np.int8)
        assert hashlib.sha256(values.tobytes()).hexdigest()[:16] == digest, name


def test_order_is_that_of_the_topology_vector(world, elements):
    place = np.concatenate([world.grid.place[kind] for kind in KINDS])
    np.testing.assert_array_equal(elements.order[place], np.arange(len(place)))


def test_every_row_returns_from_its_dict(world, elements):
    table = actions.discrete(elements, KEYS, fleet(world))
    for k in range(len(table.set_line)):
        row = jax.tree.map(lambda x, k=k: x[k], table)
        again = actions.from_dict(elements, actions.to_dict(row))
        jax.tree.map(np.testing.assert_array_equal, again, row)
    assert actions.to_dict(jax.tree.map(lambda x: x[0], table)) == {}


# the same order in the ways that Grid2Op takes it
SAME = [
    ({"set_line_status": [(2, -1)]}, {"set_line_status": {"1_2_2": -1}}, {"set_line_status": [0, 0, -1, 0, 0, 0, 0]}),
    ({"change_line_status": 2}, {"change_line_status": ["1_2_2"]}, {"change_line_status": np.arange(7) == 2}),
    ({"redispatch": (1, 2.5)}, {"redispatch": [("gen_1_1", 2.5)]}, {"redispatch": np.array([0.0, 2.5, 0.0])}),
    ({"curtail": (2, 0.5)}, {"curtail": {"gen_3_2": 0.5}}, {"curtail": [-1.0, -1.0, 0.5]}),
    # substation 1 holds the ends of lines 0, 2, 3, a unit, a load
    (
        {"set_bus": {"substations_id": [(1, [1, 2, 1, 1, 2])]}},
        {"set_bus": {"lines_ex_id": (0, 1), "lines_or_id": {2: 2, 3: 1}, "generators_id": (1, 1), "loads_id": {0: 2}}},
        {"set_bus": np.concatenate([np.zeros(3, int), [1, 2, 1, 1, 2], np.zeros(14, int)])},
    ),
    (
        {"change_bus": {"substations_id": [(1, [False, True, False, False, True])]}},
        {"change_bus": {"lines_or_id": ["1_2_2"], "loads_id": [0]}},
        {"change_bus": [4, 7]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two", "three"), SAME, ids=lambda x: next(iter(x)))
def test_the_forms_of_an_order_are_one(elements, one, two, three):
    orders = actions.from_dict(elements, one)
    assert actions.to_dict(orders)
    for form in (two, three):
        jax.tree.map(np.testing.assert_array_equal, actions.from_dict(elements, form), orders)


WRONG = [
    ({"set_line": [(0, 1)]}, "Did you mean 'set_line_status'"),
    ({"set_line_status": [("0_1_1", 1)]}, "0_1_0"),
    ({"set_line_status": [(7, 1)]}, "numbered 0 to 6"),
    ({"set_line_status": [(0, 2)]}, "whole one of -1 to 1"),
    ({"set_line_status": [1, 0]}, "each of 7"),
    ({"set_line_status": [(0,)]}, "no pair"),
    ({"change_line_status": [True, False]}, "each of 7"),
    ({"change_line_status": [1.5]}, "each of 7"),
    ({"redispatch": [(0, float("nan"))]}, "finite"),
    ({"redispatch": [(0, "much")]}, "much"),
    ({"redispatch": [(True, 1.0)]}, "neither the number nor the name"),
    ({"set_bus": {"lines_id": [(0, 1)]}}, "lines_or_id"),
    ({"set_bus": {"loads_id": [(0, 3)]}}, "whole one of -1 to 2"),
    ({"set_bus": {"substations_id": [(1, [1, 2])]}}, "each of 5"),
    ({"set_bus": {"substations_id": [(5, [1, 2])]}}, "numbered 0 to 4"),
    ({"set_bus": {"substations_id": [1]}}, "no pair"),
]


@pytest.mark.parametrize(("action", "message"), WRONG, ids=str)
def test_a_wrong_action_is_a_sentence(elements, action, message):
    with pytest.raises(ValueError, match=message):
        actions.from_dict(elements, action)


@pytest.mark.parametrize(
    ("name", "first", "lines"),
    [("PlayableAction", {"change_line_status": [0]}, 7), ("TopologySetAction", {"set_line_status": [(0, -1)]}, 14)],
)
def test_lines_change_or_open_and_close(elements, name, first, lines):
    table = actions.line_rows(elements, actions.keys_of(name))
    assert len(table.set_line) == lines
    assert actions.to_dict(jax.tree.map(lambda x: x[0], table)) == first
    with pytest.raises(ValueError, match="TopologyAction"):
        actions.keys_of("TopologicalAction")


@pytest.fixture(scope="module")
def screen(world, elements):
    rows = world.read_episode("calm").rows
    zeros = np.zeros((20, 2 * len(elements.line)))
    injection = np.concatenate([zeros, rows["prod_p"][:20], -rows["load_p"][:20], np.zeros((20, 1))], axis=1)
    limit = np.sqrt(3) * world.limit_a * world.grid.vn_kv[world.grid.sub["or"]] / 1000
    return Screen(world.grid.b_dc, limit, injection, world.grid.slack)


def worst_loading(elements, moved, screen):
    """Largest loading over the outages of a line one by one, each with a solve of its own; None where any cuts."""
    n = len(elements.line)
    node = elements.sub + 5 * moved
    worst = np.zeros(len(screen.injection_mw))
    p = screen.injection_mw.copy()
    p[:, 2 * n + screen.slack] -= p.sum(axis=1)
    for out in range(n):
        laplacian = np.zeros((10, 10))
        for k in set(range(n)) - {out}:
            step = np.zeros(10)
            step[node[k]], step[node[n + k]] = 1, -1
            laplacian += screen.b_pu[k] * np.outer(step, step)
        used = np.unique(node)
        if np.linalg.matrix_rank(laplacian, tol=1e-9) < len(used) - 1:
            return None
        at = np.stack([np.where(node == b, p, 0).sum(axis=1) for b in range(10)])
        angle = np.linalg.pinv(laplacian) @ at
        flow = screen.b_pu[:, None] * (angle[node[:n]] - angle[node[n : 2 * n]])
        flow[out] = 0
        worst = np.maximum(worst, np.abs(flow / screen.limit_mw[:, None]).max(axis=0))
    return worst


def test_usefulness_is_that_of_outages_solved_one_by_one(elements, screen):
    settings = actions.busbar_settings(elements)
    base = worst_loading(elements, np.zeros(len(elements.sub), bool), screen)
    found, checked = actions.usefulness(elements, settings, screen), 0
    for gain, setting in zip(found, settings, strict=True):
        worst = worst_loading(elements, setting == 2, screen)
        if worst is None:  # the base loading counts beside, so that it is of no use
            assert gain <= 1e-12
            continue
        checked += 1
        np.testing.assert_allclose(gain, (base - worst).mean(), atol=1e-9)
    assert checked > 10


def test_table_is_nothing_lines_base_settings_then_the_most_useful(elements, screen):
    table = actions.topology(elements, KEYS, screen)
    assert len(table.set_line) == 1 + 7 + len(actions.busbar_settings(elements))
    settings = table.set_busbar[8:]
    split = (settings == 2).any(axis=1)
    assert not split[:5].any() and split[5:].all()
    gain = actions.usefulness(elements, settings[5:], screen)
    finite = gain[np.isfinite(gain)]
    assert (np.diff(finite) < 1e-8).all() and np.isfinite(gain[: len(finite)]).all()

    few = actions.topology(elements, KEYS, screen, most=9)
    kept = few.set_busbar[8:]
    assert len(kept) <= 9
    ends = kept[5:, :14]
    assert ((ends == 1).sum(axis=1) > 1).all() and ((ends == 2).sum(axis=1) > 1).all()
    assert len(actions.topology(elements, ("set_line_status",), screen).set_line) == 15
