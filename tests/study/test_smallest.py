"""The smallest networks, by hand: one live bus, no branch, no unit, a source alone. A function answers or refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax import opf
from powerzoo_jax import powerflow as pf
from powerzoo_jax.base.errors import CaseError, SolverError
from powerzoo_jax.cases import Case, from_matpower, read_opendss, scan_grid, to_matpower, to_threephase, validate
from powerzoo_jax.cases.case import ISOLATED, PQ, REF, assemble
from powerzoo_jax.cli import main
from powerzoo_jax.opf.dc.solve import VOLL
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host

COLUMNS = {"bus": 13, "branch": 13, "gen": 10, "gencost": 7}


def small(buses: list[Any], branches: list[Any], units: list[Any]) -> Case:
    """Buses (kind, MW, Mvar), branches (from, to, in service), units (bus, pu, in service) at 10 USD/MWh + 0.01 P^2."""
    bus = [[k + 1, kind, p, q, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9] for k, (kind, p, q) in enumerate(buses)]
    branch = [[f, t, 0, 0.1, 0, 50, 0, 0, 0, 0, on, -360, 360] for f, t, on in branches]
    gen = [[at, 0, 0, 300, -300, v, 100, on, 900, 0] for at, v, on in units]
    tables = {"bus": bus, "branch": branch, "gen": gen, "gencost": [[2, 0, 0, 3, 0.01, 10, 0] for _ in units]}
    return assemble(
        "small", 100.0, "", {n: np.array(rows, float).reshape(-1, COLUMNS[n]) for n, rows in tables.items()}
    )


class Smallest(NamedTuple):
    """A network, magnitudes of its buses (0 = not supplied), its least cost, what `run_power_flow` finds broken."""

    case: Case
    v: tuple[float, ...]
    cost: float  # [USD/h] with load shed at VOLL; 0.01 30^2 + 10 30 = 309, 0.01 20^2 + 10 20 = 204
    broken: tuple[str, ...] = ()


ON = [(1, 1.02, 1)]
NETWORKS = {
    "one bus": Smallest(small([(REF, 30, 10)], [], ON), (1.02,), 309.0),
    "one bus with load only": Smallest(
        small([(REF, 30, 10)], [], []), (1.0,), 30 * VOLL, ("bus 1: supplied by no unit",)
    ),
    "one bus with its unit off": Smallest(
        small([(REF, 30, 10)], [], [(1, 1.02, 0)]), (1.0,), 30 * VOLL, ("bus 1: supplied by no unit",)
    ),
    "a slack alone": Smallest(small([(REF, 0, 0)], [], ON), (1.02,), 0.0),
    "an empty bus": Smallest(small([(REF, 0, 0)], [], []), (1.0,), 0.0),
    "all branches out": Smallest(small([(REF, 30, 10), (ISOLATED, 0, 0)], [(1, 2, 0)], ON), (1.02, 0.0), 309.0),
    "all branches out, two references": Smallest(
        small([(REF, 30, 10), (REF, 20, 5)], [(1, 2, 0)], [*ON, (2, 1.0, 1)]), (1.02, 1.0), 513.0
    ),
    "isolated buses": Smallest(
        small([(REF, 30, 10), (ISOLATED, 20, 5), (ISOLATED, 0, 0)], [], ON), (1.02, 0, 0), 309.0
    ),
    # V2 = 1 - j 0.1 (0.3 - j 0.1) / conj(V2): |V2|^4 - 0.98 |V2|^2 + 0.001 = 0
    "no unit": Smallest(
        small([(REF, 0, 0), (PQ, 30, 10)], [(1, 2, 1)], []),
        (1.0, float(np.sqrt(0.49 + np.sqrt(0.2401 - 0.001)))),
        30 * VOLL,
        ("bus 1: supplied by no unit",),
    ),
}


def injections(case: Case) -> tuple[Any, Any]:
    s = pf.nominal_injection(case)
    return jnp.asarray(s.real), jnp.asarray(s.imag)


def loads(case: Case) -> tuple[Any, Any]:
    return jnp.asarray(case.p_load_mw), jnp.asarray(case.q_load_mvar)


def holds(known: Smallest, result: Any) -> None:
    """The state is the one by hand, also by Kirchhoff's laws."""
    live = np.array(known.v) > 0
    assert int(result.status) == 0
    np.testing.assert_allclose(np.hypot(result.v_re, result.v_im)[live], np.array(known.v)[live], atol=1e-9)


def study(known: Smallest) -> None:
    found = pz.run_power_flow(known.case, n_minus_1=True)
    np.testing.assert_allclose(np.abs(found.v), known.v, atol=1e-9)
    assert tuple(v for v in found.violations if v.startswith("bus")) == known.broken
    assert found.outage is not None and len(found.outage) == known.case.branch.in_service.sum()
    assert "voltages from" in str(found)


def optimum(known: Smallest) -> None:
    assert pz.run_power_flow(known.case, opf=True).cost_usd_per_h == pytest.approx(known.cost, abs=1e-4)


