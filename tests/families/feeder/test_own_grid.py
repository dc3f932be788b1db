"""Feeder tasks on grids of one's own: nets of pandapower in one line, and what follows the grid."""

from __future__ import annotations

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.cases import library, to_matpower
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.families.feeder.plan.episode import build_feeder_problems
from powerzoo_jax.families.feeder.tasks import own_grid
from powerzoo_jax.tasks.score import all_starts, episode_keys
from tests.references.recorded_nets import converter

CIGRE, KERBER = "create_cigre_network_mv", "create_kerber_landnetz_kabel_1"
pytestmark = pytest.mark.filterwarnings("ignore:.*Give a keyword to choose otherwise")


@pytest.fixture
def net(monkeypatch):
    """Net name -> the network, read as `case=` reads a net of pandapower."""
    return converter(monkeypatch, load_case)


def play(sim, steps=6):
    """Infos of the first steps of an episode under full discharge, as NumPy arrays by step."""
    state, _ = sim.init(jax.random.key(0))
    step, infos = jax.jit(sim.step), []
    for _ in range(steps):
        state, _, _, _, info = step(state, jnp.ones((sim.env.dims.agent, sim.env.dims.act)))
        infos.append(jax.tree.map(np.asarray, info))
    return infos


@pytest.mark.tiers("full", quick=["battery_arbitrage-create_cigre_network_mv"])
@pytest.mark.parametrize("name", [CIGRE, KERBER])
@pytest.mark.parametrize("task", ["battery_arbitrage", "dso"])
def test_pandapowers_networks_are_tasks_in_one_line(task, name, net):
    case = net(name)
    with pytest.warns(UserWarning, match=rf"{task} on {case.name}: "):
        sim = powerzoo_jax.make(task, case=case)
    assert sim.spec.case == case.name and set(sim.spec.cost_budget) == {np.inf}
    for info in play(sim):
        assert int(info.pf_status) == 0 and 0.9 < float(info.v_min_pu) < float(info.v_max_pu) < 1.1


def test_the_battery_stands_at_the_loaded_bus_farthest_from_the_source(net):
    case = net(KERBER)
    f, t = branch_positions(case)
    way = np.full(case.n_bus, np.inf)
    way[case.slack_bus] = 0
    z = np.where(case.branch.in_service, np.hypot(case.branch.r_pu, case.branch.x_pu), np.inf)
    for _ in range(case.n_bus):  # Bellman and Ford
        np.minimum.at(way, t, way[f] + z)
        np.minimum.at(way, f, way[t] + z)
    loaded = case.p_load_mw > 0
    expected = case.bus.id[loaded][np.argmax(way[loaded])]
    sim = powerzoo_jax.make("battery_arbitrage", case=case)
    assert dict(sim.spec.overrides)["battery_bus_ids"] == (expected,)
    share = case.p_load_mw.sum() / load_case("33bw").p_load_mw.sum()
    assert dict(sim.spec.overrides)["battery_power_mw"] == pytest.approx(0.2 * share, rel=0.05)


def test_flexible_loads_stand_at_the_five_largest_loads(net):
    case = net(CIGRE)
    sim = powerzoo_jax.make("dso", case=case)
    rows = dict(sim.spec.overrides)["flexload_config"]
    load = np.delete(case.p_load_mw, case.slack_bus)
    assert sorted(cap / 0.3 for _, _, cap, _ in rows) == pytest.approx(np.sort(load)[-5:], rel=0.05)


