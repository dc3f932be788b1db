"""Fixed form of the interior point: its linear algebra, its batches, stragglers, and what it is lowered to."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    DcOpfFactors,
    OpfStatus,
    Qp,
    ac_opf,
    capped_offers,
    clear_market,
    dc_opf,
    dc_programme,
    dual_bound,
    lanes,
    make_cost_segments,
    prepare_ac_opf,
    prepare_dc_opf,
    prepare_secure_dc_opf,
    secure_dc_opf,
    solve_qp,
)

LIBRARY = re.compile(r"cholesky|triangular_solve|lapack|cusolver|LuDecomp", re.I)
WIDE = re.compile(r"tensor<(?:\d+x)*(?:f64|complex<f64>)>")
LOADS = np.array([0.0, 0.3, 0.3, 0.4, 0.0])  # shares of the buses of case5


@pytest.mark.parametrize("size", [1, 4, 9, 21])
def test_the_inverse_by_sweeps_is_that_of_numpy(size: int) -> None:
    rng = np.random.default_rng(size)
    root = rng.normal(size=(6, size, size + 2))
    matrices = root @ root.swapaxes(1, 2) * np.outer(*2 * [10.0 ** rng.uniform(-2, 2, size)])
    with jax.enable_x64(True):
        last = np.asarray(lanes.spd_inverse(jnp.asarray(np.moveaxis(matrices, 0, -1))))
        alone = np.asarray(lanes.spd_inverse(jnp.asarray(matrices[2])))
    np.testing.assert_allclose(np.moveaxis(last, -1, 0), np.linalg.inv(matrices), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(alone, last[..., 2], rtol=1e-12)


@pytest.mark.parametrize("size", [1, 9])
def test_the_factor_by_columns_is_that_of_numpy_and_solves(size: int) -> None:
    rng = np.random.default_rng(size)
    root = rng.normal(size=(6, size, size + 2))
    matrices, right = root @ root.swapaxes(1, 2), rng.normal(size=(6, size))
    with jax.enable_x64(True):
        factor = lanes.cholesky_by_columns(jnp.asarray(np.moveaxis(matrices, 0, -1)))
        x = np.asarray(lanes.solve_by_columns(factor, jnp.asarray(right.T)))
    np.testing.assert_allclose(np.moveaxis(np.asarray(factor), -1, 0), np.linalg.cholesky(matrices), atol=1e-12)
    np.testing.assert_allclose(x.T, np.linalg.solve(matrices, right[..., None])[..., 0], rtol=1e-8)


def _offers_and_loads(count: int) -> tuple[Any, Array]:
    rng = np.random.default_rng(7)
    load = rng.uniform(300, 1300, (count, 1)) * LOADS * rng.uniform(0.9, 1.1, (count, 5))
    return jnp.asarray(rng.uniform(0, 2, (count, 5, 3)), jnp.float32), jnp.asarray(load, jnp.float32)


def _factors() -> DcOpfFactors:
    return prepare_dc_opf(load_case("pz_case5"))


@pytest.mark.full
def test_random_bids_clear_on_every_lane_with_prices_that_prove_the_cost() -> None:
    """Weak duality: no dispatch costs less than the bound that the prices give, and this one hardly more."""
    factors, segments = _factors(), make_cost_segments(load_case("pz_case5"), 3)
    markup, load = _offers_and_loads(4096)

    def clear(markup: Array, load: Array) -> Any:
        return clear_market(factors, capped_offers(segments, markup), load, solver="fixed").dispatch

    out = jax.tree.map(np.asarray, jax.jit(jax.vmap(clear))(markup, load))
    assert (out.status == OpfStatus.OPTIMAL).all()
    assert out.iterations.max() <= lanes.STEPS
    assert (out.line_price.max(1) > 1).mean() > 0.1
    for k in range(0, 4096, 256):
        qp = dc_programme(factors, load[k], offers=capped_offers(segments, markup[k]), voll=1000.0)
        bound = dual_bound(qp, out.multipliers[k] * float(factors.base_mva))
        cost = out.objective[k] - float(jnp.sum(segments.base_cost * factors.committed))
        assert bound * (1 - 1e-4) - 1 <= cost <= bound * (1 + 1e-4) + 1


@pytest.mark.long
def test_lanes_that_need_more_steps_are_finished_and_nested_maps_are_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = _factors()
    load = _offers_and_loads(12)[1]
    whole = jax.jit(jax.vmap(lambda d: dc_opf(factors, d, solver="fixed")))(load)
    assert int(whole.iterations.min()) > 3
    monkeypatch.setattr(lanes, "STEPS", 3)
    nested = jax.jit(jax.vmap(jax.vmap(lambda d: dc_opf(factors, d, solver="fixed"))))(load.reshape(3, 4, 5))
    assert (np.asarray(nested.status) == OpfStatus.OPTIMAL).all()
    # begun again after three steps
    assert int(nested.iterations.min()) > 6
    np.testing.assert_allclose(nested.lmp.reshape(12, 5), whole.lmp, rtol=2e-4, atol=1e-3)
    np.testing.assert_allclose(nested.unit_power_mw.reshape(12, 5), whole.unit_power_mw, atol=0.05)


@pytest.mark.full
def test_a_lane_takes_no_more_steps_than_it_may() -> None:
    factors = _factors()
    qp = dc_programme(factors, jnp.asarray(900 * LOADS, jnp.float32))
    found = jax.jit(lambda p: solve_qp(p, max_steps=2, solver="fixed"))(qp)
    assert (int(found.iterations), int(found.status)) == (2, OpfStatus.OUT_OF_STEPS)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(found))


@pytest.mark.full
def test_scarcity_is_priced_at_the_cap_in_fixed_steps_too() -> None:
    factors = _factors()
    out = jax.jit(lambda d: clear_market(factors, factors.offers, d, solver="fixed"))(jnp.float32(1600 * LOADS))
    assert out.dispatch.status == OpfStatus.OPTIMAL
    np.testing.assert_allclose(out.dispatch.shed_mw, [0, 0, 0, 127.4703, 0], atol=0.05)
    np.testing.assert_allclose(out.dispatch.lmp[3], 1000, rtol=1e-4)
    np.testing.assert_allclose(out.dispatch.unit_power_mw, [40, 170, 520, 200, 542.5297], atol=0.05)


def _programs() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    small, large = _factors(), prepare_dc_opf(load_case("case30"))
    secure = prepare_secure_dc_opf(load_case("pz_case5"), 400 * LOADS[None])
    load, wide = jnp.ones((8, 5)), jnp.ones((8, 30))

    def slope(load: Array) -> Array:
        return jax.grad(lambda d: jnp.sum(dc_opf(large, d).lmp))(load)

    return {
        "market": (lambda d: clear_market(small, small.offers, d), (load,)),
        "many rows": (lambda d: dc_opf(large, d), (wide,)),
        "gradient": (slope, (wide,)),
        "secure": (lambda d: secure_dc_opf(secure, d), (load,)),
    }


@pytest.mark.long
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_accelerators_get_no_library_factorisation_and_no_float64(platform: str) -> None:
    for name, (solve, arguments) in _programs().items():
        text = jax.jit(jax.vmap(solve)).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()
        assert LIBRARY.findall(text) == [], name
        assert WIDE.findall(text) == [], name
    # the adaptive form of many rows would show
    large = prepare_dc_opf(load_case("case30"))
    adaptive = jax.jit(jax.vmap(lambda d: dc_opf(large, d, solver="adaptive")))
    assert LIBRARY.findall(adaptive.trace(jnp.ones((8, 30))).lower(lowering_platforms=(platform,)).as_text())


@pytest.mark.full
def test_the_ac_opf_of_a_gpu_is_one_loop_without_a_library() -> None:
    case = load_case("case9")
    factors = prepare_ac_opf(case)
    solve = jax.jit(jax.vmap(lambda p, q: ac_opf(factors, p, q)))
    load = jnp.ones((200, 9), jnp.float32)
    text, on_cpu = (solve.trace(load, load).lower(lowering_platforms=(x,)).as_text() for x in ("cuda", "cpu"))
    assert LIBRARY.findall(text) == []
    # float64 as documented, and no loop around the loops of a tile
    assert WIDE.findall(text)
    assert text.count("stablehlo.while") < on_cpu.count("stablehlo.while")


def test_an_unknown_solver_is_refused_by_name() -> None:
    factors = _factors()
    with pytest.raises(ValueError, match=r"'fixt'.*fixed"):
        dc_opf(factors, jnp.ones(5), solver="fixt")


@pytest.mark.long
def test_mapped_rows_give_what_shared_ones_give() -> None:
    factors = _factors()
    load = _offers_and_loads(6)[1]
    qps = jax.vmap(lambda d: dc_programme(factors, d))(load)
    shared = dataclasses.replace(qps, a=qps.a[0])
    axes = Qp(a=None, q=0, c=0, lo=0, hi=0, row_lo=0, row_hi=0)  # type: ignore[arg-type]
    alone = jax.jit(jax.vmap(lambda p: solve_qp(p, shared_rows=False, solver="fixed")))(qps)
    together = jax.jit(jax.vmap(lambda p: solve_qp(p, solver="fixed"), in_axes=(axes,)))(shared)
    np.testing.assert_allclose(alone.x, together.x, atol=1e-4)
    assert (np.asarray(alone.status) == OpfStatus.OPTIMAL).all()