def meshed(known: Smallest) -> None:
    case = known.case
    factors, given = pf.prepare_meshed(case, dtype="float64"), injections(case)
    result = pf.solve_meshed(factors, *given)
    holds(known, result)
    assert max(pf.check_meshed(case, *map(np.asarray, given), result)) < 1e-9
    assert pf.diagnose(case, result).startswith("CONVERGED")
    holds(known, pf.solve_meshed(factors, *given, solver="fixed"))
    slope = jax.grad(lambda p: pf.solve_meshed(factors, p, given[1]).p_loss)(given[0])
    assert np.isfinite(slope).all()


def meshed_parts(known: Smallest) -> None:
    case = known.case
    factors, given = pf.prepare_meshed(case, dtype="float64"), injections(case)
    holds(known, pf.solve_meshed(pf.with_branches(factors, r_pu=jnp.asarray(case.branch.r_pu)), *given))
    both = jax.vmap(pf.solve_meshed)(pf.stack_meshed([factors, factors]), *(jnp.stack([x, x]) for x in given))
    holds(known, jax.tree.map(lambda x: x[1], both))
    limits = pf.prepare_reactive(case, factors)
    found = pf.solve_within_reactive_limits(factors, limits, *given)
    holds(known, found.flow)
    assert np.isfinite(pf.split_reactive(limits, found.q_pv)).all()


def distributed(known: Smallest) -> None:
    factors = pf.prepare_meshed(known.case, dtype="float64")
    share = jnp.asarray(pf.slack_share(known.case))
    holds(known, pf.solve_meshed(factors, *injections(known.case), slack_share=share))


def direct(known: Smallest) -> None:
    case = known.case
    p, rate = jnp.asarray(pf.scheduled_injection(case)), jnp.full(case.n_branch, 0.5)
    result = pf.solve_dc(pf.prepare_dc(case, dtype="float64"), p)
    supplied = np.array(known.v) > 0
    np.testing.assert_allclose(result.p_added[supplied].sum(), -p[supplied].sum(), atol=1e-9)
    outages = pf.prepare_dc_outages(case, dtype="float64")
    after = pf.outage_flows(outages, result.p_from), pf.unit_outage_flows(outages, result.p_from)
    worst = [f(outages, result.p_from, rate) for f in (pf.worst_outage_loading, pf.worst_unit_outage_loading)]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((after, worst)))


def outages(known: Smallest) -> None:
    case = known.case
    factors = pf.prepare_outages(case, rate_pu=np.full(case.n_branch, 0.5), dtype="float64")
    found = pf.n_minus_1(factors, *injections(case))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(pf.worst_outages(found, 1)))


def switched(known: Smallest) -> None:
    factors = pf.prepare_switching(known.case, dtype="float64")
    none = jnp.full(1, -1, jnp.int32)
    loops = factors.loops
    assert bool(pf.legality(loops, none).connected) and bool(pf.stays_connected(loops, none))
    assert not pf.legality(loops, none).may_open.any() and bool(pf.is_radial(loops, none))
    assert int(pf.solve_switched(factors, none, *injections(known.case)).status) == 0


def feeder(known: Smallest) -> None:
    holds(known, pf.solve_feeder(pf.prepare_feeder(known.case, dtype="float64"), *injections(known.case)))


def three_phases(known: Smallest) -> None:
    case = to_threephase(known.case)
    s = pf.nominal_phase_load(case)
    result = pf.solve_threephase(pf.prepare_threephase(case, dtype="float64"), jnp.asarray(s.real), jnp.asarray(s.imag))
    np.testing.assert_allclose(np.hypot(result.v_re, result.v_im), np.repeat(known.v, 3), atol=1e-8)


def dc_optimum(known: Smallest) -> None:
    case = known.case
    factors = opf.prepare_dc_opf(case, dtype="float64")
    cleared = opf.clear_market(factors, opf.case_offers(case, dtype="float64"), loads(case)[0], voll=VOLL)
    for result in (opf.dc_opf(factors, loads(case)[0]), cleared.dispatch):
        assert int(result.status) == 0 and float(result.objective) == pytest.approx(known.cost, rel=1e-6, abs=1e-5)


def secure_optimum(known: Smallest) -> None:
    case = known.case
    assert opf.binding_rows(case, case.p_load_mw[None]).size == 0
    secure = opf.prepare_secure_dc_opf(case, case.p_load_mw[None], dtype="float64")
    result = opf.secure_dc_opf(secure, loads(case)[0])
    assert int(result.status) == 0 and float(result.dispatch.objective) == pytest.approx(known.cost, rel=1e-6, abs=1e-5)


def ac_optimum(known: Smallest) -> None:
    factors = opf.prepare_ac_opf(known.case, dtype="float64")
    result = opf.ac_opf(factors, *loads(known.case))
    assert bool(result.optimal) and float(result.objective) == pytest.approx(known.cost, rel=1e-5, abs=1e-3)
    parts = opf.split_prices(factors, result)
    np.testing.assert_allclose(sum(jax.tree.leaves(parts)), result.lmp, atol=1e-3)


