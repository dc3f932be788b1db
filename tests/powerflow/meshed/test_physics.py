"""What must hold for every solved meshed network: Kirchhoff's laws, balance, indifference to numbering and base."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.powerflow import MeshedFactors, MeshedResult, Status, Violation, check_meshed, prepare_meshed
from powerzoo_jax.powerflow.meshed.factors import BranchData, stamps
from tests.references.meshed import MeshedStates
from tests.references.meshed_cases import LANES, factors_of, lane, meshed_case, solve_all, voltages
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

SOLVED = (("14", "float32"), ("14", "float64"), ("118", "float32"))
both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])
every_solve = pytest.mark.parametrize(("name", "dtype"), SOLVED)


def states(name: str) -> MeshedStates:
    return meshed_case(name, LANES - 1).states


def factors_for(case: Case, dtype: str, load_factor: float = 1.0) -> MeshedFactors:
    with jax.enable_x64(dtype == "float64"):
        return prepare_meshed(case, load_factor=load_factor, dtype=dtype)


def worst(case: Case, given: MeshedStates, result: MeshedResult) -> Violation:
    """Largest violation over the states that converged."""
    found = [
        check_meshed(case, given.s[k].real, given.s[k].imag, lane(result, k))
        for k in np.flatnonzero(result.status == Status.CONVERGED)
    ]
    return Violation(*np.max(found, axis=0))


@pytest.mark.tiers("long", full=["14-float32"])
@every_solve
def test_kirchhoffs_laws_and_the_balance_hold_in_a_meshed_network(name: str, dtype: str) -> None:
    case, given = meshed_case(name, LANES - 1).case, states(name)
    found = worst(case, given, solve_all(factors_of(name, dtype), given))
    assert found.kcl_pu <= tolerance("meshed_kcl_pu", dtype)
    assert found.kvl_pu <= tolerance("meshed_kvl_pu", dtype)
    assert found.balance_pu <= tolerance("meshed_kcl_pu", dtype)


@pytest.mark.long
def test_the_meshed_audit_sees_a_wrong_current_a_wrong_shunt_and_a_wrong_slack() -> None:
    case, given = meshed_case("14", LANES - 1).case, states("14")
    s, result = given.s[3], lane(solve_all(factors_of("14", "float64"), given), 3)
    limit = tolerance("meshed_kcl_pu", "float32")
    off = dataclasses.replace(result, i_re=result.i_re * np.where(np.arange(case.n_branch) == 9, 1.01, 1.0))
    found = check_meshed(case, s.real, s.imag, off)
    assert found.kcl_pu > limit and found.kvl_pu > limit
    bare = dataclasses.replace(case, bus=dataclasses.replace(case.bus, bs_mvar=0 * case.bus.bs_mvar))
    assert check_meshed(bare, s.real, s.imag, result).kcl_pu > limit
    slack = dataclasses.replace(result, p_slack=result.p_slack + 1e-3)
    assert check_meshed(case, s.real, s.imag, slack).balance_pu > limit


@pytest.mark.tiers("long", full=["14-float32"])
@every_solve
def test_held_magnitudes_stand_at_their_set_points(name: str, dtype: str) -> None:
    known = meshed_case(name, LANES - 1)
    result = solve_all(factors_of(name, dtype), known.states)
    good = result.status == Status.CONVERGED
    off = np.abs(voltages(result)) - known.states.v_set
    assert np.abs(off[good][:, ~known.net.mag]).max() <= tolerance("held_v_pu", dtype)


@pytest.mark.tiers("long", full=["14-float64"])
@both_precisions
@pytest.mark.parametrize("name", ["14", "118"])
def test_renumbering_a_meshed_network_does_not_change_its_voltages(name: str, dtype: str) -> None:
    case, given = meshed_case(name, LANES - 1).case, states(name)
    order = np.random.default_rng(5).permutation(case.n_bus)
    rows = {item.name: getattr(case.bus, item.name)[order] for item in dataclasses.fields(case.bus)}
    moved = dataclasses.replace(case, bus=type(case.bus)(**rows))
    plain = solve_all(factors_of(name, dtype), given)
    other = solve_all(factors_for(moved, dtype), MeshedStates(*(x[:, order] for x in given)))
    assert np.abs(voltages(other) - voltages(plain)[:, order]).max() <= 2 * tolerance("v_pu", dtype)
    assert np.abs(other.p_loss / plain.p_loss - 1).max() <= tolerance("loss_relative", dtype)


@pytest.mark.tiers("full", long=["float32"])
@both_precisions
def test_another_power_base_gives_the_same_voltages_and_losses(dtype: str) -> None:
    case, given, k = meshed_case("14", LANES - 1).case, states("14"), 2.5
    b = case.branch
    branch = dataclasses.replace(b, r_pu=b.r_pu * k, x_pu=b.x_pu * k, b_pu=b.b_pu / k)
    other = dataclasses.replace(case, base_mva=case.base_mva * k, branch=branch)
    plain = solve_all(factors_of("14", dtype), given)
    moved = solve_all(factors_for(other, dtype), MeshedStates(given.s / k, given.v_set))
    assert np.abs(voltages(moved) - voltages(plain)).max() <= 2 * tolerance("v_pu", dtype)
    assert np.abs(moved.p_loss * k / plain.p_loss - 1).max() <= tolerance("loss_relative", dtype)


@pytest.mark.tiers("full", long=["float64"])
@both_precisions
def test_the_base_point_does_not_change_what_is_solved(dtype: str) -> None:
    """Deviations are counted from another voltage, with another inverse."""
    given = states("14")
    light = factors_for(meshed_case("14", LANES - 1).case, dtype, load_factor=0.6)
    plain, other = solve_all(factors_of("14", dtype), given), solve_all(light, given)
    assert np.abs(voltages(other) - voltages(plain)).max() <= 2 * tolerance("v_pu", dtype)


def test_a_branch_is_an_ideal_transformer_before_a_pi_element() -> None:
    """Currents of both ends by the circuit: v_f / a behind the transformer, i_f = i / conj(a), 1.1 at 30 degrees."""
    values = {"r_pu": 0.02, "x_pu": 0.1, "b_pu": 0.3, "tap": 1.1, "shift_rad": np.pi / 6, "in_service": 1.0}
    found = stamps(BranchData(**{name: jnp.full(1, value, jnp.float32) for name, value in values.items()}))
    a, v_f, v_t = 1.1 * np.exp(1j * np.pi / 6), 1.02 * np.exp(0.3j), 0.97 * np.exp(-0.2j)
    through, half = (v_f / a - v_t) / (0.02 + 0.1j), 0.15j
    expected = [(through + half * v_f / a) / np.conj(a), half * v_t - through]
    ff, ft, tf, tt = (complex(part[0]) for part in found)
    np.testing.assert_allclose([ff * v_f + ft * v_t, tf * v_f + tt * v_t], expected, rtol=1e-5)  # float32
