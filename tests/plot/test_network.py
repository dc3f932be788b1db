"""One-line diagrams and profiles show the numbers they were given, where the network has them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from powerzoo_jax.cases import load_case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.plot import (
    branch_loading,
    locate_buses,
    over_rating,
    plot_branch_loading,
    plot_network,
    plot_voltage_profile,
)
from powerzoo_jax.plot.layout import spring_layout


@pytest.fixture(scope="module")
def feeder():
    return load_case("case33bw")


@pytest.fixture(scope="module")
def meshed():
    return load_case("pz_case14")


def drawn(axes, gid):
    return next(c for c in axes.collections if c.get_gid() == gid)


def test_a_feeder_is_a_tree_whose_trunk_is_straight(feeder):
    xy = locate_buses(feeder)
    assert len(np.unique(xy, axis=0)) == feeder.n_bus
    trunk = feeder.positions(np.arange(1, 19))  # 1 to 18 in the drawing of Baran and Wu 1989
    assert np.ptp(xy[trunk, 1]) == 0 and xy[trunk, 0].tolist() == list(range(18))
    f, t = branch_positions(feeder)
    on = feeder.branch.in_service
    assert np.all(np.abs(xy[f[on], 0] - xy[t[on], 0]) == 1)


def test_a_chain_is_a_straight_line_of_equal_steps():
    xy = spring_layout(7, np.arange(6), np.arange(1, 7))
    assert np.allclose(np.diff(xy, axis=0), np.diff(xy, axis=0)[0], atol=1e-2)
    assert np.linalg.norm(xy[1] - xy[0]) == pytest.approx(1, abs=1e-2)


def test_a_ring_is_a_regular_polygon():
    xy = spring_layout(8, np.arange(8), np.roll(np.arange(8), -1))
    radius = np.linalg.norm(xy - xy.mean(axis=0), axis=1)
    side = np.linalg.norm(xy - np.roll(xy, -1, axis=0), axis=1)
    assert np.ptp(radius) < 0.02 * radius.mean() and np.ptp(side) < 0.02 * side.mean()


def test_parts_without_a_connection_stand_apart():
    xy = spring_layout(6, np.array([0, 1, 3, 4]), np.array([1, 2, 4, 5]))
    assert np.isfinite(xy).all()
    assert np.linalg.norm(xy[:3, None] - xy[None, 3:], axis=2).min() > 1


def test_a_diagram_holds_voltages_loadings_and_prices(meshed):
    v_pu = np.linspace(0.92, 1.07, meshed.n_bus)
    loading = np.linspace(0.1, 1.2, meshed.n_branch)
    loading[3] = np.nan
    lmp = np.linspace(20, 60, meshed.n_bus)
    figure = plot_network(meshed, v_pu=v_pu, loading=loading, lmp=lmp)
    volts, prices = figure.axes[:2]
    assert np.allclose(drawn(volts, "buses").get_array(), v_pu)
    assert np.allclose(drawn(prices, "buses").get_array(), lmp)
    for axes in (volts, prices):
        assert np.allclose(drawn(axes, "loading").get_array(), 100 * np.delete(loading, 3))
    labels = {axes.get_xlabel() + axes.get_ylabel() for axes in figure.axes[2:]}
    assert labels == {"voltage [pu]", "price of energy at the bus [$/MWh]", "branch loading, share of rating [%]"}


def test_the_title_stands_above_the_number_of_the_topmost_bus(feeder):
    figure = plot_network(feeder, v_pu=np.ones(feeder.n_bus))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    numbers = [text.get_window_extent().y1 for text in axes.texts]
    assert len(numbers) == feeder.n_bus and max(numbers) < axes.title.get_window_extent().y0


def test_voltages_outside_the_band_have_a_thick_rim(meshed):
    v_pu = np.ones(meshed.n_bus)
    v_pu[4] = 0.8
    rims = drawn(plot_network(meshed, v_pu=v_pu).axes[0], "buses").get_linewidths()
    assert np.flatnonzero(np.asarray(rims) > 1).tolist() == [4]


def test_open_branches_are_dotted(feeder):
    axes = plot_network(feeder).axes[0]
    dotted = [c for c in axes.collections if isinstance(c, LineCollection) and c.get_linestyle()[0][1] is not None]
    assert sum(len(c.get_segments()) for c in dotted) == 5  # the tie switches


def test_known_coordinates_are_used(meshed):
    xy = np.random.default_rng(0).normal(size=(meshed.n_bus, 2))
    assert np.allclose(drawn(plot_network(meshed, xy=xy).axes[0], "buses").get_offsets(), xy)


def test_another_number_of_buses_is_refused(meshed):
    with pytest.raises(ValueError, match=r"v_pu: expected \(14,\), one value a bus, got \(3, 14\). Pick one scenario"):
        plot_network(meshed, v_pu=np.ones((3, 14)))
    with pytest.raises(ValueError, match=r"xy: expected \(14, 2\)"):
        plot_network(meshed, xy=np.ones((2, 14)))


def test_the_loading_is_the_larger_end_over_the_rating(meshed):
    flow = np.zeros(meshed.n_branch)
    flow[0], flow[1] = 0.3, 0.6
    result = SimpleNamespace(p_from=flow, q_from=4 / 3 * flow, p_to=-2 * flow, q_to=0 * flow)
    loading = branch_loading(meshed, result)
    assert loading[:3] == pytest.approx([60 / meshed.branch.rate_a_mva[0], 120 / meshed.branch.rate_a_mva[1], 0])
    assert np.isnan(over_rating(load_case("case14"), np.ones(20))).all()  # IEEE's tables have no ratings


def test_a_profile_joins_what_a_branch_joins(feeder):
    v_pu = np.linspace(1, 0.9, feeder.n_bus)
    line = plot_voltage_profile(feeder, v_pu).axes[0].lines[0]
    x, y = (part.reshape(-1, 3) for part in (line.get_xdata(), line.get_ydata()))
    f, t = branch_positions(feeder)
    on = feeder.branch.in_service
    pairs = {tuple(sorted(map(float, pair))) for pair in y[:, :2]}
    assert pairs == {tuple(sorted((float(v_pu[a]), float(v_pu[b])))) for a, b in zip(f[on], t[on], strict=True)}
    assert np.all(np.diff(x[:, :2], axis=1) == 1)


def test_a_batch_shows_its_median_and_its_range(feeder):
    batch = np.linspace(0.9, 1.0, 21)[:, None] * np.ones(feeder.n_bus)
    axes = plot_voltage_profile(feeder, {"many": batch}).axes[0]
    assert np.nanmax(axes.lines[0].get_ydata()) == pytest.approx(0.95)
    assert axes.collections[0].get_segments()[0][:, 1] == pytest.approx([0.905, 0.995])
    assert "[pu]" in axes.get_ylabel()


def test_bars_show_the_most_loaded_branches_and_hatch_overloads(meshed):
    loading = np.linspace(0, 1.05, meshed.n_branch)
    loading[0] = np.nan
    axes = plot_branch_loading(meshed, loading, most=5).axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(100 * loading[:-6:-1])
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [True, False, False, False, False]
    assert axes.get_yticklabels()[0].get_text().startswith(f"{meshed.n_branch}: ") and "[%]" in axes.get_xlabel()


def test_a_case_without_ratings_says_what_to_load():
    with pytest.raises(ValueError, match=r"no rated branch in service.*pz_"):
        plot_branch_loading(load_case("case14"), np.full(20, np.nan))
