"""What `prepare_feeder` refuses, and that the message names the thing; prose of results; limits."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, SolverError
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import EXPLAIN, Status, explain, nominal_injection, prepare_feeder, solve_feeder
from powerzoo_jax.powerflow.result import loading_excess, range_excess


def changed(table: str, **columns: tuple[int, Any]) -> Case:
    """case33bw with one entry of each named column replaced."""
    case = load_case("33bw")
    rows = getattr(case, table)
    new = {}
    for name, (row, value) in columns.items():
        new[name] = np.array(getattr(rows, name))
        new[name][row] = value
    return dataclasses.replace(case, **{table: dataclasses.replace(rows, **new)})


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (changed("bus", kind=(4, 2)), ["bus 5", "PV"]),
        (changed("bus", kind=(4, 3)), ["1, 5", "reference"]),
    ],
    ids=["pv", "two slacks"],
)
def test_a_feeder_that_cannot_be_represented_is_refused_by_name(case: Case, words: list[str]) -> None:
    with pytest.raises((SolverError, CaseError)) as error:
        prepare_feeder(case)
    assert all(word in str(error.value) for word in words)


def test_an_unknown_active_bus_is_named() -> None:
    with pytest.raises(SolverError, match="no bus 77"):
        prepare_feeder(load_case("33bw"), active_bus_ids=[2, 77])


def test_a_base_load_beyond_collapse_is_refused() -> None:
    with pytest.raises(SolverError, match="load_factor"):
        prepare_feeder(load_case("33bw"), load_factor=6.0)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_a_dtype_that_is_not_supported_is_named(dtype: str) -> None:
    with pytest.raises(ValueError, match=dtype):
        prepare_feeder(load_case("33bw"), dtype=dtype)


def test_float64_without_x64_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="enable_x64"):
        prepare_feeder(load_case("33bw"), dtype="float64")


@pytest.mark.full
def test_every_status_has_prose_and_a_result_tells_its_own() -> None:
    assert set(EXPLAIN) == set(Status)
    case = load_case("33bw")
    s = nominal_injection(case)
    p, q = jnp.asarray(s.real, jnp.float32), jnp.asarray(s.imag, jnp.float32)
    result = solve_feeder(prepare_feeder(case), p, q)
    assert explain(result).startswith("CONVERGED: residual ")
    bad = dataclasses.replace(result, status=jnp.asarray([0, 3, 3], jnp.int32))
    assert "BAD_INPUT in 2 of 3 lanes" in explain(bad)
    assert "CONVERGED in 1 of 3 lanes" in explain(bad)


def test_nominal_injection_is_minus_the_load_away_from_the_slack() -> None:
    case = load_case("33bw")
    s = nominal_injection(case)
    assert s[0] == 0
    assert s.sum() * case.base_mva == pytest.approx(-3.715 - 2.3j)


def test_limits_are_distances_outside_and_never_negative() -> None:
    v = jnp.asarray([0.9, 1.0, 1.1], jnp.float32)
    excess = range_excess(v, jnp.full_like(v, 0.95), jnp.full_like(v, 1.05))
    np.testing.assert_allclose(excess, [0.05, 0.0, 0.05], atol=1e-7)
    s, rate = jnp.asarray([2.0, 0.5, 9.0], jnp.float32), jnp.asarray([1.5, 1.0, 0.0], jnp.float32)
    np.testing.assert_array_equal(loading_excess(s, rate), np.array([0.5, 0.0, 0.0], np.float32))


def test_float32_is_the_default_and_every_leaf_has_it() -> None:
    leaves = jax.tree.leaves(prepare_feeder(load_case("33bw")))
    assert {x.dtype.name for x in leaves} == {"float32", "int32", "bool"}
    assert not any(x.weak_type for x in leaves)