def dispatch(known: Smallest) -> None:
    case = known.case
    low, high, load = (jnp.asarray(x) for x in (case.unit.p_min_mw, case.unit.p_max_mw, case.p_load_mw.sum()))
    result = opf.economic_dispatch(opf.case_offers(case, dtype="float64"), load, low, high)
    price = jnp.ones_like(low)
    merit = opf.allocate_by_merit(price, low, high, load)
    share = opf.allocate_by_weight(opf.score_weights(price), low, high, load)
    rest = opf.balance_by_slack(merit.p_mw, low, high, price, load)
    rules = opf.commitment_rules(case.unit.p_min_mw, case.unit.p_max_mw)
    state = opf.initial_commitment(rules, jnp.asarray(case.unit.p_mw, jnp.float32))
    on = opf.project_commitment(rules, state, opf.legal_commitment(rules, state)[..., 0])
    segments = opf.make_cost_segments(case, 3)
    leaves = jax.tree.leaves((result, merit, share, rest, on, segments))
    assert all(np.isfinite(x).all() for x in leaves)


def described(known: Smallest) -> None:
    assert repr(known.case) and not [p for p in validate(known.case) if p.severity == "error"]


CALLS: dict[str, Callable[[Smallest], None]] = {
    f.__name__: f
    for f in (
        *(study, optimum, meshed, meshed_parts, distributed, direct, outages, switched, feeder, three_phases),
        *(dc_optimum, secure_optimum, ac_optimum, dispatch, described),
    )
}
# What is refused by name, instead of an answer.
REFUSED = {
    "optimum": r"no unit in service: there is nothing to dispatch",
    "distributed": r"no unit in service has a weight|reference buses",
    "outages": r"has no branches|reference buses",
    "ac_optimum": r"no unit in service: there is nothing to dispatch",
    "switched": r"has no branches|isolated bus|reference buses",
    "feeder": r"no bus but the slack has load|is isolated|reference buses",
    "three_phases": r"no load and no DER|does not reach|reference buses",
    "dc_optimum": r"islands, which|is isolated, and its load",
    "secure_optimum": r"islands, which|is isolated, and its load",
    "meshed": r"reference buses 1, 2; the solver takes one",
    "meshed_parts": r"reference buses 1, 2; the solver takes one",
}


@pytest.mark.full
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_solver_answers_or_says_why_not(name, call):
    with jax.enable_x64(True):
        try:
            CALLS[call](NETWORKS[name])
        except (CaseError, SolverError) as err:
            assert re.search(REFUSED.get(call, "never"), str(err)), err


@pytest.mark.parametrize("name", NETWORKS)
def test_commands_take_them(name, tmp_path, capsys):
    path = tmp_path / "net.m"
    to_matpower(NETWORKS[name].case, path)
    assert from_matpower(path).n_bus == NETWORKS[name].case.n_bus
    for command in (["check"], ["pf"], ["pf", "--n-1"]):
        assert main([*command, str(path)]) == 0
    capsys.readouterr()
    assert main(["pf", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["bus"]) == len(NETWORKS[name].v)


SOURCE = "New Circuit.c bus1=pole basekv=12.47 pu=1.0 MVAsc3=60 MVAsc1=50\n"
TRANSFORMER = (
    "New Transformer.t phases=3 windings=2 buses=[pole home] conns=[delta wye] kvs=[12.47 0.208] kvas=[75 75] "
    "%rs=[0.6 0.6] xhl=3\n"
)
# script, magnitudes by OpenDSS 10 (OpenDSSDirect 0.9.4) at a tolerance of 1e-12
CIRCUITS = {
    "a source": (SOURCE, None),
    "a source and a load": (SOURCE + "New Load.l bus1=pole phases=3 kv=12.47 kw=400 pf=0.95\n", [0.9962253592]),
    "a source and a transformer": (SOURCE + TRANSFORMER, None),
    "a cabin": (
        SOURCE + TRANSFORMER + "New Load.l bus1=home phases=3 kv=0.208 kw=40 pf=0.95\n",
        [0.9996124722, 0.987709417],
    ),
}


@pytest.mark.parametrize("name", CIRCUITS)
def test_circuits_without_a_line_are_read_and_solved(name, tmp_path):
    script, known = CIRCUITS[name]
    path = tmp_path / "c.dss"
    path.write_text(f"Clear\n{script}Set VoltageBases=[12.47 0.208]\nCalcVoltageBases\nSolve\n", encoding="utf-8")
    assert not [p for p in scan_grid(path)[2] if p.severity == "error"]
    case = read_opendss(path)
    s = pf.nominal_phase_load(case)
    with jax.enable_x64(True):
        if known is None:
            with pytest.raises(SolverError, match="no load and no DER"):
                pf.prepare_threephase(case, dtype="float64")
            return
        given = jnp.asarray(s.real), jnp.asarray(s.imag)
        result = pf.solve_threephase(pf.prepare_threephase(case, dtype="float64"), *given)
    np.testing.assert_allclose(np.hypot(result.v_re, result.v_im), np.repeat(known, 3), atol=2e-9)
    np.testing.assert_allclose(np.abs(solve_threephase_on_host(case)), np.repeat(known, 3), atol=2e-9)