def test_what_the_caller_gives_stays_and_nothing_is_told_of_it():
    given = {
        "battery_bus_ids": (60,),
        "battery_capacity_mwh": 1.0,
        "battery_power_mw": 0.4,
        "v_min": 0.92,
        "v_max": 1.08,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = powerzoo_jax.make("battery_arbitrage")
        sim = powerzoo_jax.make("battery_arbitrage", case="case69", constraint_tightness="strict", **given)
    assert sim.spec.cost_budget == (np.inf, np.inf, np.inf, 0.25)
    assert given.items() <= dict(sim.spec.overrides).items()
    assert own.spec.cost_budget[-1] == 0.5


def test_the_units_of_a_case_deliver_at_all_times():
    """The exchange with the grid above falls by what a unit delivers, less what it saves in losses."""
    case = load_case("33bw")
    columns = {f.name: getattr(case.unit, f.name) for f in dataclasses.fields(case.unit)}
    units = {name: np.repeat(column[:1], 2, axis=0) for name, column in columns.items()}
    units |= {"bus_id": [1, 25], "p_mw": [0.0, 0.3], "q_mvar": [0.0, 0.1]}
    with_unit = dataclasses.replace(case, name="with_unit", unit=type(case.unit)(**units))
    keywords = {"battery_bus_ids": (6,), "battery_capacity_mwh": 0.5, "battery_power_mw": 0.2}
    plain, moved = (
        play(powerzoo_jax.make("battery_arbitrage", case=c, v_min=0.9, v_max=1.1, **keywords), 3)
        for c in (case, with_unit)
    )
    for before, after in zip(plain, moved, strict=True):
        saved = float(before.p_loss_mw - after.p_loss_mw)
        assert saved > 0
        assert float(before.p_slack_mw - after.p_slack_mw) == pytest.approx(0.3 + saved, abs=2e-5)


def test_one_of_several_references_is_chosen_by_a_keyword():
    case = load_case("33bw")
    kind, on = case.bus.kind.copy(), case.branch.in_service & (case.branch.to_id != 13)
    kind[17] = 3  # bus 18 supplies 13 to 18 from elsewhere
    two = dataclasses.replace(
        case,
        name="two",
        bus=dataclasses.replace(case.bus, kind=kind),
        branch=dataclasses.replace(case.branch, in_service=on),
    )
    sim = powerzoo_jax.make("battery_arbitrage", case=two, reference=1)
    assert sim.env.dims.bus == 27
    with pytest.raises(ValueError, match=r"reference = 5 is no reference bus\. Valid: 1, 18"):
        powerzoo_jax.make("battery_arbitrage", case=two, reference=5)


@pytest.mark.full
def test_a_net_and_a_shipped_feeder_are_lanes_of_one_program(net):
    """The exchange of each lane is what the same feeder has alone."""
    place = {"battery_bus_ids": (6,), "battery_capacity_mwh": 0.5, "battery_power_mw": 0.2, "v_min": 0.9, "v_max": 1.1}
    sims = [powerzoo_jax.make("battery_arbitrage", case=case, **place) for case in (net(CIGRE), load_case("case69"))]
    together = powerzoo_jax.stack(sims)
    keys = jax.random.split(jax.random.key(0), 2)
    axes = powerzoo_jax.lanes(together)
    states, _ = jax.vmap(lambda sim, key: sim.init(key), in_axes=(axes, 0))(together, keys)
    action = jnp.ones((together.env.dims.agent, together.env.dims.act))
    info = jax.vmap(lambda sim, state: sim.step(state, action)[-1], in_axes=(axes, 0))(together, states)
    for lane, sim in enumerate(sims):
        state, _ = sim.init(keys[lane])
        _, _, _, _, alone = sim.step(state, jnp.ones((sim.env.dims.agent, sim.env.dims.act)))
        assert float(info.p_slack_mw[lane]) == pytest.approx(float(alone.p_slack_mw), abs=1e-4)
        assert float(info.p_loss_mw[lane]) == pytest.approx(float(alone.p_loss_mw), abs=1e-5)


def test_a_planner_says_that_it_does_not_know_charging(net):
    sim = powerzoo_jax.make("dso", split="test", case=net(CIGRE))
    draws = all_starts(sim)
    with pytest.raises(SolverError, match=r"planner knows feeders of plain series branches"):
        build_feeder_problems(sim, draws, episode_keys(0, draws.load_row.shape[0]))


@pytest.fixture
def counted(monkeypatch):
    """A function that counts the calls of a module's function from now on."""

    def count(module, name):
        real, calls = getattr(module, name), []
        monkeypatch.setattr(module, name, lambda *given, **named: calls.append(given) or real(*given, **named))
        return calls

    return count


@pytest.mark.parametrize(
    ("task", "keyword"),
    [("battery_arbitrage", "case"), ("joint_trans_dist", "dist_case"), ("joint_trans_dist", "trans_case")],
)
def test_a_file_is_read_once(task, keyword, counted, tmp_path):
    path = tmp_path / "own.m"
    to_matpower(load_case("pz_case5" if keyword == "trans_case" else "33bw"), path)
    reads = counted(library, "from_matpower")
    more = {"trans_load_ratio": 1.0, "feeder_scale": 2.0} if keyword == "trans_case" else {}
    powerzoo_jax.make(task, **{keyword: str(path)}, **more)
    assert len(reads) == 1


def test_a_file_that_has_changed_is_read_again(tmp_path):
    case, path = load_case("33bw"), tmp_path / "own.m"
    loads = []
    for scale in (1.0, 1.5):
        to_matpower(dataclasses.replace(case, load=dataclasses.replace(case.load, p_mw=scale * case.load.p_mw)), path)
        loads.append(float(powerzoo_jax.make("battery_arbitrage", case=path).params.load_mw))
    assert loads == [pytest.approx(3.715), pytest.approx(1.5 * 3.715)]


def test_a_reference_is_chosen_once(counted):
    solved = counted(own_grid, "simplify_feeder")
    sim = powerzoo_jax.make("battery_arbitrage", case=load_case("case14"), reference=1)
    assert len(solved) == 1 and sim.spec.case == "case14"
