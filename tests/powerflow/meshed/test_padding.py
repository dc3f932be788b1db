"""Different meshed networks as lanes of one program: each as if it were alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.tree import take
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.topology import reachable_from_slack
from powerzoo_jax.powerflow import (
    MeshedFactors,
    MeshedResult,
    Status,
    check_meshed,
    nominal_injection,
    pad_injections,
    prepare_meshed,
    solve_meshed,
    stack_meshed,
    with_branches,
)
from powerzoo_jax.powerflow.meshed.base_case import solve_base, voltage_setpoints
from powerzoo_jax.powerflow.meshed.blocks import border, plan_blocks, solve_bordered

pytestmark = pytest.mark.property

MIX = ("14", "30", "57")
LANES = 16  # variants of case118
BOUND = {"float32": 1e-6, "float64": 1e-9}  # [pu]


def injections(case: Case, seed: int) -> np.ndarray:
    """Complex injections (N,), loads and units off the base by up to a fifth."""
    return nominal_injection(case) * np.random.default_rng(seed).uniform(0.8, 1.2, case.n_bus)


def variant(case: Case, seed: int) -> Case:
    """One branch out that islands nothing, all impedances within a fifth."""
    rng, b, m = np.random.default_rng(seed), case.branch, case.n_branch
    r, x = b.r_pu * rng.uniform(0.8, 1.2, m), b.x_pu * rng.uniform(0.8, 1.2, m)
    while True:
        on = np.arange(m) != rng.integers(m)
        changed = dataclasses.replace(case, branch=dataclasses.replace(b, r_pu=r, x_pu=x, in_service=on))
        if reachable_from_slack(changed).all():
            return changed


def parameters(cases: list[Case], dtype: str) -> dict[str, np.ndarray]:
    """What a variant changes, (K, L), zero in padding."""
    most = max(c.n_branch for c in cases)
    return {
        name: np.stack([np.pad(getattr(c.branch, name), (0, most - c.n_branch)) for c in cases]).astype(dtype)
        for name in ("in_service", "r_pu", "x_pu")
    }


def alone(result: MeshedResult, k: int, case: Case) -> MeshedResult:
    """Lane k without its padding."""
    lane = take(result, k)
    n = len(lane.v_re)

    def cut(x: np.ndarray) -> np.ndarray:
        return x if x.ndim == 0 else x[: case.n_bus if len(x) == n else case.n_branch]

    return jax.tree.map(cut, lane)


def assert_as_alone(result: MeshedResult, cases: list[Case], s: list[np.ndarray], dtype: str) -> None:
    """Every lane is what a sparse Newton method finds for its network, and keeps the laws by its flows."""
    for k, (case, given) in enumerate(zip(cases, s, strict=True)):
        lane = alone(result, k, case)
        assert lane.status == Status.CONVERGED
        wanted = solve_base(case, given, voltage_setpoints(case))
        error = np.abs(lane.v_re + 1j * lane.v_im - wanted).max()
        assert error <= BOUND[dtype], (case.name, error)
        # a voltage error of the bound, through the strongest branch of these cases
        assert max(check_meshed(case, given.real, given.imag, lane)) <= 100 * BOUND[dtype]


def mixed_stack(dtype: str) -> tuple[list[Case], MeshedFactors]:
    cases = [load_case(name) for name in MIX]
    return cases, stack_meshed([prepare_meshed(c, dtype=dtype) for c in cases])


def given_to(factors: MeshedFactors, s: list[np.ndarray], dtype: str) -> tuple[Any, Any]:
    n = factors.n_bus
    return tuple(pad_injections([getattr(x, part).astype(dtype) for x in s], n) for part in ("real", "imag"))  # type: ignore[return-value]


@pytest.mark.long
@pytest.mark.parametrize("max_steps", [30, 1], ids=["chord", "newton"])
def test_grids_of_different_sizes_solve_in_one_program_as_alone(max_steps: int) -> None:
    with jax.enable_x64(True):
        cases, stacked = mixed_stack("float64")
        s = [injections(c, k) for k, c in enumerate(cases)]
        traced: list[None] = []

        @jax.jit
        def solve(f: MeshedFactors, p: Any, q: Any) -> MeshedResult:
            traced.append(None)
            # one chord step settles no lane: with max_steps = 1 Newton solves all of them
            return jax.vmap(lambda *one: solve_meshed(*one, max_steps=max_steps))(f, p, q)

        p, q = given_to(stacked, s, "float64")
        result = jax.tree.map(np.asarray, solve(stacked, p, q))
        assert_as_alone(result, cases, s, "float64")
        for k, case in enumerate(cases):
            np.testing.assert_array_equal(result.v_re[k, case.n_bus :], 1)
            np.testing.assert_array_equal(result.v_im[k, case.n_bus :], 0)
            for name in ("i_re", "i_im", "p_from", "q_from", "p_to", "q_to"):
                np.testing.assert_array_equal(getattr(result, name)[k, case.n_branch :], 0)
        order = np.array([2, 0, 1])
        turned = jax.tree.map(np.asarray, solve(take(stacked, order), p[order], q[order]))
        np.testing.assert_allclose(turned.v_re, result.v_re[order], rtol=0, atol=1e-12)
        assert len(traced) == 1


@pytest.mark.long
def test_outages_and_impedances_are_data_of_a_mixed_stack() -> None:
    cases, stacked = mixed_stack("float32")
    changed = [variant(c, k) for k, c in enumerate(cases)]
    s = [injections(c, k) for k, c in enumerate(cases)]
    solve = jax.jit(jax.vmap(lambda f, table, p, q: solve_meshed(with_branches(f, **table), p, q)))
    result = solve(stacked, parameters(changed, "float32"), *given_to(stacked, s, "float32"))
    assert_as_alone(jax.tree.map(np.asarray, result), changed, s, "float32")


@pytest.mark.long
def test_variants_of_case118_solve_in_one_program_as_alone() -> None:
    case = load_case("118")
    factors, cases = prepare_meshed(case), [variant(case, k) for k in range(LANES)]
    s = [injections(case, k) for k in range(LANES)]
    solve = jax.jit(jax.vmap(lambda table, p, q: solve_meshed(with_branches(factors, **table), p, q)))
    result = solve(parameters(cases, "float32"), *given_to(factors, s, "float32"))
    assert_as_alone(jax.tree.map(np.asarray, result), cases, s, "float32")


@pytest.mark.full
def test_padded_separators_leave_a_bordered_system_solvable() -> None:
    rng = np.random.default_rng(0)
    rows, columns = map(np.ravel, np.indices((5, 5)))
    coupled = ~(((rows < 2) & (columns >= 2) & (columns < 4)) | ((columns < 2) & (rows >= 2) & (rows < 4)))
    rows, columns = rows[coupled], columns[coupled]
    values = rng.normal(size=len(rows)) + 4 * (rows == columns)
    dense = np.zeros((5, 5))
    dense[rows, columns] = values
    y = rng.normal(size=5)
    plan = plan_blocks([np.arange(2), np.arange(2, 4)], np.array([4]), rows, columns, 5)
    # a second separator that does not exist; the corner grows at the end, so the slots stay
    wide = dataclasses.replace(
        plan,
        sep_rows=jnp.array([4, 5], jnp.int32),
        near=jnp.where(plan.near == 1, 2, plan.near),
        far=jnp.concatenate([plan.far, jnp.full((1, plan.far.shape[1]), plan.near.size, jnp.int32)]),
    )
    x = solve_bordered(wide, border(wide, jnp.asarray(values, jnp.float32)), jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(x, np.linalg.solve(dense, y), rtol=1e-5)


def test_networks_that_cannot_be_stacked_are_refused_by_name() -> None:
    single = prepare_meshed(load_case("14"))
    with jax.enable_x64(True), pytest.raises(SolverError, match="float32 and float64"):
        stack_meshed([single, prepare_meshed(load_case("14"), dtype="float64")])
    with pytest.raises(SolverError, match="lane axis"):
        stack_meshed([stack_meshed([single])])
    with pytest.raises(SolverError, match="no network"):
        stack_meshed([])
