"""Linear programs of the oracles: solved by hand where numbers are asserted, and laws of duality elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.oracle.linear_program import ProgramWriter, RowBlock, dual_bound, reduced_costs, solve


def dispatch(load_mw: float, whole: bool = False):
    """Two units of 50 and 80 MW at 20 and 30 $/MWh, the second with at least 10 MW, and shedding at 1,000 $/MWh."""
    writer = ProgramWriter()
    p = writer.columns(2, [20.0, 30.0], [0.0, 10.0], [50.0, 80.0], whole=whole)
    shed = writer.columns(1, 1000.0, 0.0, load_mw)
    writer.rows(1, load_mw, load_mw, (p[:, None], 1.0), (shed, 1.0))
    return writer, p


@pytest.mark.parametrize(
    ("load", "cost", "price", "output"),
    [(30.0, 20 * 20 + 10 * 30, 20.0, (20, 10)), (100.0, 50 * 20 + 50 * 30, 30.0, (50, 50))],
)
def test_two_units_share_a_load_by_merit_order_and_the_multiplier_is_the_price(load, cost, price, output):
    writer, p = dispatch(load)
    found = solve(writer.program())
    np.testing.assert_allclose(found.x[p], output)
    assert found.objective == pytest.approx(cost) and found.dual == pytest.approx([price])
    assert dual_bound(writer.program(), found.dual) == pytest.approx(cost) == found.bound


@pytest.mark.parametrize("method", ["highs", "highs-ds", "highs-ipm"])
def test_multipliers_are_positive_where_a_lower_limit_binds_and_negative_where_an_upper_one_does(method):
    writer, p = dispatch(100.0)
    writer.rows(2, [-np.inf, 5.0], [40.0, 70.0], (p, 1.0))  # first unit at most 40 MW: 10 $/MWh dearer to replace
    writer.rows(1, 65.0, np.inf, (p[1:], 1.0))  # second at least 65 MW: 10 $/MWh more than the first
    found = solve(writer.program(), method=method)
    np.testing.assert_allclose(found.x[p], [35, 65], atol=1e-6)
    np.testing.assert_allclose(found.dual, [20, 0, 0, 10], atol=1e-6)
    other, p = dispatch(100.0)
    other.rows(2, [-np.inf, 5.0], [40.0, 70.0], (p, 1.0))
    np.testing.assert_allclose(solve(other.program(), method=method).dual, [30, -10, 0], atol=1e-6)


def random_program(seed: int, whole: bool = False):
    """Rows of all four kinds around a point that keeps them."""
    rng = np.random.default_rng(seed)
    inside, matrix = rng.integers(0, 4, 6).astype(float), rng.normal(size=(4, 6))
    at, writer = matrix @ inside, ProgramWriter()
    x = writer.columns(6, rng.normal(size=6), 0.0, 3.0, whole=whole)
    spare = rng.uniform(0.1, 1, 4)
    low, high = np.where([1, 1, 1, 0], at - spare, -np.inf), np.where([1, 1, 0, 1], at + spare, np.inf)
    low[0] = high[0] = at[0] if not whole else low[0]
    if whole:
        high[0] = at[0] + spare[0]
    rows = writer.rows(4, low, high)
    writer.put(rows[:, None], x, matrix)
    return writer.program()


@pytest.mark.parametrize("seed", range(5))
def test_any_multipliers_bound_a_linear_program_from_below_and_those_of_the_solver_touch_it(seed):
    program = random_program(seed)
    found, rng = solve(program), np.random.default_rng(seed)
    assert dual_bound(program, found.dual) == pytest.approx(found.objective, abs=1e-9)
    assert program.cost @ found.x == pytest.approx(found.objective, abs=1e-9)
    for scale in (1e-3, 1.0, 100.0):
        assert dual_bound(program, found.dual + scale * rng.normal(size=4)) <= found.objective + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_whole_columns_are_solved_as_by_trying_all_and_the_relaxation_bounds_them(seed):
    program = random_program(seed, whole=True)
    points = np.array(list(itertools.product(range(4), repeat=6)), float)
    rows = points @ program.matrix.T.toarray()
    kept = ((rows >= program.row_low) & (rows <= program.row_high)).all(1)
    best = (points[kept] @ program.cost).min()
    found, relaxed = solve(program), solve(program.relaxed())
    assert found.objective == pytest.approx(best, abs=1e-6) and found.bound <= best + 1e-6
    assert np.isnan(found.dual).all()
    assert dual_bound(program, relaxed.dual) <= best + 1e-9


def test_multipliers_of_open_sides_count_as_zero_and_a_worthwhile_unbounded_column_leaves_no_bound():
    writer = ProgramWriter()
    x = writer.columns(2, [1.0, 2.0], 0.0, [np.inf, 1.0])
    writer.rows(2, [1.0, -np.inf], [np.inf, 5.0], (x, 1.0))
    program = writer.program()
    reduced, of_rows = reduced_costs(program, np.array([-3.0, 4.0]))
    np.testing.assert_array_equal(reduced, program.cost)
    assert of_rows == 0.0
    assert dual_bound(program, np.array([0.5, 0.0])) == 0.5
    assert dual_bound(program, np.array([1.0, 0.0])) == 1.0  # reduced cost 0 of a column without bound
    assert dual_bound(program, np.array([2.0, 0.0])) == -np.inf


def test_what_meets_in_a_row_and_column_is_summed_and_leading_axes_of_a_term_are_summed_too():
    block = RowBlock()
    rows = block.rows((2, 2), 0.0, [1.0, 2.0], (np.array([[0, 1], [2, 3]]), [1.0, 10.0]))
    block.put(rows[0, 0], np.array([0, 0, 3]), [2.0, 3.0, 0.0])
    last = block.rows(2, -1.0, 1.0, (np.arange(4).reshape(2, 2), 1.0))
    expected = np.array([[6, 0, 0, 0], [0, 10, 0, 0], [0, 0, 1, 0], [0, 0, 0, 10], [1, 0, 1, 0], [0, 1, 0, 1]], float)
    matrix = block.matrix(4)
    np.testing.assert_array_equal(matrix.toarray(), expected)
    assert matrix.nnz == np.count_nonzero(expected) and last.tolist() == [4, 5]
    np.testing.assert_array_equal(block.limits(), [[0, 0, 0, 0, -1, -1], [1, 2, 1, 2, 1, 1]])


def test_rows_of_further_blocks_stand_below_those_of_the_writer():
    writer, p = dispatch(100.0)
    more = RowBlock()
    more.rows(1, -np.inf, 20.0, (p[:1], 1.0))
    program = writer.program(more)
    np.testing.assert_array_equal(program.matrix.toarray(), [[1, 1, 1], [1, 0, 0]])
    assert solve(program).objective == pytest.approx(20 * 20 + 80 * 30)
    assert solve(writer.program()).objective == pytest.approx(50 * 20 + 50 * 30)


def test_a_box_without_room_is_named():
    writer = ProgramWriter()
    writer.columns(2, 0.0, [0.0, 2.0], 1.0)
    with pytest.raises(SolverError, match=r"column 1 leave nothing .* Look at the start"):
        solve(writer.program(), hint="Look at the start.")


@pytest.mark.parametrize("whole", [False, True])
def test_a_program_without_a_point_is_refused_with_the_hint_of_the_caller(whole):
    writer = ProgramWriter()
    x = writer.columns(2, 1.0, 0.0, 1.0, whole=whole)
    writer.rows(1, 3.0, 4.0, (x[:, None], 1.0))
    with pytest.raises(SolverError, match=r"status 2 .*Less load\."):
        solve(writer.program(), hint="Less load.")
