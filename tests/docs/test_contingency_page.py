"""What the page on outages and switches says to type runs, and the derivatives are as it says."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax import load_case
from powerzoo_jax.powerflow import (
    nominal_injection,
    outage_flows,
    prepare_dc_outages,
    prepare_switching,
    solve_switched,
    unit_outage_flows,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "contingency.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_example_charges_overloads_filters_actions_and_masks_bridges(run_snippet, snippets_of):
    body, _ = snippets_of(PAGE)
    low, high, *shape, legal, relieved, burdened = run_snippet(body).split()
    assert 0 < float(low) < float(high)
    assert shape == ["(16,", "25)"]  # 20 branches and 5 units
    assert int(legal) == 19  # of 20 branches one is a bridge: bus 8 hangs on it
    assert (int(relieved), int(burdened)) == (8, 0)


@pytest.mark.full
def test_the_best_action_splits_the_substation_behind_the_overloaded_line(run_snippet, snippets_of):
    _, body = snippets_of(PAGE)
    rows = [line.split(" | ") for line in run_snippet(body).splitlines()]
    light, nominal = ([float(x) for x in numbers.split(" -> ")] for _, numbers in rows)
    assert nominal == [1.08, 0.92] and nominal[1] > light[1] and nominal[0] > light[0] > 1
    assert all(name.startswith("split bus 92") for name, _ in rows)


@pytest.mark.full
def test_the_page_counts_the_actions_that_end_an_overload():
    table = pz.run_power_flow("pz_case118", actions=True).action
    assert table is not None
    ended, every = np.sum([not words for words in table.violation]), len(table)
    assert f"{ended} of {every:,} actions" in PAGE and table["on_branch"][0] == "89-92 #1"


@pytest.mark.long
def test_a_switched_flow_has_the_gradient_zero_although_its_losses_change():
    case = load_case("case14")
    switching, s = prepare_switching(case), nominal_injection(case)
    p, q = (jnp.asarray(x, jnp.float32) for x in (s.real, s.imag))
    opened = jnp.asarray([2], jnp.int32)

    @jax.jit
    def losses(p):
        return jax.value_and_grad(lambda p: solve_switched(switching, opened, p, q).p_loss)(p)

    (loss, slope), (less, _) = losses(p), losses(0.9 * p)
    assert not np.any(slope) and less < 0.9 * loss


def test_dc_outages_have_the_derivatives_of_linear_functions():
    case = load_case("case14")
    dc, flow = prepare_dc_outages(case), jnp.linspace(0.1, 1.0, case.n_branch)
    for after in (outage_flows, unit_outage_flows):
        slope = jax.jacfwd(lambda x, after=after: after(dc, x))(flow)
        rest = after(dc, jnp.zeros_like(flow))
        np.testing.assert_allclose(slope @ flow + rest, after(dc, flow), rtol=1e-5, atol=1e-5)
