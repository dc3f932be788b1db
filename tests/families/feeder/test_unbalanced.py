"""The three-phase feeder as an environment: contract, sizes, OpenDSS's figures, devices on one, two, three phases."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import load_feeder
from powerzoo_jax.families.feeder.unbalanced import PhaseFlow
from powerzoo_jax.powerflow import nominal_phase_load, prepare_threephase, solve_threephase
from powerzoo_jax.tasks.contract import check_sim
from tests.recorders.record_opendss import DATA
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

TASK = "distribution_3phase"
F32 = "float32"
BATTERIES_MW = (0.2, -0.05)  # on three phases, and between a and b
PLANT_MW = 0.1  # on phase c: what is not curtailed


@pytest.fixture(scope="module")
def sim():
    """The feeder at its nominal load in the first step of some day, which begins at midnight."""
    sim = powerzoo_jax.make(TASK, vuf_max=1.0, v_max=1.04)
    row = int(sim.params.starts.load_row[0])
    factor = sim.params.bank.load_rows[row, sim.env.columns.at("load_factor")]
    starts = dataclasses.replace(sim.params.starts, n_start=jnp.ones((), jnp.int32))
    return sim.replace(params=dataclasses.replace(sim.params, load_ratio=1 / factor, starts=starts))


@jax.jit
def begun(sim):
    return sim.init(jax.random.key(0))


@jax.jit
def solved(sim, state, action):
    """The power flow of a step beside all that the step reports."""
    delivery = sim.env.limit(state, sim.env.decode(action, sim.params), sim.params)[1]
    return sim.env.flow(sim.env.dispatch(state, delivery, sim.params), sim.params), sim.step(state, action)


@pytest.fixture(scope="module")
def idle(sim):
    """At midnight, when the plant gives nothing either."""
    state, obs = begun(sim)
    flow, out = solved(sim, state, jnp.full((1, 3), jnp.nan, obs.dtype))
    assert float(jnp.abs(out.info.p_mw).max()) == 0
    return flow, out, obs


@pytest.mark.long
def test_the_feeder_keeps_the_contract_on_every_split():
    first, *others = (powerzoo_jax.make(TASK, split=split) for split in ("train", "test"))
    check_sim(first, others=tuple(others))


@pytest.mark.tiers("long", full=["ieee123"])
@pytest.mark.parametrize("feeder", ["ieee13", "ieee34", "ieee123"])
def test_the_observation_has_nine_fields_a_bus_and_six_a_line(feeder):
    sim = powerzoo_jax.make(TASK, case=feeder, devices=(), price_forecast=False)
    case = load_feeder(feeder)
    size = 9 * len(set(case.node.bus)) + 6 * len(case.line) + 2
    state, obs = jax.eval_shape(sim.init, jax.random.key(0))
    out = jax.eval_shape(sim.step, state, jax.ShapeDtypeStruct((1, 0), obs.dtype))
    assert obs.shape == out.obs.shape == (1, size + 2) and len(set(sim.env.fields.names)) == size + 2


def test_ratings_of_a_script_are_those_of_its_conductors_unless_one_is_given(tmp_path):
    path = tmp_path / "mine.dss"
    path.write_text(
        "New Circuit.c bus1=a basekv=12.47\nNew Line.l bus1=a bus2=b length=1 normamps=40\n"
        "New Line.m bus1=b.2 bus2=c.2 phases=1 length=1\nNew Load.x bus1=b phases=3 kv=12.47 kw=900\n"
        "New Load.y bus1=c.2 phases=1 kv=7.2 kw=90\nSet VoltageBases=[12.47]\nCalcVoltageBases\n"
    )
    sim = powerzoo_jax.make(TASK, case=path, devices=(), price_forecast=False)
    rate = np.asarray(sim.params.grid.rate * sim.params.grid.base_mva).reshape(3, 2)
    np.testing.assert_allclose(rate, [[0.04 * 12.47 / np.sqrt(3), 0]] * 3, rtol=1e-6)
    assert sim.env.rated
    plain = powerzoo_jax.make(TASK, case=path, devices=(), price_forecast=False, rate_mva=0.0)
    assert not plain.env.rated and not np.asarray(plain.params.grid.rate).any()


@pytest.mark.full
def test_idle_the_feeder_is_that_of_opendss(idle):
    flow, out, _ = idle
    expected = read_npz(DATA / "ieee13" / "expected.npz")
    case = load_feeder("ieee13")
    source, loss = expected["source"][0], expected["loss"][0, 0]
    size = np.hypot(*source)
    assert abs(float(out.info.p_slack_mw) * 1e3 - source[0]) <= tolerance("opendss_source", F32) * size
    assert abs(float(out.info.q_slack_mvar) * 1e3 - source[1]) <= tolerance("opendss_source", F32) * size
    np.testing.assert_allclose(float(out.info.p_loss_mw) * 1e3, loss, rtol=tolerance("opendss_loss", F32))
    v = np.hypot(expected["v_re"][0], expected["v_im"][0])
    names = [f"{bus}.{phase}" for phase in (1, 2, 3) for bus in dict.fromkeys(map(str, case.node.bus))]
    seen = dict(zip(names, np.asarray(flow.v_pu), strict=True))
    nodes = case.node_names  # the order of the recorded voltages
    np.testing.assert_allclose([seen[n] for n in nodes], v, atol=tolerance("opendss_v_pu", F32))
    assert [seen[n] for n in set(names) - set(nodes)] == [1.0] * (len(names) - len(nodes))
    # 3,567.05 kW with 112.40 kW of losses and 0.9608 .. 1.056 pu as printed with OpenDSS's example
    assert float(out.info.v_min_pu) == pytest.approx(0.9608, abs=1e-3)
    assert float(out.info.v_max_pu) == pytest.approx(1.056, abs=1e-3)


@pytest.mark.full
def test_unbalance_and_band_are_those_of_opendss_voltages(sim, idle):
    flow, out, _ = idle
    expected = read_npz(DATA / "ieee13" / "expected.npz")
    case, turn = load_feeder("ieee13"), np.exp(2j * np.pi / 3)
    v = dict(zip(case.node_names, expected["v_re"][0] + 1j * expected["v_im"][0], strict=True))
    factor = []
    for bus in case.three_phase_nodes[0]:
        a, b, c = (v[f"{bus}.{phase}"] for phase in (1, 2, 3))
        factor.append(100 * abs(a + turn**2 * b + turn * c) / abs(a + turn * b + turn**2 * c))
    np.testing.assert_allclose(flow.vuf_percent, factor, atol=2e-3)
    cost = dict(zip(sim.spec.cost_names, np.asarray(out.cost), strict=True))
    assert cost["vuf_violation"] == pytest.approx(np.maximum(np.array(factor) - 1, 0).sum(), abs=2e-2)
    assert float(out.info.vuf_percent) == pytest.approx(max(factor), abs=2e-3) and max(factor) > 1
    size = np.abs(list(v.values()))
    outside = np.maximum(0.9 - size, 0).sum() + np.maximum(size - 1.04, 0).sum()
    assert outside > 0.02 and cost["voltage_violation"] == pytest.approx(outside, abs=1e-4)


@pytest.mark.full
def test_the_observation_shows_the_voltages_phase_after_phase(idle):
    flow, _, obs = idle
    np.testing.assert_allclose(np.asarray(obs)[0, :48], (np.asarray(flow.v_pu) - 1) * 10, atol=1e-4)


def with_devices(case):
    """The case with the devices as loads of constant power: negative ones feed in."""
    position, kv = case.position, case.node.base_kv
    rows = [(position(f"671.{k}"), -1, -1e3 * BATTERIES_MW[0] / 3) for k in (1, 2, 3)]
    rows += [(position("692.1"), position("692.2"), -1e3 * BATTERIES_MW[1]), (position("675.3"), -1, -1e3 * PLANT_MW)]
    node, end, p_kw = (np.array(column) for column in zip(*rows, strict=True))
    rated = kv[node] * np.where(end < 0, 1.0, np.sqrt(3))
    zero = np.zeros(len(rows))
    more = dict(name=np.array(["device"] * len(rows)), node=node, end=end, p_kw=p_kw, q_kvar=zero, kv=rated)
    more |= dict.fromkeys(("z_p", "i_p", "z_q", "i_q"), zero)
    more |= dict(v_min_pu=zero + 0.5, v_max_pu=zero + 1.5, v_low_pu=zero + 0.5)
    load = {f.name: np.concatenate([getattr(case.load, f.name), more[f.name]]) for f in dataclasses.fields(case.load)}
    return dataclasses.replace(case, load=type(case.load)(**load))


@pytest.mark.full
def test_devices_on_one_two_and_three_phases_are_negative_loads(sim):
    noon = dataclasses.replace(sim.params.starts, load_row=sim.params.starts.load_row + 24)
    rows, plants = sim.params.bank.load_rows, sim.env.columns.run("plant_cf")
    day = int(noon.load_row[0])
    bank = dataclasses.replace(sim.params.bank, load_rows=rows.at[day, plants].set(PLANT_MW / 0.4))
    ratio = 1 / rows[day, sim.env.columns.at("load_factor")]
    params = dataclasses.replace(sim.params, starts=noon, bank=bank, load_ratio=ratio)
    noon_sim = sim.replace(params=params)
    state, obs = begun(noon_sim)
    action = jnp.asarray([[BATTERIES_MW[0] / 0.3, BATTERIES_MW[1] / 0.1, 1.0]], obs.dtype)
    flow, out = solved(noon_sim, state, action)
    assert isinstance(flow, PhaseFlow)
    np.testing.assert_allclose(out.info.p_mw, [*BATTERIES_MW, PLANT_MW], rtol=1e-6)
    case = with_devices(load_feeder("ieee13"))
    load = nominal_phase_load(case)
    factors = prepare_threephase(case, movable_taps=False)
    alone = solve_threephase(factors, jnp.asarray(load.real, obs.dtype), jnp.asarray(load.imag, obs.dtype))
    places = np.asarray(params.grid.node)
    there = places < case.n_node
    np.testing.assert_allclose(np.asarray(flow.v_pu)[there], np.asarray(alone.v_pu)[places[there]], atol=5e-6)
    assert float(out.info.p_slack_mw) == pytest.approx(float(jnp.sum(alone.p_source)) * case.base_mva, abs=1e-4)
    # what a device sees: the mean of the phases that it stands on
    size = {name: float(v) for name, v in zip(case.node_names, alone.v_pu, strict=True)}
    seen = [[size[f"671.{k}"] for k in (1, 2, 3)], [size["692.1"], size["692.2"]], [size["675.3"]]]
    np.testing.assert_allclose(out.info.local_v_pu, [np.mean(v) for v in seen], atol=5e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    ("device", "words"),
    [
        (("storage", "671", {"phases": "abd"}), "phases"),
        (("storage", "671", {"phases": "a-b-c"}), "between two phases"),
        (("storage", "671", {"phases": (0.5, 0.6, 0.0)}), "sum to 1"),
        (("storage", "611", {"phases": "a"}), "611.1"),
        (("storag", "671", {}), "storage"),
    ],
)
def test_a_device_that_cannot_stand_there_is_refused_by_name(device, words):
    with pytest.raises(ValueError, match=words):
        powerzoo_jax.make(TASK, devices=(device,))
