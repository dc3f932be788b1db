"""DC power flow: refusals, islands, distributed slack, outages that split the network, bad injections."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.cases.topology import branch_positions, islands
from powerzoo_jax.powerflow.dc.network import scheduled_injection
from powerzoo_jax.powerflow.dc.outages import bridges, outage_flows, prepare_dc_outages, worst_outage_loading
from powerzoo_jax.powerflow.dc.solve import pad_dc, prepare_dc, solve_dc
from powerzoo_jax.powerflow.result import Status
from tests.tolerances import tolerance


def with_branches(case: Case, **columns: np.ndarray) -> Case:
    return dataclasses.replace(case, branch=dataclasses.replace(case.branch, **columns))


def with_kinds(case: Case, kinds: dict[int, int]) -> Case:
    kind = case.bus.kind.copy()
    for bus_id, value in kinds.items():
        kind[case.bus_index[bus_id]] = value
    return dataclasses.replace(case, bus=dataclasses.replace(case.bus, kind=kind))


def opened(case: Case, *rows: int) -> Case:
    on = case.branch.in_service.copy()
    on[list(rows)] = False
    return with_branches(case, in_service=on)


def two_islands() -> Case:
    """case9 without lines 6-7 and 9-4: buses 1, 4, 5, 6, 3 and 7, 2, 8, 9, each with a reference."""
    case = load_case("case9")
    ends = list(zip(case.branch.from_id.tolist(), case.branch.to_id.tolist(), strict=True))
    return with_kinds(opened(case, ends.index((6, 7)), ends.index((9, 4))), {2: 3})


def test_an_island_without_a_reference_is_refused_by_the_names_of_its_buses() -> None:
    with pytest.raises(CaseError, match=r"bus 2, 7, 8, 9: 4 bus\(es\) are not connected with the reference"):
        prepare_dc(with_kinds(two_islands(), {2: 2}))


def test_two_references_in_one_island_are_refused_by_name() -> None:
    with pytest.raises(CaseError, match="buses 1, 2 are references of one island"):
        prepare_dc(with_kinds(load_case("case9"), {2: 3}))


def test_a_branch_without_reactance_is_refused_by_name() -> None:
    case = load_case("case14")
    with pytest.raises(CaseError, match=r"branch 3 \(bus 2 -> 3\) has x = 0"):
        prepare_dc(with_branches(case, x_pu=np.where(np.arange(case.n_branch) == 2, 0.0, case.branch.x_pu)))


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (np.ones(3), "shape"),
        (np.r_[-1.0, np.ones(8)], "negative"),
        (np.zeros(9), "no bus of the island"),
    ],
)
def test_a_slack_share_that_does_not_fit_is_refused(share: np.ndarray, words: str) -> None:
    with pytest.raises(CaseError, match=words):
        prepare_dc(load_case("case9"), slack_share=share)


def test_each_island_is_balanced_by_its_own_reference() -> None:
    case = two_islands()
    with jax.enable_x64(True):
        out = solve_dc(prepare_dc(case, dtype="float64"), jnp.asarray(scheduled_injection(case)))
    f, t = branch_positions(case)
    label = islands(case.n_bus, f, t, case.branch.in_service)
    p, added = scheduled_injection(case), np.asarray(out.p_added)
    for kind in np.unique(label):
        assert abs((p + added)[label == kind].sum()) < 1e-12
    assert np.flatnonzero(added).tolist() == sorted(case.slack_bus.tolist())
    assert float(out.residual) < 1e-12


def test_a_distributed_slack_spreads_the_imbalance_by_weight() -> None:
    case = load_case("case14")
    share = np.zeros(14)
    share[[1, 2, 5]] = 1.0, 2.0, 1.0
    p = scheduled_injection(case) + np.where(np.arange(14) == 9, 1.0, 0.0)
    with jax.enable_x64(True):
        out = solve_dc(prepare_dc(case, slack_share=share, dtype="float64"), jnp.asarray(p))
        told = solve_dc(prepare_dc(case, dtype="float64"), jnp.asarray(p) + out.p_added)
    np.testing.assert_allclose(out.p_added, -p.sum() * share / 4, atol=1e-12)
    np.testing.assert_allclose(out.p_from, told.p_from, atol=1e-12)


def test_an_injection_at_an_isolated_bus_is_flagged_and_left_out() -> None:
    case = load_case("case9")
    ends = list(zip(case.branch.from_id.tolist(), case.branch.to_id.tolist(), strict=True))
    case = with_kinds(opened(case, ends.index((3, 6))), {3: 4})
    p = jnp.asarray(np.where(case.bus.id == 3, 0.0, scheduled_injection(case)), jnp.float32)
    factors = prepare_dc(case)
    fine, stray = solve_dc(factors, p), solve_dc(factors, p.at[case.bus_index[3]].set(0.5))
    assert fine.status == Status.CONVERGED
    assert stray.status == Status.BAD_INPUT
    np.testing.assert_array_equal(fine.p_from, stray.p_from)


def test_a_lane_that_is_not_finite_is_flagged_and_leaves_the_others_alone() -> None:
    case = load_case("case14")
    p = jnp.tile(jnp.asarray(scheduled_injection(case), jnp.float32), (3, 1))
    out = solve_dc(prepare_dc(case), p.at[1, 4].set(jnp.nan))
    clean = solve_dc(prepare_dc(case), p)
    assert out.status.tolist() == [Status.CONVERGED, Status.BAD_INPUT, Status.CONVERGED]
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(out))
    np.testing.assert_array_equal(out.p_from[jnp.array([0, 2])], clean.p_from[jnp.array([0, 2])])


@pytest.mark.parametrize("name", ["case14", "case57", "case118", "case300", "case33bw"])
def test_bridges_are_the_branches_whose_loss_makes_one_more_island(name: str) -> None:
    case = load_case(name)
    f, t = branch_positions(case)
    on = case.branch.in_service
    count = islands(case.n_bus, f, t, on).max()
    found = bridges(case.n_bus, f, t, on)
    for k in np.flatnonzero(on):
        left = on & (np.arange(case.n_branch) != k)
        assert found[k] == (islands(case.n_bus, f, t, left).max() > count)


def test_an_islanding_outage_is_flagged_and_moves_nothing() -> None:
    case = load_case("case14")
    outages = prepare_dc_outages(case)
    lost = np.flatnonzero(outages.islanding)
    ends = [(int(case.branch.from_id[k]), int(case.branch.to_id[k])) for k in lost]
    assert ends == [(7, 8)]
    flow = solve_dc(prepare_dc(case), jnp.asarray(scheduled_injection(case), jnp.float32)).p_from
    after = outage_flows(outages, flow)[lost[0]]
    np.testing.assert_array_equal(np.delete(after, lost), np.delete(np.asarray(flow), lost))
    assert after[lost[0]] == 0
    loading, worst = worst_outage_loading(outages, flow, jnp.full(case.n_branch, 2.0, jnp.float32))
    assert loading[lost[0]] == 0
    by_hand = np.abs(np.asarray(outage_flows(outages, flow))[0]) / 2
    assert loading[0] == by_hand.max()
    assert worst[0] == by_hand.argmax()


@pytest.mark.full
def test_padding_changes_nothing_and_different_networks_share_one_program() -> None:
    names, dtype = ("case9", "case14", "case30"), "float32"
    padded, p, alone = [], [], []
    for name in names:
        case = load_case(name)
        factors = prepare_dc(case, dtype=dtype)
        injection = jnp.asarray(scheduled_injection(case), dtype)
        alone.append(solve_dc(factors, injection))
        padded.append(pad_dc(factors, 32, 48, 2))
        p.append(jnp.pad(injection, (0, 32 - case.n_bus)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
    out = jax.jit(jax.vmap(solve_dc))(stacked, jnp.stack(p))
    for k, one in enumerate(alone):
        n, branches = one.angle_rad.size, one.p_from.size
        assert np.abs(out.p_from[k, :branches] - one.p_from).max() <= 10 * tolerance("lane", dtype)
        assert not np.asarray(out.p_from[k, branches:]).any()
        assert not np.asarray(out.p_added[k, n:]).any()
        assert out.status[k] == Status.CONVERGED


def test_flows_do_not_depend_on_the_numbering_the_base_power_or_the_reference_angle() -> None:
    case = load_case("case57")
    order = np.random.default_rng(2).permutation(case.n_bus)
    rows = {item.name: getattr(case.bus, item.name)[order] for item in dataclasses.fields(case.bus)}
    shuffled = dataclasses.replace(case, bus=type(case.bus)(**rows))
    rebased = dataclasses.replace(
        with_branches(case, x_pu=case.branch.x_pu * 2.5, r_pu=case.branch.r_pu * 2.5), base_mva=case.base_mva * 2.5
    )
    turned = dataclasses.replace(case, bus=dataclasses.replace(case.bus, angle_init_deg=np.full(case.n_bus, 30.0)))
    with jax.enable_x64(True):
        mw = []
        for c in (case, shuffled, rebased, turned):
            out = solve_dc(prepare_dc(c, dtype="float64"), jnp.asarray(scheduled_injection(c)))
            mw.append(np.asarray(out.p_from) * c.base_mva)
    for other in mw[1:]:
        np.testing.assert_allclose(other, mw[0], atol=1e-9)


@pytest.mark.full
def test_derivatives_are_the_distribution_factors_in_both_modes() -> None:
    case = load_case("case14")
    factors = prepare_dc(case)
    p = jnp.asarray(scheduled_injection(case), jnp.float32)
    for derivative in (jax.jacfwd, jax.jacrev):
        found = derivative(lambda p: solve_dc(factors, p).p_from)(p)
        np.testing.assert_array_equal(found, factors.ptdf)
    batched = jax.vmap(jax.grad(lambda p: jnp.sum(solve_dc(factors, p).p_from ** 2)))(jnp.stack([p, 2 * p]))
    expected = 2 * np.asarray(factors.ptdf).T @ np.asarray(solve_dc(factors, p).p_from)
    np.testing.assert_allclose(batched[0], expected, rtol=1e-4, atol=1e-4)
