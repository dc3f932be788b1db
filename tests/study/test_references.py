"""References without a unit, transformers that turn, starts: what delivers, where a state is found, what is told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import root

import powerzoo_jax as pz
from powerzoo_jax import opf
from powerzoo_jax.base.errors import BaseLoadError
from powerzoo_jax.cases import Case, load_case, validate
from powerzoo_jax.cases.case import PQ, PV, REF, assemble
from powerzoo_jax.opf import (
    EXPLAIN_OPF,
    OpfStatus,
    ac_opf,
    dc_opf,
    prepare_ac_opf,
    prepare_dc_opf,
    prepare_secure_dc_opf,
    secure_dc_opf,
)
from powerzoo_jax.powerflow import nominal_injection, prepare_dc, prepare_meshed, solve_dc, solve_meshed
from powerzoo_jax.powerflow.meshed.base_case import admittance, held_buses, solve_base, voltage_setpoints
from tests.references.opf_slsqp import least_cost


def small(
    buses: list[tuple[int, float, float]],
    branches: list[tuple[int, int, float, float, float, float]],
    units: list[tuple[int, float, float, int, float]],
    base: float = 100.0,
) -> Case:
    """Case of buses (kind, MW, Mvar), branches (from, to, r, x, shift, rating), units (bus, MW, pu, on, USD/MWh)."""
    bus = [[k + 1, kind, p, q, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9] for k, (kind, p, q) in enumerate(buses)]
    branch = [[f, t, r, x, 0.02, rate, 0, 0, 0, shift, 1, -360, 360] for f, t, r, x, shift, rate in branches]
    gen = [[at, p, 0, 300, -300, v, 100, on, 900, 0] for at, p, v, on, _ in units]
    cost = [[2, 0, 0, 3, 0.01, price, 0] for *_, price in units]
    tables = {"bus": bus, "branch": branch, "gen": gen, "gencost": cost}
    return assemble("small", base, "", {name: np.array(rows, float) for name, rows in tables.items()})


def triangle(kind: int = PV) -> Case:
    """Bus 1 is the reference and its unit is off; bus 2 has a unit."""
    return small(
        [(REF, 0, 0), (kind, 60, 20), (PQ, 30, 10)],
        [(1, 2, 0.01, 0.06, 0, 100), (2, 3, 0.02, 0.08, 0, 100), (1, 3, 0.02, 0.08, 0, 100)],
        [(1, 0, 1.03, 0, 10), (2, 50, 1.01, 1, 20)],
    )


def unit_off(name: str, at: int) -> Case:
    case = load_case(name)
    return replace(case, unit=replace(case.unit, in_service=np.arange(case.n_unit) != at))


def test_the_first_pv_bus_with_a_unit_takes_the_place_of_a_reference_without():
    """pandapower 3.5.6 with its external grid at bus 2: 90.114617114 MW, 24.400378864 Mvar."""
    study = pz.run_power_flow(triangle())
    np.testing.assert_allclose(study.bus["v_pu"], [1.0078364742314416, 1.01, 1.002672195991375], atol=1e-9)
    np.testing.assert_allclose(study.bus["angle_deg"], [-0.360249, 0, -0.814354], atol=1e-6)
    np.testing.assert_allclose(study.unit["p_mw"], [0, 90.114617114], atol=1e-7)
    np.testing.assert_allclose(study.unit["q_mvar"], [0, 24.400378864], atol=1e-7)
    assert study.notes == ("reference bus 1 has no unit in service, bus 2 balances instead",)
    assert "note: reference bus 1" in str(study) and not study.violations
    (found,) = (p for p in validate(triangle()) if p.field == "kind")
    assert "bus 2 balances in its place" in found.message and found.severity == "warning"


@pytest.mark.full
@pytest.mark.parametrize("solver", ["meshed", "dc", "dc opf", "ac opf"])
def test_every_solver_moves_the_reference(solver):
    """As with the kinds written by hand: bus 1 PQ, bus 2 the reference."""

    def results(case: Case) -> Any:
        s = nominal_injection(case)
        p, load = jnp.asarray(s.real), jnp.asarray(case.p_load_mw)
        if solver == "meshed":
            out = solve_meshed(prepare_meshed(case, dtype="float64"), p, jnp.asarray(s.imag))
        elif solver == "dc":
            out = solve_dc(prepare_dc(case, dtype="float64"), p)
        elif solver == "dc opf":
            out = dc_opf(prepare_dc_opf(case, dtype="float64"), load)
        else:
            out = ac_opf(prepare_ac_opf(case, dtype="float64"), load, jnp.asarray(case.q_load_mvar))
        return jax.tree.map(np.asarray, out)

    with jax.enable_x64(True):
        case = triangle()
        moved = replace(case, bus=replace(case.bus, kind=[PQ, REF, PQ]))
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), results(case), results(moved))


@pytest.mark.full
@pytest.mark.parametrize(("case", "known"), [(triangle(), 1883.087), (unit_off("case9", 0), 6532.6076)])
def test_the_optimum_without_the_unit_of_the_reference_is_that_of_slsqp(case, known):
    assert least_cost(case) == pytest.approx(known, abs=1e-3)
    study = pz.run_power_flow(case, opf=True)
    assert study.cost_usd_per_h == pytest.approx(known, abs=1e-3) and not study.violations


@pytest.mark.full
def test_a_unit_of_the_reference_may_be_committed_off():
    """Off at run time as off in the tables; the Newton system used to be singular."""
    case = triangle()
    running = replace(case, unit=replace(case.unit, in_service=[True, True]))
    with jax.enable_x64(True):
        load = jnp.asarray(case.p_load_mw), jnp.asarray(case.q_load_mvar)
        factors = prepare_ac_opf(running, dtype="float64")
        out = jax.jit(partial(ac_opf, shedding=False))(factors, *load, commitment=jnp.array([0.0, 1.0]))
    assert bool(out.optimal) and float(out.objective) == pytest.approx(1883.087, abs=1e-3)


def test_what_no_unit_delivers_is_a_violation():
    """The unit of bus 2 keeps its 50 MW, as a PQ bus does: 40 MW and the losses come from nowhere."""
    study = pz.run_power_flow(triangle(PQ))
    assert study.violations == ("bus 1: supplied by no unit",)
    (found,) = (p for p in validate(triangle(PQ)) if p.field == "kind")
    assert "comes from none" in found.message


def test_an_outage_leaves_no_reference_that_delivers_by_itself():
    """Bus 1, the former reference, hangs on one branch and has a load."""
    case = small([(REF, 25, 5), (PV, 60, 20)], [(1, 2, 0.01, 0.06, 0, 100)], [(1, 0, 1.0, 0, 10), (2, 50, 1.01, 1, 20)])
    outage = pz.run_power_flow(case, n_minus_1=True).outage
    assert outage is not None and outage["cut_off_mw"].tolist() == [25.0] and outage["at_bus"].tolist() == [2]


@pytest.mark.full
@pytest.mark.parametrize("shift", [0.0, 30.0, 150.0, -150.0, 180.0])
def test_a_transformer_that_turns_does_not_change_the_optimum(shift):
    """AC, DC and secure DC forms: angles beyond a transformer are free. 4 MW at 30 USD/MWh, DC 120."""
    case = small([(REF, 0, 0), (PQ, 4, 1)], [(1, 2, 0.005, 0.1, shift, 8)] * 2, [(1, 0, 1.0, 1, 30)], base=10.0)
    case = replace(case, branch=replace(case.branch, b_pu=np.zeros(2)), unit=replace(case.unit, cost=[[0.0, 30, 0]]))
    one = replace(case, branch=replace(case.branch, in_service=[True, False]))
    assert pz.run_power_flow(one, opf=True).cost_usd_per_h == pytest.approx(120.21527, abs=1e-5)
    with jax.enable_x64(True):
        load = jnp.asarray(case.p_load_mw)
        plain = dc_opf(prepare_dc_opf(case, dtype="float64"), load, shedding=False)
        secure = secure_dc_opf(prepare_secure_dc_opf(case, case.p_load_mw[None]), load.astype(np.float32))
    assert float(plain.objective) == pytest.approx(120.0, abs=1e-6)
    assert int(secure.status) == OpfStatus.OPTIMAL
    assert float(secure.dispatch.objective) == pytest.approx(120.0, rel=1e-4)


def test_what_the_status_of_an_optimisation_names_exists():
    for text in EXPLAIN_OPF.values():
        for name in text.split("`")[1::2]:
            assert hasattr(opf, name.partition("=")[0].partition("(")[0]) or "=" in name, name


def by_homotopy(case: Case) -> np.ndarray:
    """Voltages (N,) by SciPy's root, from the state without injections to the given ones in twenty steps."""
    y, held, s = admittance(case).toarray(), held_buses(case), nominal_injection(case)
    free = np.arange(case.n_bus) != case.slack_bus[0]
    v_set = voltage_setpoints(case)

    def voltage(x: np.ndarray) -> np.ndarray:
        size, angle = v_set.copy(), np.zeros(case.n_bus)
        angle[free], size[~held] = x[: free.sum()], x[free.sum() :]
        return size * np.exp(1j * angle)

    def left(x: np.ndarray, share: float) -> np.ndarray:
        v = voltage(x)
        rest = v * np.conj(y @ v) - share * s
        return np.r_[rest.real[free], rest.imag[~held]]

    x = np.r_[np.zeros(free.sum()), np.full((~held).sum(), v_set[held].mean())]
    for share in np.linspace(0, 1, 21):
        found = root(left, x, args=(share,), tol=1e-13)
        x = found.x
    assert np.abs(found.fun).max() < 1e-9
    return voltage(x)


