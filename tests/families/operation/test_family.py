"""Traces, figures and idle and random play of worlds of Grid2Op, on five buses."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax import from_grid2op
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs import trace_episode
from powerzoo_jax.families.operation.grid2op.example import LINES, UNITS, write_world
from powerzoo_jax.oracle import idle_act, random_act
from powerzoo_jax.plot.page import page_data
from powerzoo_jax.tasks.score import all_starts, evaluate

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def sim(tmp_path_factory):
    return from_grid2op(write_world(tmp_path_factory.mktemp("five")), actions="discrete")


def test_a_trace_shows_where_lines_stand_and_what_flows(sim):
    acts = {"random": random_act(sim), "idle": idle_act(sim)}
    traces = [trace_episode(sim, act, jax.random.key(0), take(all_starts(sim), 0), policy=n) for n, act in acts.items()]
    for trace in traces:
        ends = [trace[f"branch_{end}_busbar"].values for end in ("from", "to")]
        open_ = (ends[0] == 0) | (ends[1] == 0)
        assert np.isin(ends, (0, 1, 2)).all() and ((ends[0] == 0) == (ends[1] == 0)).all()
        assert (trace["branch_flow_mw"].values[open_] == 0).all()
        second = trace["bus_second_voltage_pu"].values
        network = trace.networks[""]
        for k in range(len(LINES)):
            for end, bus in zip(ends, (network.from_bus, network.to_bus), strict=True):
                assert np.isfinite(second[end[:, k] == 2, bus[k]]).all()
        assert network.device_ids == UNITS and network.bus_ids == ("0", "1", "2", "3", "4")
    assert np.isfinite(traces[0]["bus_second_voltage_pu"].values).any()  # some substation was split
    volts = traces[1]["bus_voltage_pu"].values
    assert ((volts > 0.9) & (volts < 1.1) | np.isnan(volts)).all()
    assert page_data(traces)["networks"][0]["quantity"] == "voltage"


def test_an_evaluation_tells_survival_and_what_was_not_served(sim):
    record = evaluate(sim, idle_act(sim))
    assert 0 < record.metrics["survival"] <= 1
    lost = np.array(record.episode_costs_by_constraint["unserved_energy"]) > 0
    survived = np.array(record.episode_metrics["survival"])
    assert ((survived < 1) == lost).all()


def test_worlds_are_not_stacked(sim):
    with pytest.raises(ValueError, match="draws among all its episodes"):
        powerzoo_jax.stack([sim, sim])
