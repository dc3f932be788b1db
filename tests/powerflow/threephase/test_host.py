"""The sparse power flow on the host: OpenDSS's voltages, the batched solver's, and errors that name the node."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import load_feeder, read_opendss
from powerzoo_jax.powerflow.threephase import network
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host
from tests.recorders.record_opendss import DATA
from tests.recorders.record_opendss_elements import recorded
from tests.references.opendss_feeders import feeders
from tests.tolerances import tolerance

SEVERAL = (
    "base",
    "delta on both sides",
    "line of four conductors",
    "xfmrcode.kv",
    "line.geometry",
    "current load below its range",
)


@pytest.mark.parametrize("name", SEVERAL)
def test_node_voltages_are_those_of_opendss(name):
    text = feeders()[name]
    case, expected = read_opendss("feeder.dss", read=lambda _: text), recorded()[name]
    volts = dict(zip(case.node_names, solve_threephase_on_host(case) * 1e3 * case.node.base_kv, strict=True))
    base = dict(zip(case.node_names, 1e3 * case.node.base_kv, strict=True))
    assert max(abs(volts[node] - v) / base[node] for node, v in expected.items()) <= tolerance(
        "opendss_element_v_pu", "float64"
    )


def test_the_shipped_feeder_of_123_buses_is_that_of_opendss():
    case = load_feeder(123)
    expected = read_npz(DATA / "ieee123" / "expected.npz")
    volts = dict(zip(case.node_names, solve_threephase_on_host(case), strict=True))
    assert volts.keys() == set(case.node_names)
    row = expected["v_re"][0] + 1j * expected["v_im"][0]
    assert np.abs(np.array(list(volts.values())) - row).max() <= tolerance("opendss_v_pu", "float64")


def test_large_systems_are_factored_sparsely_with_the_same_answer(monkeypatch):
    case = load_feeder(13)
    ports = list(zip(case.load.node.tolist(), case.load.end.tolist(), strict=True))
    moving = case.regulator.unit[case.regulator.unit >= 0]
    dense = network.build_network(case, ports, moving)
    monkeypatch.setattr(network, "DENSE", 0)
    sparse = network.build_network(case, ports, moving)
    for column in dataclasses.fields(network.Network):
        one, other = getattr(dense, column.name), getattr(sparse, column.name)
        for a, b in zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_a_load_beyond_collapse_is_refused_by_node():
    case = load_feeder(13)
    wide = np.ones(len(case.load))
    load = dataclasses.replace(case.load, v_min_pu=0.01 * wide, v_max_pu=9.0 * wide, v_low_pu=0.0 * wide)
    with pytest.raises(SolverError, match=r"do not settle within 50 steps, most of all at \S+\.\d"):
        solve_threephase_on_host(dataclasses.replace(case, load=load), load_factor=40.0, max_steps=50)
