"""Broken networks are told apart by what broke them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.powerflow import PowerFlowResult, Status, diagnose, nominal_injection
from tests.references.meshed import (
    MeshedSolution,
    MeshedStates,
    base_state,
    branch_flows,
    build_meshed,
    solve_base_state,
    solve_states,
)

CASE = load_case("14")
BRIDGE = 13  # branch 7-8: bus 8 hangs on it alone


@pytest.fixture(scope="module")
def solved() -> PowerFlowResult:
    """The base state of case14 as the reference solves it; what `diagnose` does not read is 0."""
    net = build_meshed(CASE)
    v = solve_base_state(CASE, net)
    s_from = branch_flows(net, v[None]).s_from[0]
    zero = np.float64(0)
    parts: dict[str, Any] = {field.name: zero for field in dataclasses.fields(PowerFlowResult)}
    parts |= dict(v_re=v.real, v_im=v.imag, p_from=s_from.real, q_from=s_from.imag)
    parts |= dict(status=np.int32(Status.CONVERGED), iterations=np.int32(3))
    return PowerFlowResult(**parts)


def failed(solved: PowerFlowResult) -> PowerFlowResult:
    status: Any = np.int32(Status.OUT_OF_STEPS)
    return dataclasses.replace(solved, status=status)


def changed(**columns: np.ndarray) -> Case:
    return dataclasses.replace(CASE, branch=dataclasses.replace(CASE.branch, **columns))


def test_a_converged_result_has_no_causes(solved: PowerFlowResult) -> None:
    assert "Likely" not in diagnose(CASE, solved)
    assert diagnose(CASE, solved).startswith("CONVERGED")


def test_a_solvable_state_is_not_blamed_on_the_network(solved: PowerFlowResult) -> None:
    text = diagnose(CASE, failed(solved))
    assert "No cause found" in text
    assert "beyond" not in text.split("Likely causes:")[1]


def test_an_island_is_named_with_the_outage_that_made_it(solved: PowerFlowResult) -> None:
    on = np.arange(CASE.n_branch) != BRIDGE
    text = diagnose(changed(in_service=on), failed(solved))
    assert "1 buses have no path to the slack bus: 8, which the outage of branch 7-8 cuts off" in text


@pytest.mark.parametrize("times", [5.0, 20.0])
def test_load_beyond_collapse_is_told_with_the_scale_that_solves(solved: PowerFlowResult, times: float) -> None:
    """The reference's own Newton, started from the solution just below, solves 1 % less and not 1 % more."""
    s = times * nominal_injection(CASE)
    scale = float(diagnose(CASE, failed(solved), s.real, s.imag).split("scaled to ")[1].split()[0])
    net = build_meshed(CASE)
    v_set = base_state(CASE).v_set

    def reference(share: float, start: np.ndarray) -> MeshedSolution:
        return solve_states(net, MeshedStates(s=share * scale * s[None], v_set=v_set), start)

    near = solve_base_state(CASE, net)
    for share in np.linspace(0.3, 0.99, 12):
        below = reference(share, near)
        assert below.converged[0]
        near = below.v[0]
    assert not reference(1.01, near).converged[0]


def test_kilowatts_read_as_megawatts_are_named(solved: PowerFlowResult) -> None:
    load = dataclasses.replace(CASE.load, p_mw=1e3 * CASE.load.p_mw, q_mvar=1e3 * CASE.load.q_mvar)
    text = diagnose(dataclasses.replace(CASE, load=load), failed(solved))
    assert "kW" in text.split("Likely causes:")[1]
    assert "collapse point" in text


def test_suspicious_branches_are_named(solved: PowerFlowResult) -> None:
    x, r, tap = CASE.branch.x_pu.copy(), CASE.branch.r_pu.copy(), CASE.branch.tap.copy()
    x[0], r[0], tap[7] = 1e-8, 0.0, 0.6
    causes = diagnose(changed(x_pu=x, r_pu=r, tap=tap), failed(solved)).split("Likely causes:")[1]
    assert "|z| below 1e-06 pu: branch 1-2" in causes
    assert "tap = 0.6: branch 4-7" in causes


def test_an_injection_that_is_not_finite_is_named(solved: PowerFlowResult) -> None:
    s = nominal_injection(CASE)
    s[4] = np.nan
    assert "not finite at bus 5" in diagnose(CASE, failed(solved), s.real, s.imag)


def test_the_last_iterate_names_its_lowest_voltages_and_heaviest_branches(solved: PowerFlowResult) -> None:
    """Published solution of case14: bus 3 is lowest at 1.010 pu, branch 1-2 carries 156.88 MW and -20.40 Mvar."""
    text = diagnose(CASE, failed(solved))
    assert "lowest voltages: 1.010 pu at bus 3" in text
    assert "heaviest branches: 158.2 MVA on 1-2" in text


def test_a_batched_result_is_refused(solved: PowerFlowResult) -> None:
    with pytest.raises(ValueError, match="one scenario"):
        diagnose(CASE, jax.tree.map(lambda x: np.stack([x, x]), solved))
