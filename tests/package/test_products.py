"""Products of physics and optimisation keep all digits of float32 on devices that would rather drop some."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.custom_batching import custom_vmap

import powerzoo_jax
from powerzoo_jax import opf
from powerzoo_jax import powerflow as pf
from powerzoo_jax.base import numerics
from powerzoo_jax.cases import load_case
from powerzoo_jax.envs import Sim
from powerzoo_jax.opf import DcOpfResult, OpfStatus
from powerzoo_jax.tasks import list_presets, list_tasks
from tests.package.products import Mode, products, rounded
from tests.package.solver_calls import CALLS, HOST, LANES

pytestmark = pytest.mark.program

PACKAGE = Path(powerzoo_jax.__file__).parent
KNOWN = {"float32", "float64", "rough", "whole"}  # see `kind_of`
STATES, STEPS = 64, 3


@custom_vmap
def _mapped(a: Array, x: Array) -> Array:
    return x


@_mapped.def_vmap
def _(size: int, batched: list[bool], a: Array, x: Array) -> tuple[Array, bool]:
    return x @ a, True


@jax.custom_jvp
def _curved(a: Array, x: Array) -> Array:
    return a @ x


@_curved.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    a, x = primals
    return _curved(a, x), a @ a @ tangents[1]


def _nested(a: Array, x: Array) -> Array:
    """Eight products (n, n) @ (n,), each in a program of its own inside the others, and a convolution."""

    def turn(_: int, x: Array) -> Array:
        return lax.cond(x[0] > 0, lambda x: a @ x, lambda x: x, x)

    x = lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, a @ c[1]), (jnp.int32(0), x))[1]
    x = lax.fori_loop(0, 2, turn, x) + lax.scan(lambda c, _: (a @ c, None), x, length=2)[0]
    x = x + lax.custom_linear_solve(lambda v: a @ v, x, lambda matvec, b: b, symmetric=True)
    x = x + jax.checkpoint(lambda x: a @ x)(x)
    return jax.jit(lambda x: a @ x)(_mapped(a, x)) + jnp.convolve(x, x[:3], mode="same")


@pytest.mark.full
def test_the_list_sees_products_in_every_program_inside_a_program() -> None:
    a, x = jnp.eye(4), jnp.ones((2, 4))
    # while, cond, scan, checkpoint, call, batching rule, linear solve (its matrix as given and transposed), convolution
    assert products(jax.vmap(_nested, (None, 0)), a, x) == {"float32 unpinned": 9}
    along = lambda x: jax.jvp(lambda x: _curved(a, x), (x,), (x,))  # noqa: E731
    assert products(along, x[0]) == {"float32 unpinned": 3}


@pytest.mark.full
def test_the_list_tells_what_is_pinned_and_what_is_rough() -> None:
    a, x = jnp.eye(4), jnp.ones((2, 4))
    high = lambda a, x: jnp.matmul(x, a, precision=lax.Precision.HIGH)  # noqa: E731
    halves = lambda a, x: x.astype(jnp.bfloat16) @ a.astype(jnp.bfloat16)  # noqa: E731
    assert products(high, a, x) == {"float32 unpinned": 1}
    assert products(halves, a, x) == {"bfloat16 unpinned": 1}
    assert products(lambda a, x: x @ a, a.astype(int), x.astype(int)) == {"whole": 1}
    assert products(numerics.rough_matvec, a, x) == {"rough": 1}
    assert products(numerics.matvec, a, x) == products(numerics.matmul, x, a) == {"float32": 1}
    assert products(lambda a, x: numerics.einsum("ij,bj->bi", a, x), a, x) == {"float32": 1}


@cache
def make(task_id: str) -> Sim:
    return powerzoo_jax.make(task_id)


def _has_a_feeder(sim: Sim) -> bool:
    return "ChordCore" in str(jax.tree.structure(sim.params))


@pytest.mark.tiers(
    "long",
    full=[
        "comparison_tso_centralized",
        "dc_microgrid",
        "dc_microgrid_safe",
        "marl_opf",
        "marl_opf_118",
        "marl_opf_7d",
        "marl_uc",
        "opf_118",
        "opf_118_7d",
        "atomic_battery",
        "atomic_distribution_grid",
    ],
)
@pytest.mark.parametrize("task_id", [*list_tasks(), *list_presets()])
def test_init_and_step_of_every_task_multiply_in_full_precision(task_id: str) -> None:
    sim, keys = make(task_id), jax.random.split(jax.random.key(0), LANES)

    def begin(sim: Sim, keys: Array) -> Any:
        return jax.vmap(lambda key: sim.init(key))(keys)

    def step(sim: Sim, states: Any, action: Array) -> Any:
        def seen(action: Array) -> Any:
            out = jax.vmap(sim.step)(states, action)
            return out.obs, out.reward, out.cost

        return jax.jvp(seen, (action,), (action,))

    states, _ = jax.eval_shape(begin, sim, keys)
    action = jnp.zeros((LANES, sim.env.dims.agent, sim.env.dims.act))
    found = products(begin, sim, keys) + products(step, sim, states, action)
    assert set(found) <= KNOWN
    assert found["float32"] > 0
    assert (found["rough"] > 0) == _has_a_feeder(sim)


@pytest.mark.tiers(
    "long",
    full=[
        "solve_dc outage_flows unit_outage_flows worst_outage_loading worst_unit_outage_loading",
        "solve_feeder",
        "solve_feeder_active",
        "dc_opf",
        "clear_market capped_offers",
        "names15",
        "names16",
    ],
)
@pytest.mark.parametrize("names", CALLS)
def test_every_solver_and_its_derivative_multiply_in_full_precision(names: str) -> None:
    call = CALLS[names]()
    found = products(call.with_derivative, *call.lanes)
    assert set(found) <= KNOWN


@pytest.mark.full
@pytest.mark.parametrize("module", [pf, opf])
def test_every_public_function_of_arrays_is_among_the_calls(module: Any) -> None:
    public = {name for name, _ in inspect.getmembers(module, inspect.isfunction)}
    called = {name for names in CALLS for name in names.split()}
    assert public - called - HOST == set()


@pytest.mark.full
def test_precision_is_named_in_one_module() -> None:
    """Also what runs once, on the host, multiplies through it: `make` and `prepare` work on the device."""
    multiply = {"matmul", "dot", "einsum", "tensordot", "vdot", "inner", "dot_general", "Precision"}
    found = []
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] == "rl" or path == Path(numerics.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in multiply and isinstance(node.value, ast.Name):
                found += [f"{path.name}:{node.lineno}"] * (node.value.id in ("jnp", "lax"))
    assert found == []


@pytest.mark.parametrize(("mode", "bits"), [("tf32", 10), ("bf16", 7)])
def test_the_emulation_rounds_what_is_not_pinned_and_nothing_else(mode: Mode, bits: int) -> None:
    """1 + 2^-bits fits the mantissa, a quarter of the last bit more does not."""
    x = jnp.float32([1.0, 1 + 2.0**-bits, 1 + 1.25 * 2.0**-bits])
    by_one = lambda x: jax.jit(lambda x: x[:, None] @ jnp.ones((1, 1)))(x)[:, 0]  # noqa: E731
    np.testing.assert_array_equal(rounded(by_one, mode)(x), [1.0, 1 + 2.0**-bits, 1 + 2.0**-bits])
    pinned = lambda x: numerics.matmul(x[:, None], jnp.ones((1, 1)))[:, 0]  # noqa: E731
    np.testing.assert_array_equal(rounded(pinned, mode)(x), x)
    a, many = 0.1 * jax.random.normal(jax.random.key(1), (4, 4)), jax.random.normal(jax.random.key(2), (2, 4))
    everywhere = jax.vmap(_nested, (None, 0))
    assert jnp.max(jnp.abs(rounded(everywhere, mode)(a, many) - everywhere(a, many))) > 1e-6


@pytest.mark.full
def test_the_emulation_of_float64_keeps_48_bits_and_the_range_of_float32() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray([2.0**-47, 2.0**-49, 1e-300])
        one = lambda x: 1 + lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, 1 * c[1]), (0, x))[1]  # noqa: E731
        assert np.asarray(rounded(one, "pairs")(x)).tolist() == [1 + 2.0**-47, 1.0, 1.0]
        assert np.asarray(rounded(lambda x: x * 1.0, "pairs")(x)).tolist() == [2.0**-47, 2.0**-49, 0.0]
        single = jnp.float32([1 + 2.0**-23])
        assert rounded(lambda x: x @ x[:, None], "pairs")(single) == single @ single[:, None]


def _dispatch() -> DcOpfResult:
    """Results of a function made anew: what an earlier trace decided is not looked up."""
    case = load_case("case5")
    load = jnp.asarray(np.linspace(0.8, 1.05, STATES)[:, None] * case.p_load_mw, jnp.float32)
    factors = opf.prepare_dc_opf(case)
    run = lambda factors, load: jax.vmap(opf.dc_opf, (None, 0))(factors, load)  # noqa: E731
    return jax.tree.map(np.asarray, (jax.jit(run)(factors, load), jax.jit(rounded(run, "tf32"))(factors, load)))  # type: ignore[return-value]


@pytest.mark.long
def test_dc_opf_is_the_same_where_float32_products_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, emulated = _dispatch()
    assert (plain.status == OpfStatus.OPTIMAL).all()
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(emulated), strict=True):
        np.testing.assert_array_equal(one, other)
    # and without the precision that the products name, the same emulation moves every price and leaves loads unsolved
    monkeypatch.setattr(numerics, "EXACT", None)
    unpinned, ruined = _dispatch()
    np.testing.assert_array_equal(unpinned.lmp, plain.lmp)  # a CPU does not care
    assert (ruined.lmp != plain.lmp).reshape(STATES, -1).any(axis=1).all()
    assert (ruined.status != OpfStatus.OPTIMAL).sum() > STATES / 4


@pytest.mark.long
@pytest.mark.parametrize("mode", ["tf32", "bf16"])
@pytest.mark.parametrize("task_id", [*list_tasks(), *list_presets()])
def test_tasks_are_the_same_where_float32_products_are_rounded(task_id: str, mode: Mode) -> None:
    sim, keys = make(task_id), jax.random.split(jax.random.key(3), LANES)
    shape = (STEPS, LANES, sim.env.dims.agent, sim.env.dims.act)
    actions = jax.random.uniform(jax.random.key(4), shape, minval=-1.0, maxval=1.0)

    def play(sim: Sim, keys: Array, actions: Array) -> Any:
        def step(states: Any, action: Array) -> Any:
            out = jax.vmap(sim.step)(states, action)
            return out.state, (out.obs, out.reward, out.cost)

        states, first = jax.vmap(lambda key: sim.init(key))(keys)
        return first, lax.scan(step, states, actions)[1]

    plain, emulated = jax.jit(play)(sim, keys, actions), jax.jit(rounded(play, mode))(sim, keys, actions)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(emulated), strict=True):
        np.testing.assert_array_equal(one, other)
    # something was compared: rewards differ, of presets, which may have none, observations
    seen, rewards, _ = plain[1]
    assert np.ptp(rewards if task_id in list_tasks() else seen) > 0
