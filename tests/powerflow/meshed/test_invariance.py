"""Seven networks as they are, renumbered and on another power base, side by side in one program of 21 lanes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
import pytest

from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.powerflow import (
    MeshedResult,
    Status,
    nominal_injection,
    pad_injections,
    prepare_meshed,
    solve_meshed,
    stack_meshed,
)
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.long]

CASES = ("9", "14", "24_ieee_rts", "30", "39", "57", "118")
FACTOR = 2.5  # of the power base


class Variants(NamedTuple):
    """Orders of the renumbered buses, and the solved lanes: all cases, all renumbered, all on another base."""

    orders: list[np.ndarray]
    result: MeshedResult

    def voltage(self, group: int, k: int, n: int) -> np.ndarray:
        at = group * len(CASES) + k
        return np.asarray(self.result.v_re[at, :n] + 1j * self.result.v_im[at, :n])


def renumbered(case: Case, order: np.ndarray) -> Case:
    rows = {item.name: getattr(case.bus, item.name)[order] for item in dataclasses.fields(case.bus)}
    return dataclasses.replace(case, bus=type(case.bus)(**rows))


def rebased(case: Case) -> Case:
    b = case.branch
    branch = dataclasses.replace(b, r_pu=b.r_pu * FACTOR, x_pu=b.x_pu * FACTOR, b_pu=b.b_pu / FACTOR)
    return dataclasses.replace(case, base_mva=case.base_mva * FACTOR, branch=branch)


@pytest.fixture(scope="module")
def variants() -> Variants:
    rng = np.random.default_rng(11)
    cases = [load_case(name) for name in CASES]
    orders = [rng.permutation(case.n_bus) for case in cases]
    s = [nominal_injection(case) * rng.uniform(0.9, 1.1, case.n_bus) for case in cases]
    changed = [renumbered(case, order) for case, order in zip(cases, orders, strict=True)]
    every = [*cases, *changed, *map(rebased, cases)]
    given = [*s, *(x[order] for x, order in zip(s, orders, strict=True)), *(x / FACTOR for x in s)]
    with jax.enable_x64(True):
        stacked = stack_meshed([prepare_meshed(case, dtype="float64") for case in every])
        p, q = (pad_injections([getattr(x, part) for x in given], stacked.n_bus) for part in ("real", "imag"))
        result = jax.jit(jax.vmap(solve_meshed))(stacked, p, q)
        return Variants(orders, jax.tree.map(np.asarray, result))


def test_every_variant_is_solved(variants: Variants) -> None:
    assert np.all(variants.result.status == Status.CONVERGED)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_buses_mean_nothing(name: str, variants: Variants) -> None:
    k = CASES.index(name)
    order, loss = variants.orders[k], variants.result.p_loss
    plain, other = (variants.voltage(group, k, order.size) for group in (0, 1))
    assert np.abs(other - plain[order]).max() <= 2 * tolerance("v_pu", "float64")
    assert loss[len(CASES) + k] == pytest.approx(loss[k], rel=tolerance("loss_relative", "float64"))


@pytest.mark.parametrize("name", CASES)
def test_the_power_base_means_nothing(name: str, variants: Variants) -> None:
    k, n = CASES.index(name), variants.orders[CASES.index(name)].size
    loss = variants.result.p_loss
    plain, other = (variants.voltage(group, k, n) for group in (0, 2))
    assert np.abs(other - plain).max() <= 2 * tolerance("v_pu", "float64")
    assert FACTOR * loss[2 * len(CASES) + k] == pytest.approx(loss[k], rel=tolerance("loss_relative", "float64"))
