"""Networks that ship with pandapower, solved from its nets, against the voltages that it found itself.

All of them, with what is refused and why: benchmarks/pandapower_networks.py.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.powerflow import check_meshed, nominal_injection, prepare_meshed, solve_meshed, with_branches
from powerzoo_jax.powerflow.meshed.base_case import voltage_setpoints
from powerzoo_jax.powerflow.meshed.padding import pad_injections, stack_meshed
from tests.references.recorded_nets import converter, voltages
from tests.tolerances import F64, TOLERANCES

pytestmark = [pytest.mark.reference, pytest.mark.full]

NETWORKS = (
    "create_kerber_vorstadtnetz_kabel_1",
    "create_kerber_landnetz_kabel_1",
    "example_multivoltage",
    "example_simple",
    "create_cigre_network_mv",
    "create_synthetic_voltage_control_lv_network",
)
V_PU = 1e-8
STEPS = 6  # from the base state, which is the solution but for its rounding


def with_isolated_bus() -> Case:
    """case14 without the branch of bus 8, which has a unit, a shunt and a load."""
    case = load_case("case14")
    off = case.branch.in_service & (case.branch.to_id != 8)
    stub = case.bus.id == 8
    kind, gs, bs = np.where(stub, 4, case.bus.kind), np.where(stub, 3.0, 0.0), np.where(stub, 2.0, case.bus.bs_mvar)
    load = dataclasses.replace(
        case.load,
        bus_id=np.append(case.load.bus_id, 8),
        p_mw=np.append(case.load.p_mw, 9.0),
        q_mvar=np.append(case.load.q_mvar, 1.0),
    )
    return dataclasses.replace(
        case,
        bus=dataclasses.replace(case.bus, kind=kind, gs_mw=gs, bs_mvar=bs),
        branch=dataclasses.replace(case.branch, in_service=off),
        load=load,
    )


@pytest.fixture(scope="module")
def solved():
    """Cases, results, and the result with every branch of the last switched in: one program for all."""
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        cases = [*map(converter(patch), NETWORKS), with_isolated_bus()]
        factors = [prepare_meshed(case, dtype="float64") for case in cases]
        factors.append(with_branches(factors[-1], in_service=jnp.ones(cases[-1].n_branch)))
        cases.append(cases[-1])
        stacked = stack_meshed(factors)
        n_bus = stacked.v_base.shape[1]
        s = [nominal_injection(case) for case in cases]
        set_points = pad_injections([voltage_setpoints(case) for case in cases], n_bus, fill=1)
        given = [pad_injections([getattr(x, part) for x in s], n_bus) for part in ("real", "imag")]
        solve = jax.jit(jax.vmap(lambda f, *given: solve_meshed(f, *given, fixed_steps=STEPS)))
        result = jax.tree.map(np.asarray, solve(stacked, *given, set_points))
    lanes = []
    for k, case in enumerate(cases):
        ends = {"i_re", "i_im", "p_from", "q_from", "p_to", "q_to"}
        size = {True: case.n_branch, False: case.n_bus}
        fields = {f.name: getattr(result, f.name)[k] for f in dataclasses.fields(result)}
        lanes.append(type(result)(**{n: x[: size[n in ends]] if x.ndim else x for n, x in fields.items()}))
    return cases, lanes


@pytest.mark.tiers("long", full=["create_cigre_network_mv", "create_synthetic_voltage_control_lv_network"])
@pytest.mark.parametrize("k", range(len(NETWORKS)), ids=NETWORKS)
def test_a_network_of_pandapower_has_the_voltages_it_has_there(k, solved):
    result = solved[1][k]
    assert result.converged
    np.testing.assert_allclose(result.v_re + 1j * result.v_im, voltages(NETWORKS[k]), atol=V_PU, rtol=0)


def test_an_isolated_bus_changes_nothing_and_breaks_no_law(solved):
    case, result = solved[0][-2], solved[1][-2]
    s = nominal_injection(case)
    law = check_meshed(case, s.real, s.imag, result)
    assert result.converged
    assert law.kcl_pu < TOLERANCES["meshed_kcl_pu"][F64] and law.kvl_pu < TOLERANCES["meshed_kvl_pu"][F64]
    assert law.balance_pu < TOLERANCES["meshed_kcl_pu"][F64]
    stub = case.bus_index[8]
    assert np.isfinite(result.v_re).all() and result.angle_rad[stub] == 0.0
    assert result.v_pu[stub] == pytest.approx(voltage_setpoints(case)[stub])
    assert result.p_shunt == pytest.approx(0.0, abs=1e-12)


def test_a_branch_to_an_isolated_bus_cannot_be_switched_in(solved):
    """Its placeholder of a voltage would feed the network like a second slack."""
    before, after = solved[1][-2:]
    np.testing.assert_allclose(after.v_re + 1j * after.v_im, before.v_re + 1j * before.v_im, atol=1e-12)
    np.testing.assert_array_equal(after.i_re[solved[0][-1].branch.to_id == 8], 0.0)
