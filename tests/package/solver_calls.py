"""Calls that reach every public function of `powerflow` and `opf` that works on arrays, eight lanes each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax import opf
from powerzoo_jax import powerflow as pf
from powerzoo_jax.cases import load_case, load_feeder
from powerzoo_jax.opf.dc.solve import Bids

LANES = 8  # from here on the first step of a feeder is a rough product
SPAN = np.linspace(0.9, 1.1, LANES)
CASE = load_case("pz_case14")

# What a public module offers beside functions of arrays: these run on the host and once.
HOST = {
    *("prepare_ac_opf", "prepare_dc", "prepare_dc_opf", "prepare_dc_outages", "prepare_feeder", "prepare_loops"),
    *("prepare_meshed", "prepare_outages", "prepare_reactive", "prepare_regulators", "prepare_secure_dc_opf"),
    *("prepare_switching", "prepare_threephase", "nominal_injection", "nominal_phase_load", "scheduled_injection"),
    *("slack_share", "pad_dc", "pad_injections", "stack_meshed", "check_feeder", "check_meshed", "diagnose", "explain"),
    *("action_names", "configurations", "element_injection", "prepare_topology"),
    *("binding_rows", "case_offers", "make_cost_segments", "commitment_rules", "table_rules"),
    *("dual_bound", "infeasibility", "simplify_feeder"),
}


class Call(NamedTuple):
    """A function of one lane; its arguments `shared` come first, those of `lanes` have a first axis (LANES,)."""

    function: Callable[..., Any]
    shared: tuple[Any, ...]
    lanes: tuple[Any, ...]

    def mapped(self, *lanes: Any) -> Any:
        axes = (None,) * len(self.shared) + (0,) * len(lanes)
        return jax.vmap(self.function, in_axes=axes)(*self.shared, *lanes)

    def with_derivative(self, *lanes: Any) -> Any:
        """Values and forward derivatives by real arrays; reverse mode transposes the same products."""
        real = [k for k, x in enumerate(lanes) if jnp.issubdtype(x.dtype, jnp.floating)]

        def at(*given: Any) -> Any:
            every = dict(enumerate(lanes)) | dict(zip(real, given, strict=True))
            return self.mapped(*every.values())

        point = tuple(lanes[k] for k in real)
        return jax.jvp(at, point, point) if real else at()


def _spread(x: Any) -> Any:
    """Lanes around the values x."""
    return jnp.asarray(np.multiply.outer(SPAN, np.asarray(x)).astype(np.float32))


def _injections(case: Any = CASE) -> tuple[Any, Any]:
    s = pf.nominal_injection(case)
    return _spread(s.real), _spread(s.imag)


@cache
def _meshed() -> Any:
    return pf.prepare_meshed(CASE)


def _solve_meshed() -> Call:
    share = jnp.asarray(pf.slack_share(CASE), jnp.float32)
    return Call(lambda f, w, p, q: pf.solve_meshed(f, p, q, slack_share=w), (_meshed(), share), _injections())


def _fixed_steps() -> Call:
    return Call(partial(pf.solve_meshed, fixed_steps=4), (_meshed(),), _injections())


def _own_branches() -> Call:
    def solve(f: Any, r: Any, p: Any, q: Any) -> Any:
        return pf.solve_meshed(pf.with_branches(f, r_pu=r), p, q)

    return Call(solve, (_meshed(),), (_spread(CASE.branch.r_pu), *_injections()))


def _reactive() -> Call:
    def solve(f: Any, limits: Any, p: Any, q: Any) -> Any:
        found = pf.solve_within_reactive_limits(f, limits, p, q)
        return found, pf.split_reactive(limits, found.q_pv)

    return Call(solve, (_meshed(), pf.prepare_reactive(CASE, _meshed())), _injections())


def _dc() -> Call:
    rate = jnp.full(CASE.n_branch, 0.5, jnp.float32)

    def solve(dc: Any, outages: Any, p: Any) -> Any:
        flow = pf.solve_dc(dc, p).p_from
        after = pf.outage_flows(outages, flow), pf.unit_outage_flows(outages, flow)
        return after, pf.worst_outage_loading(outages, flow, rate), pf.worst_unit_outage_loading(outages, flow, rate)

    return Call(solve, (pf.prepare_dc(CASE), pf.prepare_dc_outages(CASE)), (_spread(pf.scheduled_injection(CASE)),))


def _n_minus_1() -> Call:
    outages = pf.prepare_outages(CASE, rate_pu=np.full(CASE.n_branch, 0.5))

    def solve(outages: Any, dc: Any, p: Any, q: Any, flow: Any) -> Any:
        found, states = pf.n_minus_1(outages, p, q, only=pf.screen_outages(outages, dc, flow, 4), states=True)
        return found, states, pf.worst_outages(found, 2)

    flow = _spread(np.full(CASE.n_branch, 0.1))
    return Call(solve, (outages, pf.prepare_dc_outages(CASE)), (*_injections(), flow))


def _switched() -> Call:
    switching = pf.prepare_switching(CASE)

    def solve(switching: Any, closed: Any, p: Any, q: Any) -> Any:
        opened, loops = pf.open_switches(closed, 3), switching.loops
        judged = pf.legality(loops, opened), pf.stays_connected(loops, opened), pf.is_radial(loops, opened)
        return pf.solve_switched(switching, opened, p, q), judged

    closed = jnp.ones((LANES, switching.loops.n_switch), jnp.int32).at[:, 3].set(0)
    return Call(solve, (switching,), (closed, *_injections()))


def _actions() -> Call:
    network, found = pf.prepare_topology(CASE), pf.configurations(CASE)
    s = pf.element_injection(CASE, network)
    some = jnp.arange(0, found.n_action, 9, dtype=jnp.int32)

    def solve(network: Any, found: Any, p: Any, q: Any) -> Any:
        after = pf.apply_action(found, network.base, some[-1])
        state = pf.solve_topology(network, *pf.node_injection(network, after, p, q), after)
        return state, pf.rank_actions(network, found, p, q, after, only=some)

    return Call(solve, (network, found), (_spread(s.real), _spread(s.imag)))


def _feeder() -> Call:
    case = load_case("case33bw")
    return Call(pf.solve_feeder, (pf.prepare_feeder(case),), _injections(case))


def _feeder_active() -> Call:
    case = load_case("case33bw")
    factors = pf.prepare_feeder(case)
    return Call(pf.solve_feeder_active, (factors,), tuple(x[:, factors.active] for x in _injections(case)))


def _three_phases() -> Call:
    case = load_feeder("ieee13")
    s, buses = pf.nominal_phase_load(case), jnp.zeros((1, 3), jnp.int32)

    def solve(factors: Any, control: Any, p: Any, q: Any) -> Any:
        plain, settled = pf.solve_threephase(factors, p, q), pf.solve_regulated(factors, control, p, q)
        return plain, settled, pf.voltage_unbalance(plain.v_re, plain.v_im, buses)

    return Call(solve, (pf.prepare_threephase(case), pf.prepare_regulators(case)), (_spread(s.real), _spread(s.imag)))


@cache
def _dc_opf_factors() -> Any:
    return opf.prepare_dc_opf(CASE)


def _dc_opf() -> Call:
    return Call(partial(opf.dc_opf, reserve_mw=10.0), (_dc_opf_factors(),), (_spread(CASE.p_load_mw),))


def _market() -> Call:
    bids = Bids(bus=jnp.array([3], jnp.int32), width_mw=jnp.full((1, 1), 5.0), price=jnp.full((1, 1), 40.0))

    def clear(factors: Any, bids: Any, load: Any) -> Any:
        return opf.clear_market(factors, opf.capped_offers(factors.offers, jnp.float32(1.1)), load, bids=bids)

    return Call(clear, (_dc_opf_factors(), bids), (_spread(CASE.p_load_mw),))


def _secure() -> Call:
    case = load_case("pz_case5")
    secure = opf.prepare_secure_dc_opf(case, case.p_load_mw[None])

    def solve(secure: Any, dc: Any, load: Any) -> Any:
        return opf.secure_dc_opf(secure, load), opf.secure_programme(secure, load), opf.dc_programme(dc, load)

    return Call(solve, (secure, opf.prepare_dc_opf(case)), (_spread(case.p_load_mw),))


def _qp() -> Call:
    """Rows of its own for every lane: the system is multiplied out at every step."""
    qp = opf.dc_programme(_dc_opf_factors(), jnp.asarray(CASE.p_load_mw, jnp.float32))

    def solve(a: Any, c: Any) -> Any:
        return opf.solve_qp(qp.replace(a=a, c=c), shared_rows=False)

    return Call(solve, (), (_spread(qp.a), _spread(qp.c)))


def _ac_opf() -> Call:
    def solve(factors: Any, p: Any, q: Any) -> Any:
        found = opf.ac_opf(factors, p, q)
        return found, opf.split_prices(factors, found)

    return Call(solve, (opf.prepare_ac_opf(CASE),), (_spread(CASE.p_load_mw), _spread(CASE.q_load_mvar)))


def _dispatch() -> Call:
    offers = opf.case_offers(CASE)
    low, high = (jnp.asarray(x, jnp.float32) for x in (CASE.unit.p_min_mw, CASE.unit.p_max_mw))

    def solve(offers: Any, load: Any) -> Any:
        found = opf.economic_dispatch(offers, load, *opf.ramp_window(low, high, high, low, high))
        slack, price = jnp.ones_like(low), offers.price[:, 0]
        shares = opf.allocate_by_weight(opf.score_weights(price), low, high, load)
        merit = opf.allocate_by_merit(price, low, high, load)
        rest = opf.balance_by_slack(merit.p_mw, low, high, slack, load)
        shed = opf.shed_by_load(jnp.ones(3, load.dtype) * load, rest.unserved_mw)
        return found, opf.cost_of(offers, shares.p_mw), shed

    return Call(solve, (offers,), (_spread(CASE.p_load_mw.sum()),))


def _commitment() -> Call:
    rules = opf.commitment_rules(CASE.unit.p_min_mw, CASE.unit.p_max_mw)

    def solve(rules: Any, p: Any) -> Any:
        state = opf.initial_commitment(rules, p)
        on, changed = opf.project_commitment(rules, state, opf.legal_commitment(rules, state)[..., 0])
        window, cost = opf.output_window(rules, state, on), opf.switching_cost(rules, state, on)
        late = opf.advance_commitment(rules, state, on, p), opf.reserve_shortfall(rules, on, jnp.sum(p))
        return changed, window, cost, opf.no_load_cost(rules, on), late

    return Call(solve, (rules,), (_spread(CASE.unit.p_max_mw),))


CALLS: dict[str, Callable[[], Call]] = {
    "solve_meshed": _solve_meshed,
    "solve_meshed fixed_steps": _fixed_steps,
    "solve_meshed with_branches": _own_branches,
    "solve_within_reactive_limits split_reactive": _reactive,
    "solve_dc outage_flows unit_outage_flows worst_outage_loading worst_unit_outage_loading": _dc,
    "n_minus_1 screen_outages worst_outages": _n_minus_1,
    "solve_switched open_switches legality stays_connected is_radial": _switched,
    "rank_actions apply_action solve_topology node_injection": _actions,
    "solve_feeder": _feeder,
    "solve_feeder_active": _feeder_active,
    "solve_threephase solve_regulated voltage_unbalance": _three_phases,
    "dc_opf": _dc_opf,
    "clear_market capped_offers": _market,
    "secure_dc_opf secure_programme dc_programme": _secure,
    "solve_qp": _qp,
    "ac_opf split_prices": _ac_opf,
    "economic_dispatch ramp_window allocate_by_weight score_weights allocate_by_merit balance_by_slack shed_by_load "
    "cost_of": _dispatch,
    "initial_commitment legal_commitment project_commitment output_window switching_cost advance_commitment "
    "reserve_shortfall no_load_cost": _commitment,
}
