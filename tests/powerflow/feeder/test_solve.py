"""The feeder solver against the independent reference: 1,001 states of six feeders, both precisions, the fixed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from powerzoo_jax.powerflow import PowerFlowResult, Status
from tests.references.feeders import CASES, FORMS, States
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

FLOW_FLOOR = 0.01  # [pu] flows are compared relative to at least this

StatesOf = Callable[[str], States]
SolvedBy = Callable[[str, str, str], PowerFlowResult]
every_feeder = pytest.mark.parametrize("name", CASES)
every_form = pytest.mark.parametrize(("dtype", "mode"), FORMS.values(), ids=FORMS)


@pytest.mark.long
@every_feeder
@every_form
def test_every_state_from_a_fifth_to_twice_the_load_converges(
    name: str, dtype: str, mode: str, solved_by: SolvedBy
) -> None:
    result = solved_by(name, dtype, mode)
    assert (result.status == Status.CONVERGED).all()
    assert result.v_re.dtype == np.dtype(dtype)


@pytest.mark.tiers("long", full=["fixed-33bw"])
@every_feeder
@every_form
def test_voltages_match_the_reference(
    name: str, dtype: str, mode: str, states_of: StatesOf, solved_by: SolvedBy
) -> None:
    expected, result = states_of(name).v, solved_by(name, dtype, mode)
    v = result.v_re.astype(float) + 1j * result.v_im.astype(float)
    assert np.abs(np.abs(v) - np.abs(expected)).max() <= tolerance("v_pu", dtype)
    assert np.abs(v - expected).max() <= 2 * tolerance("v_pu", dtype)


@pytest.mark.tiers("long", quick=["float32-33bw"], full=["float64-33bw", "float64-69", "fixed-33bw"])
@every_feeder
@every_form
def test_flows_match_the_reference(name: str, dtype: str, mode: str, states_of: StatesOf, solved_by: SolvedBy) -> None:
    expected, result = states_of(name).flows.s_from, solved_by(name, dtype, mode)
    flow = result.p_from.astype(float) + 1j * result.q_from.astype(float)
    error = np.abs(flow - expected) / np.maximum(np.abs(expected), FLOW_FLOOR)
    assert error.max() <= tolerance("flow_relative", dtype)


@pytest.mark.tiers("long", quick=["float32-33bw"], full=["float32-118zh", "float64-33bw", "float64-69", "fixed-33bw"])
@every_feeder
@every_form
def test_losses_match_the_reference(name: str, dtype: str, mode: str, states_of: StatesOf, solved_by: SolvedBy) -> None:
    expected, result = states_of(name).flows.loss, solved_by(name, dtype, mode)
    for loss, exact in ((result.p_loss, expected.real), (result.q_loss, expected.imag)):
        assert np.abs(loss / exact - 1).max() <= tolerance("loss_relative", dtype)


@pytest.mark.tiers(
    "long", quick=["float32-33bw"], full=["float32-118zh", "float64-33bw", "float64-69", "fixed-33bw", "fixed-118zh"]
)
@every_feeder
@every_form
def test_generation_equals_load_plus_losses(
    name: str, dtype: str, mode: str, states_of: StatesOf, solved_by: SolvedBy
) -> None:
    states, result = states_of(name), solved_by(name, dtype, mode)
    given = states.s.real.astype(dtype).astype(float) + 1j * states.s.imag.astype(dtype).astype(float)
    supply = result.p_slack.astype(float) + 1j * result.q_slack.astype(float) + given.sum(1)
    losses = result.p_loss.astype(float) + 1j * result.q_loss.astype(float)
    rounding = tolerance("balance_relative", dtype) * np.abs(states.s).sum(1)
    # the mismatch of each bus is bounded by the residual, and this sums over the buses
    allowed = result.residual * np.count_nonzero(states.s[0]) + rounding
    assert (np.abs(supply - losses) <= allowed).all()


@pytest.mark.tiers(
    "long",
    quick=["float32-33bw"],
    full=["float32-118zh", "float64-33bw", "float64-69", "fixed-33bw", "fixed-118zh", "fixed-141"],
)
@every_feeder
@every_form
def test_the_slack_injection_matches_the_reference(
    name: str, dtype: str, mode: str, states_of: StatesOf, solved_by: SolvedBy
) -> None:
    expected, result = states_of(name).flows.slack, solved_by(name, dtype, mode)
    slack = result.p_slack.astype(float) + 1j * result.q_slack.astype(float)
    error = np.abs(slack - expected) / np.maximum(np.abs(expected), FLOW_FLOOR)
    assert error.max() <= tolerance("flow_relative", dtype)
