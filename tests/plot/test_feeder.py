"""Three-phase feeders on their maps: the coordinates of the source, and the voltages they were given."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from powerzoo_jax.cases import load_feeder
from powerzoo_jax.cases.threephase.case import PlaceTable
from powerzoo_jax.plot import locate_feeder, plot_feeder


@pytest.fixture(scope="module")
def feeder():
    return load_feeder("case13")


def placed(feeder, places):
    names = list(places)
    x, y = np.array(list(places.values()), float).T
    return dataclasses.replace(feeder, place=PlaceTable(bus=np.array(names), x=x, y=y))


def test_known_coordinates_are_those_of_the_picture(feeder):
    names, _ = locate_feeder(feeder)
    places = {name: (100.0 + 3 * k, 50.0 - k * k) for k, name in enumerate(names)}
    on_map = placed(feeder, places)
    assert np.array_equal(locate_feeder(on_map)[1], np.array(list(places.values())))
    axes = plot_feeder(on_map).axes[0]
    drawn = next(c for c in axes.collections if c.get_gid() == "buses")
    assert np.allclose(drawn.get_offsets(), list(places.values()))
    assert axes.get_aspect() == 1.0


def test_a_bus_without_coordinates_stands_between_its_neighbours(feeder):
    names, _ = locate_feeder(feeder)
    # neighbours of 671 in the IEEE 13-bus feeder; 670 is the load that is spread over the line from 632
    places = {name: (float(k), float(k * k)) for k, name in enumerate(names) if name != "671"}
    found = dict(zip(names, locate_feeder(placed(feeder, places))[1].tolist(), strict=True))
    assert found["671"] == pytest.approx(np.mean([places[bus] for bus in ("670", "680", "684", "692")], axis=0))


def test_without_coordinates_a_feeder_is_a_tree(feeder):
    names, xy = locate_feeder(feeder)
    assert len(np.unique(xy, axis=0)) == len(names) and np.isfinite(xy).all()
    assert xy[names.index("680"), 0] - xy[names.index("671"), 0] == 1


def test_a_bus_takes_the_voltage_of_its_worst_phase(feeder):
    v_pu = np.ones(feeder.n_node)
    v_pu[feeder.position("675.2")], v_pu[feeder.position("675.3")] = 0.93, 1.05
    names, _ = locate_feeder(feeder)
    axes = plot_feeder(feeder, v_pu=v_pu).axes[0]
    shown = next(c for c in axes.collections if c.get_gid() == "buses").get_array()
    assert np.allclose(shown, np.where(np.array(names) == "675", 0.93, 1.0))
    with pytest.raises(ValueError, match=r"v_pu: expected \(\d+,\), one value a node of case13, got \(3,\)"):
        plot_feeder(feeder, v_pu=np.ones(3))
