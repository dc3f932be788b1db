"""Environment folders of Grid2Op as they are read: every array beside that of the tests' own reader, and its flows."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import validate
from powerzoo_jax.families.operation.build import action_table, world_sim
from powerzoo_jax.families.operation.grid2op.episodes import choose_episodes, read_episodes
from powerzoo_jax.families.operation.grid2op.example import EPISODES, ROWS, write_world
from powerzoo_jax.families.operation.grid2op.world import read_world
from powerzoo_jax.families.operation.types import Fleet
from powerzoo_jax.powerflow.busbars.network import node_injection
from powerzoo_jax.powerflow.busbars.solve import solve_topology
from tests.references.grid2op_flow import Injections, solve_flow
from tests.references.grid2op_world import KINDS, World
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

SEEDS = (3, 8)


@pytest.fixture(scope="module", params=[False, True], ids=["files", "drawn"])
def folder(request, tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("five") / "five", drawn=request.param)


def test_elements_rules_and_fleet_are_those_of_the_reference(folder):
    world, known = read_world(folder), World(folder)
    for kind in ("line", "unit", "load", "storage"):
        assert getattr(world.names, kind) == known.grid.names[kind]
    for found, of in ((world.names.sub, known.grid.sub), (np.argsort(world.names.order), known.grid.place)):
        np.testing.assert_array_equal(found, np.concatenate([of[kind] for kind in KINDS]))
    np.testing.assert_array_equal(world.limit_a, known.limit_a)
    for field in dataclasses.fields(Fleet):
        if field.name != "known":
            np.testing.assert_array_equal(getattr(world.fleet, field.name), getattr(known, field.name), field.name)
    assert world.parameters == {key: known.parameters[key] for key in world.parameters}
    assert world.horizons == known.horizons and list(world.episodes) == known.episodes == sorted(EPISODES)
    areas = known.areas or [range(5)]
    np.testing.assert_array_equal(world.area, [[k in area for k in range(5)] for area in areas])


def test_series_forecasts_and_windows_are_those_of_the_reference(folder):
    world, known = read_world(folder), World(folder)
    rows, counts = read_episodes(world, world.episodes, SEEDS)
    copies = [(name, seed) for name in EPISODES for seed in (SEEDS if world.draws else (None,))]
    assert counts.tolist() == [ROWS] * len(copies)
    for k, (name, seed) in enumerate(copies):
        episode, here, ahead = known.read_episode(name, seed), slice(ROWS * k, ROWS * (k + 1)), world.horizons
        there = slice(here.start * ahead, here.stop * ahead)
        for key, field in (("prod_p", "p_unit"), ("load_p", "p_load"), ("load_q", "q_load")):
            np.testing.assert_array_equal(getattr(rows, field)[here], episode.rows[key])
            np.testing.assert_array_equal(getattr(rows.forecast, field)[there], episode.forecast[key])
        out = episode.rows["hazards"] | episode.rows["maintenance"]
        np.testing.assert_array_equal(rows.out[here], out)
        np.testing.assert_array_equal(rows.to_next[here], episode.to_maintenance)
        np.testing.assert_array_equal(rows.left[here], episode.maintenance_left)
        np.testing.assert_array_equal(rows.hazard_left[here], episode.hazard_left)
    assert rows.out.any() and rows.hazard_left.any() and rows.forecast.v_set is None
    kv = np.float32([112.2, 112.2, 111.1]) / np.float32(110)
    np.testing.assert_array_equal(rows.v_set, np.float64([[kv[0], kv[1], 1, kv[2], 1]]))
    # the first observation is one step after the start of the series
    step = 1 if world.draws else 1 / 12
    np.testing.assert_allclose(rows.clock[7], [np.sin(8 * step * np.pi / 12), np.cos(8 * step * np.pi / 12)])


@pytest.mark.full
def test_currents_of_a_world_are_those_of_the_reference(folder):
    world, known = read_world(folder), World(folder)
    assert [p for p in validate(world.case) if p.severity == "error"] == []
    with jax.enable_x64(True):
        params = world_sim(world, EPISODES[:1], dtype="float64", max_steps=9).params
        bank, counts, base = params.bank, params.factors.counts, world.case.base_mva
        ends, storages = np.zeros(2 * counts.branches), np.zeros(counts.storages)
        p = np.concatenate([ends, bank.p_unit[0], -bank.p_load[0], storages, np.zeros(counts.shunts)]) / base
        q = np.concatenate([ends, 0 * bank.p_unit[0], -bank.q_load[0], storages, np.zeros(counts.shunts)]) / base
        at = jnp.ones(params.factors.n_element, jnp.int8)
        flow = solve_topology(
            params.factors, *node_injection(params.factors, at, jnp.asarray(p), jnp.asarray(q)), at, bank.v_set[0],
            start="dc",
        )  # fmt: skip
        v = np.asarray(flow.v_pu)
    load_left, v_set = np.asarray(bank.load_left), np.asarray(bank.v_set)
    rows, grid = known.read_episode(EPISODES[0]).rows, known.grid
    p_unit, p_load, q_load = (rows[key][0].astype(float) for key in ("prod_p", "load_p", "load_q"))
    v_unit = v_set[0, grid.sub["unit"]]
    found = solve_flow(grid, np.ones(len(world.names.sub), int), Injections(p_unit, v_unit, p_load, q_load, storages))
    a = np.hypot(flow.p_from, flow.q_from) / v[grid.sub["or"]] * np.asarray(params.amps)
    np.testing.assert_allclose(a / known.limit_a, found.a_or / known.limit_a, atol=tolerance("grid2op_rho", float))
    assert int(params.horizon) == 9 and params.n_step.tolist() == [9]
    np.testing.assert_allclose(load_left[3], rows["load_p"][3:10].sum(), rtol=1e-6)
    assert load_left[10] == 0


def test_episodes_go_by_names_positions_and_splits(folder):
    world = dataclasses.replace(read_world(folder), episodes=tuple(f"{k:02d}" for k in range(20)))
    assert choose_episodes(world, "val") == ("08", "18") and choose_episodes(world, "test") == ("09", "19")
    assert len(choose_episodes(world, "train")) == 16
    assert choose_episodes(world, slice(0, 4, 2)) == ("00", "02") == choose_episodes(world, ["00", 2])
    assert choose_episodes(world, None) == world.episodes and choose_episodes(world, -1) == ("19",)


def test_actions_are_a_table_a_number_or_dicts_of_grid2op(folder):
    world = read_world(folder)
    whole = action_table(world, "topology")
    assert len(action_table(world, "discrete").set_line) == 214
    assert len(action_table(world, 3).set_line) == 1 + len(world.names.line) + 3 < len(whole.set_line)
    table = action_table(world, [{"set_line_status": [("0_1_0", -1)]}, {"redispatch": [(1, 2.5)]}])
    assert table.set_line[:, 0].tolist() == [0, -1, 0] and table.redispatch[2, 1] == 2.5
    for wrong in ("topologies", None, [1], 0, {"set_bus": 1}):
        with pytest.raises(ValueError, match="actions"):
            action_table(world, wrong)
