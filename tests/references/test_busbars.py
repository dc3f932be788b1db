"""The reference of split substations itself: golden values, the merged network, and laws."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from powerzoo_jax.cases.library import load_case
from tests.references.busbars import (
    Substations,
    base_topology,
    build_split,
    build_substations,
    continue_split,
    draw_topologies,
    mirror_image,
    moved,
    node_sums,
    solve_split,
)
from tests.references.meshed import base_state, branch_flows

pytestmark = pytest.mark.reference

# bus id -> rows of the branches that move and whether the load moves; open rows; counted from 1
SPLIT_5 = {5: ((2, 10), True)}
SPLIT_4 = {4: ((6, 9), False)}
SPLIT_49 = {49: ((65, 66, 67, 68), True)}
SPLIT_77 = {77: ((121, 123), True)}

# case, splits, open; loss and slack [MW], P_f of branch 1 [MW], |V| of busbars 2 and 1 [pu]
GOLDEN = [
    ("14", SPLIT_5, (), {"loss": 14.0795, "slack": 233.0795, "first": 172.4119}, {5: (1.006755, 1.026069)}),
    ("14", SPLIT_4, (), {"loss": 13.7294, "first": 162.2783}, {4: (1.013426, 1.019485)}),
    ("14", SPLIT_4, (17,), {"loss": 14.1207}, {4: (1.015754, 1.020464)}),
    ("118", SPLIT_49, (), {"loss": 172.2882, "slack": 553.2882}, {49: (0.936055, 1.025)}),
    (
        "118",
        SPLIT_49 | SPLIT_77,
        (106,),
        {"loss": 172.2868},
        {49: (0.935687, 1.025), 77: (1.005776, None)},
    ),
]


@functools.cache
def substations(name: str) -> Substations:
    return build_substations(load_case(name))


@pytest.mark.parametrize(("name", "splits", "opened", "power", "voltage"), GOLDEN)
def test_split_substations_have_their_golden_values(
    name: str, splits: dict, opened: tuple, power: dict, voltage: dict
) -> None:
    sub = substations(name)
    found = solve_split(sub, moved(sub, splits, opened))
    assert found.converged
    flows, base = found.flows, sub.case.base_mva
    shown = {"loss": flows.loss.real, "slack": flows.slack.real, "first": flows.s_from[0].real}
    for key, value in power.items():
        assert shown[key] * base == pytest.approx(value, abs=5.1e-5)
    for bus, (second, first) in voltage.items():
        at = int(np.flatnonzero(sub.case.bus.id == bus)[0])
        assert abs(found.v[at + sub.case.n_bus]) == pytest.approx(second, abs=5.1e-7)
        assert first is None or abs(found.v[at]) == pytest.approx(first, abs=5.1e-7)


def test_two_splits_of_case14_have_no_solution() -> None:
    sub = substations("14")
    topology = moved(sub, SPLIT_4 | {6: ((12, 13), True)})
    assert build_split(sub, topology).connected
    assert not solve_split(sub, topology).converged
    assert continue_split(sub, topology, sub.s) is None


@pytest.mark.parametrize("name", ["14", "118"])
def test_the_base_topology_is_the_merged_network(name: str) -> None:
    sub = substations(name)
    n = sub.case.n_bus
    for topology in (base_topology(sub), mirror_image(sub, base_topology(sub))):
        found = solve_split(sub, topology)
        assert np.abs(found.v[:n] + found.v[n:] - sub.v).max() < 1e-10
    expected = branch_flows(sub.net, sub.v[None])
    assert np.abs(found.flows.s_from - expected.s_from[0]).max() < 1e-9
    assert np.abs(node_sums(sub, topology, sub.s)[n:] - base_state(sub.case).s[0]).max() < 1e-12


@pytest.mark.parametrize("name", ["14", "118"])
def test_drawn_topologies_obey_the_laws_of_currents_and_of_mirror_images(name: str) -> None:
    sub = substations(name)
    n, m = sub.case.n_bus, sub.case.n_branch
    drawn = draw_topologies(sub, 12, splits=3, opened=3, least=1, seed=7)
    solved = 0
    for topology, s in zip(*drawn, strict=True):
        found = solve_split(sub, topology, s)
        if not found.converged:
            continue
        solved += 1
        # power by hand: what elements bring to a node leaves through its branch ends and its shunt
        node = sub.bus + n * (topology == 2)
        left = node_sums(sub, topology, s)
        np.subtract.at(left, node[:m], found.flows.s_from)
        np.subtract.at(left, node[m : 2 * m], found.flows.s_to)
        net = build_split(sub, topology).net
        left -= np.abs(found.v) ** 2 * np.conj(net.shunt)
        assert np.abs(left.real[net.angle]).max() < 1e-9
        assert np.abs(left.imag[net.mag]).max() < 1e-9
        image = solve_split(sub, mirror_image(sub, topology), s)
        assert np.abs(image.v - np.roll(found.v, n)).max() < 1e-9
        upper = continue_split(sub, topology, s)
        assert upper is not None
        assert np.abs(upper.v - found.v).max() < 1e-8
    assert solved >= 10
