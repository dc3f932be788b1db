"""Outages inside a compiled step: chosen ones equal those of the whole list, ranks, gradients, refusals, bad lanes."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import (
    OutageResult,
    Status,
    n_minus_1,
    nominal_injection,
    prepare_dc,
    prepare_dc_outages,
    prepare_loops,
    prepare_outages,
    prepare_switching,
    scheduled_injection,
    screen_outages,
    solve_dc,
    worst_outages,
)
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

# Branch 7-8 of case14: bus 8 hangs on it alone. With so many lanes outages have factors of their own, chosen rows not
LANES, BRIDGE, NAMED = 33, 13, 5
SLACK, FLAGGED = 20, [13, 20]  # the first unit is the only one of the slack bus
STEP = 1e-6
SPAN = (0.8, 1.19)  # no lane at the base state, where a step is enough


@cache
def solved() -> tuple[Any, ...]:
    """All outages of case14 in scenarios of which the last is not finite, and a few chosen ones per scenario."""
    case = load_case("case14")
    outages = prepare_outages(case, rate_pu=np.full(case.n_branch, 0.5))
    s = nominal_injection(case) * np.linspace(*SPAN, LANES)[:, None]
    p, q = jnp.asarray(s.real, jnp.float32), jnp.asarray(s.imag, jnp.float32)
    p = p.at[-1, 4].set(jnp.nan)
    dc, flow = prepare_dc_outages(case), solve_dc(prepare_dc(case), jnp.asarray(scheduled_injection(case), jnp.float32))

    def step(outages: Any, p: jax.Array, q: jax.Array) -> tuple[Any, ...]:
        named = jnp.asarray([BRIDGE, SLACK, SLACK + 1], jnp.int32)
        rows = jnp.concatenate([named, screen_outages(outages, dc, flow.p_from, NAMED - 1)])
        every = n_minus_1(outages, p, q)
        return every, rows, n_minus_1(outages, p, q, only=rows), worst_outages(every, 3)

    found = jax.jit(jax.vmap(step, in_axes=(None, 0, 0)))(outages, p, q)
    return jax.tree.map(np.asarray, found)  # type: ignore[no-any-return]


@pytest.mark.long
def test_chosen_outages_equal_those_of_the_whole_list() -> None:
    every, rows, chosen, _ = solved()
    for field in dataclasses.fields(OutageResult):
        if field.name in ("iterations", "worst_branch", "residual"):
            continue
        whole = np.take_along_axis(getattr(every, field.name), rows, 1)
        assert np.abs(whole[:-1] - getattr(chosen, field.name)[:-1]).max() <= tolerance("outage_flow_pu", "float32")


@pytest.mark.long
def test_an_outage_that_cuts_a_bus_off_is_flagged_with_finite_numbers() -> None:
    every, *_ = solved()
    assert (every.status[:-1, FLAGGED] == Status.ISLANDED).all()
    assert (np.delete(every.status[:-1], FLAGGED, 1) == Status.CONVERGED).all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(every))


@pytest.mark.long
def test_newton_finds_what_the_chord_finds_after_the_loss_of_units() -> None:
    case, every = load_case("case14"), solved()[0]
    outages = prepare_outages(case, branches=[0], rate_pu=np.full(case.n_branch, 0.5))
    s = nominal_injection(case) * np.linspace(*SPAN, LANES)[:-1, None]
    p, q = jnp.asarray(s.real, jnp.float32), jnp.asarray(s.imag, jnp.float32)
    # one step is never enough for the chord: every lane goes on by Newton
    by_newton = jax.vmap(lambda o, p, q: n_minus_1(o, p, q, max_steps=1), in_axes=(None, 0, 0))
    found = jax.tree.map(np.asarray, jax.jit(by_newton)(outages, p, q))
    rows = np.r_[0, SLACK + 1 : SLACK + 5]
    kept = np.delete(np.arange(6), 1)  # without the slack's unit
    assert (found.status[:, kept] == Status.CONVERGED).all()
    assert (found.iterations[:, kept] > 2).all()
    for name in ("loading", "violation", "v_min", "v_max"):
        difference = getattr(found, name)[:, kept] - getattr(every, name)[:-1, rows]
        assert np.abs(difference).max() <= tolerance("outage_flow_pu", "float32")


@pytest.mark.long
def test_a_scenario_that_is_not_finite_is_told_from_its_neighbours() -> None:
    every, *_ = solved()
    assert (np.delete(every.status[-1], FLAGGED) == Status.BAD_INPUT).all()


@pytest.mark.long
def test_the_worst_outages_have_the_highest_loading() -> None:
    every, _, _, worst = solved()
    loading = np.where(every.status == Status.ISLANDED, -1.0, every.loading)[:-1]
    assert (np.take_along_axis(loading, worst[:-1], 1) == -np.sort(-loading, 1)[:, :3]).all()


@pytest.mark.long
def test_screening_by_lodf_finds_the_outage_that_loads_most_in_ac() -> None:
    every, rows, _, worst = solved()
    middle = LANES // 2
    assert worst[middle, 0] in rows[middle]
    assert every.loading[middle, worst[middle, 0]] > 1


@pytest.mark.long
def test_derivatives_of_a_security_cost_are_central_differences() -> None:
    case, rng = load_case("case14"), np.random.default_rng(1)
    s, unit = 1.1 * nominal_injection(case), case.unit
    with jax.enable_x64(True):
        weight = np.ones(len(unit.bus_id))
        outages = prepare_outages(case, rate_pu=np.full(case.n_branch, 0.3), participation=weight, dtype="float64")
        v_set = np.full(case.n_bus, 1.03)
        numbers = (s.real, s.imag, v_set, 1.05 * unit.p_mw / case.base_mva, unit.q_mvar / case.base_mva)
        given = tuple(map(jnp.asarray, numbers))

        def cost(p: jax.Array, q: jax.Array, v_set: jax.Array, p_unit: jax.Array, q_unit: jax.Array) -> jax.Array:
            after, state = n_minus_1(outages, p, q, v_set, p_unit_pu=p_unit, q_unit_pu=q_unit, states=True, tol=1e-13)
            solved = after.status == Status.CONVERGED
            each = after.overload + 3 * after.violation + 0.1 * after.loading + after.v_min
            return jnp.sum(jnp.where(solved, each, 0)) + 1e-3 * jnp.sum(state.p_to * state.p_to)

        @jax.jit
        def everything(given: Any, by: Any) -> tuple[Any, Any, Any]:
            value, gradient = jax.value_and_grad(cost, argnums=(0, 1, 2, 3, 4))(*given)
            return value, gradient, jax.jvp(cost, given, by)[1]

        for alone in (None, *range(5)):
            by = [jnp.asarray(rng.normal(size=x.shape)) * float(alone in (None, k)) for k, x in enumerate(given)]
            up, down = (
                everything(tuple(x + sign * STEP * u for x, u in zip(given, by, strict=True)), tuple(by))[0]
                for sign in (1, -1)
            )
            numeric = float(up - down) / (2 * STEP)
            _, gradient, forward = everything(given, tuple(by))
            reverse = sum(float(jnp.vdot(g, u)) for g, u in zip(gradient, by, strict=True))
            limit = tolerance("gradient_relative", "float64") * max(1.0, abs(numeric))
            assert abs(reverse - numeric) <= limit
            assert abs(float(forward) - numeric) <= limit
            assert abs(numeric) > 1e-3


@pytest.mark.long
def test_derivatives_of_a_batch_with_factors_of_its_own_are_central_differences() -> None:
    case, rng = load_case("case14"), np.random.default_rng(2)
    s = nominal_injection(case) * np.linspace(*SPAN, LANES)[:, None]
    with jax.enable_x64(True):
        outages = prepare_outages(case, rate_pu=np.full(case.n_branch, 0.3), dtype="float64")
        given, by = ([jnp.asarray(x) for x in pair] for pair in ((s.real, s.imag), rng.normal(size=(2, *s.shape))))

        def cost(p: jax.Array, q: jax.Array) -> jax.Array:
            after = n_minus_1(outages, p, q, tol=1e-13)
            return jnp.sum(jnp.where(after.status == Status.CONVERGED, after.overload + after.loading + after.v_min, 0))

        everything = jax.jit(jax.vmap(jax.value_and_grad(cost, argnums=(0, 1))))
        high, low = (everything(*(x + sign * STEP * u for x, u in zip(given, by, strict=True)))[0] for sign in (1, -1))
        numeric = np.asarray(high - low) / (2 * STEP)
        gradient = everything(*given)[1]
        reverse = sum(np.asarray(jnp.sum(g * u, axis=1)) for g, u in zip(gradient, by, strict=True))
    limit = tolerance("gradient_relative", "float64") * np.maximum(1.0, np.abs(numeric))
    assert (np.abs(reverse - numeric) <= limit).all()
    assert (np.abs(numeric) > 1e-3).all()


@pytest.mark.parametrize(
    ("prepare", "arguments", "message"),
    [
        (prepare_outages, {"branches": [99]}, "case14 has no branch 99"),
        (prepare_outages, {"units": [-1]}, "case14 has no unit -1"),
        (prepare_outages, {"participation": np.ones(4)}, "participation must be 5 weights of 0 or more"),
        (prepare_outages, {"rate_pu": np.ones(3)}, r"rate_pu has shape \(3,\), expected \(L=20,\)"),
        (prepare_loops, {"switches": [2, 2]}, "case14 has no switch twice the same"),
        (prepare_switching, {"switches": [20]}, "case14 has no switch 20"),
    ],
)
def test_what_is_no_branch_is_refused_by_name(prepare: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SolverError, match=message):
        prepare(load_case("case14"), **arguments)
