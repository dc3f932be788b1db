"""Unit-commitment data by class of technology."""

from __future__ import annotations

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import commitment_table, load_case
from powerzoo_jax.cases.commitment import TECHNOLOGIES, classify, from_technologies

# the definition of the classes: shares of p_max, hours, USD per MW and per MW and hour
CLASSES = {"base": (0.4, 8, 8, 0.3, 60, 4), "mid": (0.3, 4, 4, 0.5, 40, 3), "peak": (0.2, 1, 1, 1.0, 20, 2)}


def test_every_unit_has_the_data_of_its_class():
    case = load_case("pz_case118")
    table, unit = commitment_table(case), case.unit
    for g in range(54):
        intercept, size = unit.cost[g, 1], unit.p_max_mw[g]
        name = "peak" if intercept == 40 else "base" if size >= 300 else "mid"
        low, up, down, ramp, start, no_load = CLASSES[name]
        assert TECHNOLOGIES[table.technology[g]].name == name
        assert (table.min_up_hours[g], table.min_down_hours[g]) == (up, down)
        found = [table.p_min_mw[g], table.ramp_mw_per_hour[g], table.startup_usd[g], table.no_load_usd_per_hour[g]]
        assert found == pytest.approx([low * size, ramp * size, start * size, no_load * size], rel=1e-15)
    np.testing.assert_array_equal(table.p_max_mw, unit.p_max_mw)


def test_the_classes_of_case118_are_those_of_its_base_case():
    """The 19 units that MATPOWER's base case lets produce are the cheap ones; ten of them have 300 MW or more."""
    case = load_case("case118")
    technology = commitment_table(case).technology
    assert np.bincount(technology).tolist() == [10, 9, 35]
    np.testing.assert_array_equal(technology < 2, case.unit.p_mw > 0)


def test_the_least_output_of_all_units_fits_below_the_nominal_load():
    case = load_case("pz_case118")
    table = commitment_table(case)
    assert table.p_min_mw.sum() < case.load.p_mw.sum() < 1.8 * case.load.p_mw.sum() < table.p_max_mw.sum()
    assert np.all(table.p_min_mw <= table.p_max_mw) and not table.p_min_mw.flags.writeable


def test_cases_without_the_data_are_refused():
    with pytest.raises(CaseError, match=r"case30 has no unit-commitment data.*case118"):
        commitment_table(load_case("case30"))
    with pytest.raises(CaseError, match=r"from_technologies"):
        classify(load_case("case9"))


def test_a_table_of_ones_own_units():
    table = from_technologies(np.array([2, 0]), np.array([50.0, 400.0]))
    assert table.p_min_mw.tolist() == [10.0, 160.0] and table.startup_usd.tolist() == [1000.0, 24000.0]