def test_a_network_without_start_voltages_is_solved_from_its_dc_power_flow():
    """A ring of four buses whose flat start leads nowhere: units hold 1.01 and 1.11 pu, 600 MW cross it."""
    case = small(
        [(REF, 0, 0), (PQ, 74, 17), (PV, 33, 13), (PQ, 108, 8)],
        [
            (1, 2, 0.01538, 0.1538, 0, 0),
            (2, 3, 0.01691, 0.1691, 0, 0),
            (3, 4, 1e-5, 1e-4, 0, 0),
            (1, 4, 0.01549, 0.1549, 0, 0),
        ],
        [(1, 0, 1.01, 1, 10), (3, 600, 1.11, 1, 10)],
    )
    case = replace(case, branch=replace(case.branch, b_pu=np.zeros(4)))
    v = solve_base(case, nominal_injection(case), voltage_setpoints(case))
    np.testing.assert_allclose(v, by_homotopy(case), atol=1e-8)


def test_a_bus_on_the_low_voltage_branch_is_told():
    """0.9 pu behind x = 1 pu and 0.2016 pu reactive load: V = (0.9 + sqrt(0.81 - 0.8064)) / 2 = 0.48 pu at best."""
    case = small([(REF, 0, 0), (PQ, 0, 20.16)], [(1, 2, 0, 1, 0, 0)], [(1, 0, 0.9, 1, 0)])
    case = replace(case, branch=replace(case.branch, b_pu=[0.0]))
    study = pz.run_power_flow(case)
    assert study.bus["v_pu"][1] == pytest.approx(0.48, abs=1e-6)
    assert len(study.notes) == 1 and "2 (0.4800 pu)" in study.notes[0] and "no start" in study.notes[0]


def test_a_tiny_set_point_is_named_and_the_load_is_not_blamed():
    case = small(
        [(REF, 0, 0), (PV, 0, 0), (PQ, 120, 40)],
        [(1, 3, 0, 0.0576, 0, 250), (2, 3, 0, 0.0625, 0, 250)],
        [(1, 0, 0.0746, 1, 10), (2, 100, 0.0802, 1, 10)],
    )
    (found,) = (p for p in validate(case) if p.field == "v_set_pu")
    assert "0.0746 at bus 1, 0.0802 at bus 2" in found.message
    with pytest.raises(BaseLoadError, match=r"set-point is 0\.0746") as raised:
        pz.run_power_flow(case)
    assert "collapse" not in str(raised.value) and "load lies" not in str(raised.value)
