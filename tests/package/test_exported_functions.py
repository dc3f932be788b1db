"""Every exported function refuses what its arguments cannot be, before it compiles; compiled, it says BAD_INPUT.

The values are generated from what each function declares beside its arguments.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax import cases, devices, opf
from powerzoo_jax import powerflow as pf
from powerzoo_jax.base.errors import KindError, PowerZooError
from powerzoo_jax.base.ranges import ANY_SHAPE, BAD_INPUT, BOOL, FLAG, REAL, WHOLE, _arrays, _axes, _form, _limits
from powerzoo_jax.base.ranges import declared as _declared
from powerzoo_jax.cases import load_case, read_matpower, to_threephase
from powerzoo_jax.opf.dc.solve import Bids
from powerzoo_jax.powerflow.admittances import BranchData
from tests.base.test_ranges import numbers, outside

PACKAGES = (pf, opf, devices, cases)
NAN, INF = np.nan, np.inf

# Exported functions without a number of their own: of cases, results and files alone.
NO_NUMBERS = {
    "a case": {
        *("assert_valid", "assert_valid_feeder", "validate", "validate_threephase", "isolate_unsupplied"),
        *("commitment_table", "case_offers", "nominal_injection", "nominal_phase_load", "scheduled_injection"),
        *(
            "action_names",
            "element_injection",
            "prepare_reactive",
            "prepare_regulators",
            "to_matpower",
            "to_pandapower",
        ),
    },
    "a result of a solver, a prepared record, or several": {"explain", "split_prices", "stack_meshed", "stacked"},
    "a file, a net or a name": {
        *("load_case", "load_feeder", "list_cases", "list_feeders", "read_grid", "scan_grid"),
        *("convert_pandapower", "from_pandapower", "from_pypsa", "read_pypsa_series"),
    },
    "names or records of kinds": {"action_table", "register_kind"},
}

# What a parameter is where it is no number: a network, a prepared record, words, how a result is kept.
NAMES = {"dtype", "case", "result", "table", "net", "network", "snapshot"}


def exported() -> dict[str, Callable[..., Any]]:
    found = {name: getattr(package, name) for package in PACKAGES for name in dir(package)}
    return {name: x for name, x in found.items() if inspect.isfunction(x) and not name.startswith("_")}


def declared(function: Any) -> dict[str, Any]:
    return {name: kind for name, kind in _declared(function).items() if name != "return"}


# ---- one right call of every function


grid = cache(lambda: load_case("case5"))


@cache
def feeder() -> Any:
    return read_matpower(
        "mpc.version = '2';\nmpc.baseMVA = 10;\nmpc.bus = [\n"
        "1 3 0 0 0 0 1 1 0 20 1 1.1 0.9;\n2 1 1 0.4 0 0 1 1 0 20 1 1.1 0.9;\n3 1 1 0.4 0 0 1 1 0 20 1 1.1 0.9;\n];\n"
        "mpc.gen = [1 0 0 10 -10 1 100 1 10 0];\n"
        "mpc.branch = [1 2 0.01 0.02 0 0 0 0 0 0 1 -360 360; 2 3 0.01 0.02 0 0 0 0 0 0 1 -360 360];\n",
        "small",
    )


phases = cache(lambda: to_threephase(feeder(), regulators=(0,)))


def full(size: int | tuple[int, ...], value: float = 1.0) -> np.ndarray:
    return np.full(size, value, np.float32)


def loads() -> np.ndarray:
    return grid().p_load_mw.astype(np.float32)


def units(value: float = 1.0) -> np.ndarray:
    return full(grid().n_unit, value)


def ratings() -> np.ndarray:
    return full(grid().n_branch, 400.0)


dc_factors = cache(lambda: opf.prepare_dc_opf(grid()))
meshed = cache(lambda: pf.prepare_meshed(grid()))
outages = cache(lambda: pf.prepare_outages(grid(), participation=units()))
switching = cache(lambda: pf.prepare_switching(grid()))
splits = cache(lambda: pf.configurations(grid(), least_lines=1))
substations = cache(lambda: pf.prepare_topology(grid()))
secure = cache(lambda: opf.prepare_secure_dc_opf(grid(), grid().p_load_mw[None]))
dc_outages = cache(lambda: pf.prepare_dc_outages(grid()))
three_phase_factors = cache(lambda: pf.prepare_threephase(phases()))
rules = cache(lambda: opf.commitment_rules(grid().unit.p_min_mw, grid().unit.p_max_mw, ramp_mw=50.0, min_up=2))
fleet_state = cache(lambda: opf.initial_commitment(rules(), units(10.0)))


def commitment_table() -> Any:
    low, high, hours = units(0.0), units(100.0), units(2.0)
    costs = dict(startup_usd=hours, no_load_usd_per_hour=hours, ramp_mw_per_hour=high)
    kind = np.zeros(grid().n_unit, np.int64)
    times = dict(min_up_hours=hours, min_down_hours=hours)
    return cases.CommitmentTable(technology=kind, p_min_mw=low, p_max_mw=high, **times, **costs)


bids = cache(lambda: Bids(bus=jnp.array([1], jnp.int32), width_mw=jnp.full((1, 2), 5.0), price=jnp.full((1, 2), 40.0)))


@cache
def qp() -> Any:
    """min x + 2 y with x + y = 1, x - y free, both in [0, 1]."""
    one = jnp.ones(2)
    rows = jnp.array([1.0, -INF]), jnp.array([1.0, INF])
    a = jnp.array([[1.0, 1.0], [1.0, -1.0]])
    return opf.Qp(a=a, q=0 * one, c=jnp.array([1.0, 2.0]), lo=0 * one, hi=one, row_lo=rows[0], row_hi=rows[1])


def injections(n: int, **more: Any) -> dict[str, Any]:
    return dict(p_pu=full(n, -0.01), q_pu=full(n, -0.01), tol=1e-6, max_steps=20, **more)


def dispatch_options() -> dict[str, Any]:
    limits = dict(p_min_mw=units(0.0), p_max_mw=units(500.0), rate_mva=ratings())
    return dict(offers=dc_factors().offers, commitment=units(), voll=1000.0, **limits)


def dc_options() -> dict[str, Any]:
    more = dict(bids=bids(), surplus_price=500.0, reserve_mw=5.0, reserve_price=900.0, shedding=True)
    return dispatch_options() | more


def secure_options() -> dict[str, Any]:
    return {name: x for name, x in dc_options().items() if name != "rate_mva"}


def three_phase(**more: Any) -> dict[str, Any]:
    s = pf.nominal_phase_load(phases())
    return dict(factors=three_phase_factors(), p_pu=np.float32(s.real), q_pu=np.float32(s.imag), **more)


def flows(rate: bool = True, unit: bool = False) -> dict[str, Any]:
    more = (dict(rate=ratings() / 100) if rate else {}) | (dict(p_unit=units(0.5)) if unit else {})
    return dict(outages=dc_outages(), flow=full(grid().n_branch, 0.3), **more)


def states(n_bus: int, n_branch: int) -> Any:
    """Fields that audits read, all of them plausible."""
    bus, branch = full(n_bus), full(n_branch, 0.0)
    zero = np.float32(0)
    both = {name: branch for name in ("i_re", "i_im", "p_from", "q_from")}
    ends = dict(p_loss=zero, q_loss=zero, p_slack=zero, q_slack=zero, residual=zero)
    count = dict(iterations=np.int32(1), status=np.int32(1))
    return dict(v_re=bus, v_im=0 * bus, **both, **ends, **count)


def flat_feeder() -> Any:
    return pf.PowerFlowResult(**states(3, 2))


def flat_meshed() -> Any:
    n, m = grid().n_bus, grid().n_branch
    none, zero = full(m, 0.0), np.float32(0)
    more = dict(p_to=none, q_to=none, p_added=full(n, 0.0), q_bus=full(n, 0.0), p_shunt=zero, q_shunt=zero)
    return pf.MeshedResult(**states(n, m), **more)


def outage_result() -> Any:
    none = np.zeros(3, np.float32)
    fields = {f.name: none for f in dataclasses.fields(pf.OutageResult)}
    return pf.OutageResult(**fields | {"status": np.zeros(3, np.int32)})


def fleet(**more: Any) -> dict[str, Any]:
    return dict(rules=rules(), state=fleet_state(), **more)


def merit(**more: Any) -> dict[str, Any]:
    return dict(low_mw=units(0.0), high_mw=units(200.0), load_mw=np.float32(300.0), **more)


def ratings_of(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    given = {p.name: 50.0 if p.default is None else p.default for p in parameters if p.default is not p.empty}
    first = {"trips": trips()} if "trips" in inspect.signature(function).parameters else {"n_unit": 1}
    return given | first | {"dtype": "float32"}


trips = cache(lambda: devices.daily_trips([[devices.CommuteTrip()]], 30, "float32"))
SCRIPT = "New Circuit.a basekv=12.47 bus1=1\nNew Line.b bus1=1 bus2=2\nNew Load.c bus1=2 kw=1 kv=12.47\n"
PLACE = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], np.float32)

CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    # powerflow
    "check_feeder": lambda: dict(case=feeder(), p_pu=full(3, 0.0), q_pu=full(3, 0.0), result=flat_feeder()),
    "check_meshed": lambda: dict(case=grid(), p_pu=full(5, 0.0), q_pu=full(5, 0.0), result=flat_meshed()),
    "apply_action": lambda: dict(found=splits(), topology=np.asarray(substations().base), action=np.array(7, np.int32)),
    "rank_actions": lambda: dict(
        network=substations(),
        found=splits(),
        p_pu=full(substations().n_element, -0.01),
        q_pu=full(substations().n_element, -0.01),
        topology=np.asarray(substations().base),
        rate_pu=ratings(),
        only=np.array([0, 7], np.int32),
    ),
    "node_injection": lambda: dict(
        network=substations(),
        topology=np.asarray(substations().base),
        p_pu=full(substations().n_element, -0.01),
        q_pu=full(substations().n_element, -0.01),
    ),
    "prepare_topology": lambda: dict(case=grid(), plants=[1], storages=[2], conductance_pu=np.zeros(grid().n_branch)),
    "solve_topology": lambda: dict(
        network=substations(),
        p_pu=full(10, -0.01),
        q_pu=full(10, -0.01),
        topology=np.asarray(substations().base),
        v_set_pu=full(5),
    ),
    "configurations": lambda: dict(
        case=load_case("case14"),
        plants=[3, 13],
        storages=[9, 9],
        most=3,
        least_lines=2,
        least_elements=2,
        buses=[4, 5],
        given=[(5, [26, 24])],
    ),
    "diagnose": lambda: dict(case=feeder(), result=flat_feeder(), p_pu=full(3, 0.0), q_pu=full(3, 0.0)),
    "is_radial": lambda: dict(loops=pf.prepare_loops(grid()), opened=np.array([0, -1], np.int32)),
    "legality": lambda: dict(loops=pf.prepare_loops(grid()), opened=np.array([0, -1], np.int32)),
    "stays_connected": lambda: dict(loops=pf.prepare_loops(grid()), opened=np.array([0, -1], np.int32)),
    "open_switches": lambda: dict(closed=np.array([1, 0, 1], np.int32), count=1),
    "n_minus_1": lambda: injections(
        5,
        outages=outages(),
        v_set_pu=full(5),
        p_unit_pu=units(0.5),
        q_unit_pu=units(0.1),
        only=np.array([0, 1], np.int32),
        states=True,
    ),
    "screen_outages": lambda: dict(
        outages=outages(), dc=dc_outages(), flow_pu=full(6, 0.3), count=2, p_unit_pu=units(0.5)
    ),
    "worst_outages": lambda: dict(result=outage_result(), count=1),
    "outage_flows": lambda: flows(rate=False),
    "unit_outage_flows": lambda: flows(rate=False, unit=True),
    "worst_outage_loading": flows,
    "worst_unit_outage_loading": lambda: flows(unit=True),
    "pad_dc": lambda: dict(factors=pf.prepare_dc(grid()), n_bus=6, n_branch=7, n_island=1),
    "pad_injections": lambda: dict(values=[full(2), full(3)], n_bus=4, fill=1.0),
    "prepare_dc": lambda: dict(case=grid(), slack_share=full(5)),
    "prepare_dc_outages": lambda: dict(case=grid(), participation=units()),
    "prepare_feeder": lambda: dict(case=feeder(), active_bus_ids=[2, 3], load_factor=1.0, v_slack=1.0),
    "prepare_loops": lambda: dict(case=grid(), switches=[0, 1, 2, 3, 4, 5]),
    "prepare_meshed": lambda: dict(case=grid(), load_factor=1.0, schedules=False),
    "prepare_outages": lambda: dict(
        case=grid(), branches=[0], units=[0], participation=units(), load_factor=1.0, rate_pu=ratings()
    ),
    "prepare_switching": lambda: dict(case=grid(), switches=[0, 1, 2, 3, 4, 5], load_factor=1.0),
    "prepare_threephase": lambda: dict(case=phases(), movable_taps=True, load_factor=1.0),
    "simplify_feeder": lambda: dict(case=feeder(), reference=1),
    "slack_share": lambda: dict(case=grid(), weight=units()),
    "solve_dc": lambda: dict(factors=pf.prepare_dc(grid()), p_pu=full(5, 0.1)),
    "solve_feeder": lambda: injections(3, factors=pf.prepare_feeder(feeder())),
    "solve_feeder_active": lambda: injections(2, factors=pf.prepare_feeder(feeder()), flows=True, stragglers=True),
    "solve_meshed": lambda: injections(5, factors=meshed(), v_set_pu=full(5), slack_share=full(5, 0.2), fixed_steps=8),
    "solve_regulated": lambda: three_phase(
        control=pf.prepare_regulators(phases()), tap=np.zeros(3, np.int32), rounds=3
    ),
    "solve_switched": lambda: injections(
        5, switching=switching(), opened=np.array([0, -1], np.int32), v_set_pu=full(5)
    ),
    "solve_threephase": lambda: three_phase(taps=full(3), tol=1e-6, max_steps=20, stragglers=True),
    "solve_within_reactive_limits": lambda: dict(
        factors=meshed(),
        limits=pf.prepare_reactive(grid(), meshed()),
        p_pu=full(5, 0.0),
        q_pu=full(5, 0.0),
        v_set_pu=full(5),
        rounds=4,
    ),
    "split_reactive": lambda: dict(
        limits=pf.prepare_reactive(grid(), meshed()), q_pv=full(len(pf.prepare_reactive(grid(), meshed()).bus), 0.1)
    ),
    "voltage_unbalance": lambda: dict(
        v_re=np.float32([1, -0.5, -0.5]), v_im=np.float32([0, -0.87, 0.87]), buses=np.array([[0, 1, 2]], np.int32)
    ),
    "with_branches": lambda: dict(
        factors=meshed(), **{name: np.array(getattr(meshed().branch, name)) for name in declared(BranchData)}
    ),
    # opf
    "ac_opf": lambda: dict(
        factors=opf.prepare_ac_opf(grid()),
        p_load_mw=loads(),
        q_load_mvar=0.3 * loads(),
        max_steps=60,
        shedding=True,
        **dispatch_options(),
    ),
    "advance_commitment": lambda: fleet(on=units() > 0, p_mw=units(20.0)),
    "allocate_by_merit": lambda: merit(price=units()),
    "allocate_by_weight": lambda: merit(weight=units()),
    "balance_by_slack": lambda: merit(p_mw=units(), slack=units() > 0),
    "binding_rows": lambda: dict(case=grid(), loads_mw=loads()[None], rate_mva=ratings(), rating_scale=1.0),
    "capped_offers": lambda: dict(offers=dc_factors().offers, markup=full((5, 1), 0.1), price_cap=500.0),
    "clear_market": lambda: dict(factors=dc_factors(), load_mw=loads(), **dc_options()),
    "commitment_rules": lambda: dict(
        p_min_mw=units(0.0),
        p_max_mw=units(100.0),
        ramp_mw=units(50.0),
        start_mw=units(60.0),
        stop_mw=units(60.0),
        min_up=units(2.0),
        min_down=units(2.0),
        startup_usd=units(),
        shutdown_usd=units(),
        no_load_usd_per_hour=units(),
        available=units() > 0,
    ),
    "cost_of": lambda: dict(offers=dc_factors().offers, p_mw=units(50.0)),
    "dc_opf": lambda: dict(factors=dc_factors(), load_mw=loads(), **dc_options()),
    "dc_programme": lambda: dict(factors=dc_factors(), load_mw=loads(), **dc_options()),
    "dual_bound": lambda: dict(qp=qp(), row_price=full(2, 0.0)),
    "infeasibility": lambda: dict(qp=qp(), ray=full(2, 0.0)),
    "economic_dispatch": lambda: dict(
        offers=dc_factors().offers,
        load_mw=np.float32(300.0),
        p_min_mw=units(0.0),
        p_max_mw=units(200.0),
        commitment=units(),
        penalty_factor=units(1.1),
        voll=1000.0,
        surplus_price=500.0,
    ),
    "initial_commitment": lambda: dict(rules=rules(), p_mw=units(10.0), on=units() > 0),
    "legal_commitment": fleet,
    "make_cost_segments": lambda: dict(case=grid(), n=3),
    "no_load_cost": lambda: dict(rules=rules(), on=units() > 0),
    "output_window": lambda: fleet(on=units() > 0),
    "prepare_ac_opf": lambda: dict(case=grid(), rate_mva=ratings()),
    "prepare_dc_opf": lambda: dict(case=grid(), rate_mva=ratings(), rows=[0, 1], spill_bus_ids=[1]),
    "prepare_secure_dc_opf": lambda: dict(
        case=grid(), loads_mw=loads()[None], rate_mva=ratings(), emergency=1.1, rating_scale=1.0, voll=1000.0
    ),
    "project_commitment": lambda: fleet(intent=units() > 0),
    "ramp_window": lambda: dict(
        p_previous_mw=units(), up_mw=units(), down_mw=units(), p_min_mw=units(0.0), p_max_mw=units(9.0)
    ),
    "reserve_shortfall": lambda: dict(rules=rules(), on=units() > 0, load_mw=np.float32(300), share=0.1),
    "score_weights": lambda: dict(score=units()),
    "secure_dc_opf": lambda: dict(secure=secure(), load_mw=loads(), rating_scale=1.0, **secure_options()),
    "secure_programme": lambda: dict(secure=secure(), load_mw=loads(), rating_scale=1.0, **secure_options()),
    "shed_by_load": lambda: dict(load_mw=loads(), unserved_mw=np.float32(5.0)),
    "solve_qp": lambda: dict(qp=qp(), max_steps=30, shared_rows=True),
    "switching_cost": lambda: fleet(on=units() > 0),
    "table_rules": lambda: dict(table=commitment_table(), dt_hours=0.5, available=units() > 0),
    # devices
    "at_devices": lambda: dict(place=PLACE, x=full(3)),
    "bus_injection": lambda: dict(place=PLACE, p=full(2)),
    "daily_trips": lambda: dict(schedules=[[devices.CommuteTrip()]], dt_minutes=30, dtype="float32"),
    "session_trips": lambda: dict(
        sessions=[[devices.Session(1.0, 5.0, 9.0)]], horizon_hours=24.0, dt_minutes=30, dtype="float32"
    ),
    "idle": lambda: dict(like=full(2)),
    "inject": lambda: dict(at=devices.terminals([[0], [1]], 3, "float32"), x=full(2), n_node=3),
    "sense": lambda: dict(at=devices.terminals([[0], [1]], 3, "float32"), y=full(3), n_unit=2),
    "placement": lambda: dict(case=feeder(), bus_ids=[2, 3], dtype="float32"),
    "terminals": lambda: dict(nodes=[[0], [1]], n_node=3, dtype="float32"),
    **{name: partial(ratings_of, getattr(devices, name)) for name in dir(devices) if name.endswith("_params")},
    # cases
    "to_threephase": lambda: dict(case=feeder(), z_share=0.1, i_share=0.1, regulators=[0], capacitors_kvar={2: 100.0}),
    "read_opendss": lambda: dict(path="a.dss", read=lambda name: SCRIPT, max_mb=1.0),
    "read_opendss_series": lambda: dict(path="a.dss", read=lambda name: SCRIPT, hours=2.0, max_mb=1.0),
    "read_matpower": lambda: dict(path_or_text="mpc.version = '2';\n", max_mb=1.0),
    "scan_matpower": lambda: dict(path_or_text="mpc.version = '2';\n", max_mb=1.0),
    "from_matpower": lambda: dict(path=__file__, max_mb=1.0),
}

# ---- wrong values, from the declarations


def places(function: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Callable[[Any], dict[str, Any]]]]:
    """(label, declared type, right value, arguments with another one) of every number that a call gives."""
    rest = _rest(function)
    for name, value in given.items():
        kind = declared(function).get(name) or rest.get(name)
        record = _form(kind)
        if record is not None:
            for field, inner in _arrays(record).items():
                yield f"{name}.{field}", inner, getattr(value, field), partial(_within, given, name, field)
        elif kind is not None:
            yield name, kind, value, partial(_instead, given, name)


def _rest(function: Any) -> dict[str, Any]:
    """Declared types of what a function takes as `**options`."""
    options = {"clear_market": opf.dc_opf, "dc_programme": opf.dc_opf, "with_branches": BranchData}
    options |= {"secure_dc_opf": opf.dc_opf, "secure_programme": opf.dc_opf}
    return declared(options[function.__name__]) if function.__name__ in options else {}


def _within(given: Mapping[str, Any], name: str, field: str, wrong: Any) -> dict[str, Any]:
    return {**given, name: dataclasses.replace(given[name], **{field: wrong})}


def _instead(given: Mapping[str, Any], name: str, wrong: Any) -> dict[str, Any]:
    return {**given, name: wrong}


def optional(kind: Any) -> bool:
    return types.NoneType in get_args(kind)


def same_shape(kind: Any, right: np.ndarray, sizes: Mapping[str, int]) -> Iterator[tuple[str, np.ndarray]]:
    """Numbers of the right shape and type outside a declared range."""
    how, limits = _axes(kind)[0], _limits(kind)

    def of(value: float) -> np.ndarray:
        wrong = np.array(right, np.float32 if how.kind in (REAL, FLAG, BOOL) else np.int32)
        wrong[...] = value
        return wrong

    if how.kind in (FLAG, BOOL):
        yield from (("a fraction", of(0.5)), ("two", of(2)), ("nan", of(NAN)))
    elif how.below is not None:
        yield "beyond the axis", of(sizes[how.below])
        yield "below", of((limits.low if limits else 0) - 1)
    elif limits is not None:
        if how.kind == REAL:
            yield "nan", of(NAN)
            yield from (("inf", of(INF)),) if not limits.infinite else ()
            yield from (("-inf", of(-INF)),) if not limits.bottomless else ()
        if np.isfinite(limits.low):
            yield "below", of(limits.low - 1)
            yield from (("the open end", of(limits.low)),) if limits.open_low else ()


def other_kinds(kind: Any, right: np.ndarray) -> Iterator[tuple[str, Any]]:
    """What holds no numbers, or numbers of another kind."""
    how = _axes(kind)[0]
    yield "complex", right.astype(np.complex64)
    yield "words", np.full(right.shape, "1")
    yield "text", "1"
    yield "nothing in each", np.full(right.shape, None)
    yield from (("None", None),) if not optional(kind) else ()
    yield from (("bool", np.ones(right.shape, bool)),) if how.kind in (REAL, WHOLE) else ()
    yield from (("a fraction", np.full(right.shape, 0.5)),) if how.kind == WHOLE else ()
    yield from (("nan", np.full(right.shape, NAN)),) if how.kind == WHOLE else ()


def other_lengths(kind: Any, right: np.ndarray, shared: set[str]) -> Iterator[tuple[str, np.ndarray]]:
    alternatives = _axes(kind)
    if any(how.names == ANY_SHAPE for how in alternatives):
        return
    if right.ndim + 2 not in {len(how.names) for how in alternatives}:
        yield "two more axes", right[None, None]
    for axis, name in enumerate(alternatives[0].names):
        if isinstance(name, int) or name in shared:
            yield f"longer along {name}", np.concatenate([right, right], axis)
            if right.shape[axis] > 1 and not any(1 in how.names or not how.names for how in alternatives):
                yield f"length 1 along {name}", np.take(right, [0], axis)


def lengths(function: Any, given: Mapping[str, Any]) -> dict[str, int]:
    """Lengths of the axes that records tell, or that several arguments share."""
    count: dict[str, list[int]] = {}
    for _, kind, right, _ in places(function, given):
        if _axes(kind) and _axes(kind)[0].names != ANY_SHAPE:
            for name, n in zip(_axes(kind)[0].names, np.shape(right), strict=False):
                count.setdefault(name, []).append(n)
    told = {axis for name, value in given.items() for axis in getattr(value, "AXES", {})}
    return {name: found[0] for name, found in count.items() if len(found) > 1 or name in told}


def all_sizes(given: Mapping[str, Any], function: Any) -> dict[str, int]:
    sizes = lengths(function, given)
    for value in given.values():
        for axis in getattr(value, "AXES", {}):
            if axis not in sizes:
                path = value
                for part in value.AXES[axis].split("."):
                    path = getattr(path, part)
                sizes[axis] = path if isinstance(path, int) else path.shape[-1]
    sizes.setdefault("N", 3)
    return sizes


EVERY = exported()
LISTED = set().union(*NO_NUMBERS.values())


SLOW = [
    *(
        "n_minus_1",
        "rank_actions",
        "solve_topology",
        "screen_outages",
        "solve_regulated",
        "solve_switched",
        "solve_threephase",
    ),
    *("solve_within_reactive_limits", "split_reactive", "ac_opf", "secure_dc_opf", "secure_programme"),
]


def test_every_exported_function_is_tried_or_takes_no_numbers():
    assert LISTED.isdisjoint(CALLS) and EVERY.keys() == LISTED | CALLS.keys()
    assert len(CALLS) > 80


def bare(kind: Any) -> Iterator[Any]:
    """Numbers that a declared type names without a range or axes."""
    origin = get_origin(kind)
    if origin is Annotated:
        return
    if kind in (int, float, complex, np.ndarray, jax.Array):
        yield kind
    elif origin in (Union, types.UnionType) or origin is tuple:
        for part in get_args(kind):
            yield from bare(part)


# Parameters whose numbers stand deeper, and are looked at one by one.
DEEPER = {
    "daily_trips": {"schedules"},
    "session_trips": {"sessions"},
    "terminals": {"nodes"},
    "pad_injections": {"values"},
    "to_threephase": {"capacitors_kvar"},
    "read_opendss": {"taps", "max_mb"},
    "read_opendss_series": {"max_mb"},
    "read_matpower": {"max_mb"},
    "scan_matpower": {"max_mb"},
    "from_matpower": {"max_mb"},
    "with_branches": {"changes"},
    "load_case": {"name_or_path"},  # a number is a name
    "load_feeder": {"name_or_path"},
}


@pytest.mark.parametrize("name", EVERY)
def test_every_number_of_an_exported_function_is_declared(name):
    hints = declared(EVERY[name])
    undeclared = {parameter for parameter, kind in hints.items() if list(bare(kind))}
    assert undeclared <= DEEPER.get(name, set())


def numeric(kind: Any) -> bool:
    """Whether a parameter takes numbers: such a call of the test gives them."""
    return bool(_axes(kind) or list(numbers(kind))) or _form(kind) in (opf.Offers, Bids, opf.Qp)


def refused(function: Any, arguments: Mapping[str, Any], what: str) -> None:
    try:
        out = function(**arguments)
    except PowerZooError as err:
        assert len(str(err)) < 700 and str(err).endswith(".")
    else:
        raise AssertionError(f"{function.__name__} takes {what}: {jax.tree.map(np.shape, out)}")


@pytest.mark.tiers(full=SLOW)
@pytest.mark.parametrize("name", CALLS)
def test_what_an_argument_cannot_be_is_refused_before_anything_is_solved(name):
    function, given, tried = EVERY[name], CALLS[name](), 0
    assert {p for p, kind in declared(function).items() if numeric(kind)} <= given.keys() | {"taps"}
    sizes = all_sizes(given, function)
    shared = set(lengths(function, given)) | {axis for x in given.values() for axis in getattr(x, "AXES", {})}
    for label, kind, right, put in places(function, given):
        if _axes(kind):
            right = np.asarray(right)
            wrong = [*other_kinds(kind, right), *same_shape(kind, right, sizes), *other_lengths(kind, right, shared)]
            if any(how.names == ANY_SHAPE for how in _axes(kind)) and "weight" in label:
                wrong = [x for x in wrong if x[0] != "None"]
        else:
            wrong = [(repr(x), x) for x in outside(kind)]
        for what, value in wrong:
            tried += 1
            refused(function, put(value), f"{label} with {what}")
    assert tried or name in DEEPER


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: devices.daily_trips([[(8.0, 18.0, NAN)]], 30, "float32"), "energy_kwh=nan"),
        (lambda: devices.daily_trips([[(NAN, 18.0, 9.0)]], 30, "float32"), "entry = nan must be finite"),
        (lambda: devices.daily_trips([[(8.0, 18.0, 1e45)]], 30, "float32"), "beyond the numbers of float32"),
        (lambda: devices.session_trips([[(1.0, 5.0, INF)]], 24.0, 30, "float32"), "entry = inf must be finite"),
        (lambda: devices.session_trips([[(1.0, 5.0, "9")]], 24.0, 30, "float32"), "must be a number"),
        (lambda: devices.terminals([[0.5]], 3, "float32"), "whole numbers"),
        (lambda: pf.pad_injections([full(2) + 1j], 3), "s.real or s.imag"),
        (lambda: to_threephase(feeder(), capacitors_kvar={2: NAN}), r"capacitors_kvar\[2\] = nan"),
        (lambda: cases.read_opendss("a.dss", taps={"reg": 0.5}, read=lambda _: SCRIPT), r"taps\['reg'\] = 0.5"),
        (lambda: cases.read_opendss("a.dss", max_mb=NAN), "max_mb = nan"),
        (lambda: cases.read_matpower("mpc.version = '2';\n", max_mb=NAN), "max_mb = nan"),
        (lambda: cases.from_matpower(__file__, max_mb=-1), "max_mb = -1"),
        (lambda: devices.renewable_params(1, "float32", capacity_mw=1e39), "beyond the numbers of float32"),
        (lambda: devices.storage_params(1, "float32", capacity_mwh=1e-50), "beyond the numbers of float32"),
        (lambda: devices.vehicle_params(trips(), "float32", unmet_usd_per_mwh=1e39), "beyond the numbers of float32"),
        (lambda: opf.commitment_rules([0.0], [1e39]), "beyond the numbers of float32"),
        (lambda: opf.commitment_rules([0.0], [9.0], min_down=1.5), "no whole number of at least 1 step"),
        (lambda: opf.commitment_rules([0.0], [9.0], min_down=NAN), "no whole number of at least 1 step"),
        (lambda: opf.commitment_rules([0.0], [9.0], min_up=1e12), "no whole number of at least 1 step"),
        (lambda: opf.commitment_rules([NAN], [9.0], available=False), "no finite numbers"),
    ],
)
def test_numbers_deeper_in_an_argument_are_refused(call, what):
    with pytest.raises(PowerZooError, match=what):
        call()


# ---- traced


def kernels() -> list[str]:
    """Functions of arrays of the device."""
    return [
        name
        for name, call in CALLS.items()
        if any(jax.Array in _flat_types(kind) for kind in declared(EVERY[name]).values() if _axes(kind))
        or any(_form(kind) in (opf.Offers, opf.Qp, opf.CommitmentRules) for kind in declared(EVERY[name]).values())
        or name == "with_branches"
    ]


def _flat_types(kind: Any) -> set[Any]:
    if get_origin(kind) is Annotated:
        return _flat_types(get_args(kind)[0])
    return {kind}.union(*map(_flat_types, get_args(kind)))


HOST_ONLY = {"dual_bound", "infeasibility"}  # of a programme, in float64
HANDS_ON = {"node_injection"}  # NaN to the solver, which tells it by its status
MAY_BE_INFINITE = {"dc_programme", "secure_programme"}  # open limits of rows
TRACED = [name for name in kernels() if name not in HOST_ONLY | HANDS_ON]


def statuses(out: Any) -> list[Any]:
    paths = jax.tree_util.tree_flatten_with_path(out)[0]
    return [leaf for path, leaf in paths if path and getattr(path[-1], "name", "") == "status"]


def usable(name: str, out: Any) -> bool:
    leaves = [x for x in jax.tree.leaves(out) if jnp.issubdtype(x.dtype, jnp.floating)]
    test = np.isnan if name in MAY_BE_INFINITE else lambda x: ~np.isfinite(x)
    return not any(test(np.asarray(x)).any() for x in leaves)


@pytest.mark.full
@pytest.mark.parametrize("name", TRACED)
def test_a_compiled_program_answers_with_bad_input_and_finite_numbers(name):
    function, given = EVERY[name], CALLS[name]()
    numbers = [place for place in places(function, given) if _axes(place[1])]
    sizes = all_sizes(given, function)
    right = {label: np.asarray(value) for label, _, value, _ in numbers}

    @jax.jit
    def solve(arrays: Any) -> Any:
        arguments = dict(given)
        for label, array in arrays.items():
            parameter, _, field = label.partition(".")
            if field:
                arguments[parameter] = dataclasses.replace(arguments[parameter], **{field: array})
            else:
                arguments[parameter] = array
        return function(**arguments)

    out = solve(right)
    assert usable(name, out) and all((np.asarray(x) != BAD_INPUT).all() for x in statuses(out))
    for label, kind, value, _ in numbers:
        for what, wrong in same_shape(kind, np.asarray(value), sizes):
            if wrong.dtype != right[label].dtype:
                continue  # another program; of flags that are bool there is none outside
            out = solve({**right, label: wrong})
            assert usable(name, out), f"{label} with {what}"
            assert all((np.asarray(x) == BAD_INPUT).all() for x in statuses(out)), f"{label} with {what}"


@pytest.mark.tiers(full=SLOW)
@pytest.mark.parametrize("name", TRACED)
def test_shapes_and_kinds_are_refused_while_a_program_is_made(name):
    function, given = EVERY[name], CALLS[name]()
    for _, kind, value, put in places(function, given):
        if not _axes(kind) or any(how.names == ANY_SHAPE for how in _axes(kind)):
            continue
        array = jnp.asarray(value)
        with pytest.raises(PowerZooError, match="expected"):
            jax.eval_shape(lambda x, put=put: function(**put(x)), array[None, None])
        with pytest.raises(KindError):
            jax.eval_shape(lambda x, put=put: function(**put(x)), array.astype(jnp.complex64))


def test_the_statuses_of_both_packages_agree():
    assert BAD_INPUT == pf.Status.BAD_INPUT == opf.OpfStatus.BAD_INPUT


def test_an_array_of_the_device_keeps_its_digits_where_x64_is_off():
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: x.astype(jnp.float64), qp())
        wide = dataclasses.replace(wide, c=wide.c + 1e-12)
    assert opf.dual_bound(wide, np.array([2.0, 0.0])) == pytest.approx(1 + 1e-12, rel=0, abs=1e-15)
