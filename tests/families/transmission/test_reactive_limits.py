"""Reactive limits in the transmission environment against pandapower's recorded ends, and against the laws."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.transmission.operator_types import Electrical, TransGridInfo, TransGridState
from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
from powerzoo_jax.powerflow import Status
from tests.recorders.record_grid_limits import CASE, DATA, GridStates, grid_states, injections
from tests.recorders.record_reactive import ReactiveStates, pv_positions, q_range
from tests.references.meshed import MeshedNetwork, MeshedStates, build_meshed, solve_base_state, solve_states
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.long]

EXPECTED = {key: read_npz(DATA / "expected.npz")[f"{CASE}.{key}"] for key in ("v_pu", "q_unit_pu", "at_limit")}


class Stepped(NamedTuple):
    """A step of every recorded state in one dtype: cost (B, C) and info."""

    sim: Sim
    cost: np.ndarray
    info: TransGridInfo
    dtype: str


class Reference(NamedTuple):
    """The case as the reference sees it, positions and limits (m,) [pu] of its PV buses."""

    case: Case
    net: MeshedNetwork
    states: GridStates
    given: ReactiveStates
    at: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def unit_reactive(self, v: np.ndarray) -> np.ndarray:
        """Reactive power (B, m) [pu] of the units at voltages (B, N)."""
        injected = (v * np.conj((self.net.ybus @ v.T).T)).imag
        return (injected - self.given.q)[:, self.at]  # type: ignore[no-any-return]

    def outside(self, q: np.ndarray, rounding: np.ndarray) -> np.ndarray:
        """How many buses (B,) lie outside their range."""
        return ((q > self.high + rounding) | (q < self.low - rounding)).sum(1)  # type: ignore[no-any-return]

    def rounding(self, dtype: str) -> np.ndarray:
        """What power (N,) [pu] may be off: by the solver, and by magnitudes and angles stored in the dtype."""
        stored = np.finfo(dtype).eps * np.asarray(abs(self.net.ybus).sum(1)).ravel()
        return tolerance("meshed_kcl_pu", dtype) + stored  # type: ignore[no-any-return]


@cache
def reference() -> Reference:
    case = load_case(CASE)
    states = grid_states(case)
    limits = (pv_positions(case), *q_range(case))
    return Reference(case, build_meshed(case), states, injections(case, states), *limits)


def first_state(sim: Sim) -> TransGridState:
    """The first step of the first row; no solve."""
    dims, dtype = sim.env.dims, sim.params.voll.dtype
    return TransGridState(
        t=jnp.zeros((), jnp.int32),
        key=jax.random.key(0),
        load_row=jnp.zeros((), jnp.int32),
        closed=jnp.ones(0, bool),
        seen=Electrical(jnp.zeros(dims.branch, dtype), jnp.zeros(dims.unit, dtype)),
        failed=jnp.zeros((), bool),
    )


@cache
def stepped(dtype: str, mode: str) -> Stepped:
    def step(sim: Sim, level: Any, action: Any) -> Any:
        params = sim.params
        rows = params.bank.load_rows.at[:, 0].set(level)
        params = dataclasses.replace(params, bank=dataclasses.replace(params.bank, load_rows=rows))
        out = sim.env.step(first_state(sim), action[None], params)
        return out.cost, out.info

    states = reference().states
    with jax.enable_x64(dtype == "float64"):
        sim = make_transgrid(CASE, physics="ac", solver_mode="pf", dtype=dtype, solver=mode)
        level = states.load_mw / float(sim.params.full_load_mw)
        given = (jnp.asarray(x, dtype) for x in (level, states.place))
        cost, info = jax.tree.map(np.asarray, jax.jit(jax.vmap(step, in_axes=(None, 0, 0)))(sim, *given))
    return Stepped(sim, cost, info, dtype)


# float type and mode of the solver: adaptive in both types, and the fixed form in the type of accelerators
FORMS = {"float32": ("float32", "adaptive"), "float64": ("float64", "adaptive"), "fixed": ("float32", "fixed")}


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def run(request: pytest.FixtureRequest) -> Stepped:
    return stepped(*request.param)


def voltages(info: TransGridInfo) -> np.ndarray:
    return np.asarray(info.vm_pu, float) * np.exp(1j * np.asarray(info.va_rad, float))


def test_the_buses_that_switch_are_those_of_pandapower(run: Stepped) -> None:
    known = reference()
    expected = np.zeros(run.info.vm_pu.shape, int)
    expected[:, known.at] = EXPECTED["at_limit"]
    np.testing.assert_array_equal(run.info.at_q_limit, expected)
    assert (run.info.pf_status == Status.CONVERGED).all() and not run.info.terminated.any()


def test_voltages_are_those_of_pandapower(run: Stepped) -> None:
    assert np.abs(run.info.vm_pu - EXPECTED["v_pu"]).max() <= tolerance("v_pu", run.dtype)


def test_no_unit_is_left_outside_its_range(run: Stepped) -> None:
    """With every voltage held, as without the limits, 2 to 19 of the 53 PV buses are, in the reference's own flow."""
    known, rounding = reference(), reference().rounding(run.dtype)[reference().at]
    start = solve_base_state(known.case, known.net)
    held = solve_states(known.net, MeshedStates(known.given.p + 1j * known.given.q, known.given.v_set), start)
    before = known.outside(known.unit_reactive(held.v), known.rounding("float64")[known.at])
    assert held.converged.all() and (before.min(), before.max()) == (2, 19)
    q = known.unit_reactive(voltages(run.info))
    assert (known.outside(q, rounding) == 0).all()
    assert (np.abs(q - EXPECTED["q_unit_pu"]) <= rounding).all()
    assert (run.cost[:, run.sim.spec.cost_names.index("reactive_shortfall")] == 0).all()


def test_power_balances_at_every_bus_and_units_stay_in_range(run: Stepped) -> None:
    known, info = reference(), run.info
    case, v = known.case, voltages(run.info)
    injected = v * np.conj((known.net.ybus @ v.T).T)
    given = known.given.p + 1j * known.given.q
    rest = np.arange(case.n_bus) != case.slack_bus[0]
    rounding = known.rounding(run.dtype)
    assert (np.abs(injected.real - given.real) <= rounding)[:, rest].all()
    rest[known.at] = False
    assert (np.abs(injected.imag - given.imag) <= rounding)[:, rest].all()
    made = np.asarray(info.unit_power_mw, float)
    edge = tolerance("balance_relative", run.dtype) * case.unit.p_max_mw.sum()
    assert (made >= case.unit.p_min_mw - edge).all() and (made <= case.unit.p_max_mw + edge).all()
    needed = known.states.load_mw + info.p_loss_mw - info.unserved_mw
    rtol, atol = (tolerance(name, run.dtype) for name in ("balance_relative", "meshed_kcl_pu"))
    np.testing.assert_allclose(made.sum(1), needed, rtol, atol * case.base_mva)
