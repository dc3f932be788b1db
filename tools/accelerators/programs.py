"""Programs to compile: rollouts of tasks, solvers of each family, training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax as pz
from powerzoo_jax import opf, powerflow
from powerzoo_jax.cases import load_case, load_feeder
from powerzoo_jax.rl.training import config
from powerzoo_jax.rl.training.learners import make_train
from powerzoo_jax.tasks import list_presets
from tools.accelerators.targets import needs_float64

STEPS = 48  # of a rollout: the horizon of most tasks
UPDATES = 4  # of a training program: how many there are does not change what one compiles to


@dataclass(frozen=True)
class Program:
    """A function with its arguments, to be lowered; nothing of it is run.

    length:     steps, solves or updates that it takes one after the other
    lane_bytes: (state, observation) of one lane that a device keeps between steps; (0, 0) where there is none
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    length: int = 1
    lane_bytes: tuple[int, int] = (0, 0)


Parts = tuple[Callable[..., Any], Any, tuple[int, ...]]  # solve, factors, widths of what lanes differ in


def names() -> tuple[str, ...]:
    """Names of all programs: `task/NAME` of tasks and presets, `solve/NAME` and `train/NAME`."""
    tasks = (f"task/{name}" for name in (*pz.list_tasks(), *list_presets()))
    return (*tasks, *(f"solve/{name}" for name in SOLVERS), *(f"train/{name}" for name in TRAINED))


def build(name: str, lanes: int) -> Program:
    """The program of a name for so many lanes; those of training are episodes side by side."""
    kind, _, what = name.partition("/")
    return {"task": rollout, "solve": solver, "train": training}[kind](what, lanes)


def rollout(task: str, lanes: int) -> Program:
    """`STEPS` steps of `vstep` with random actions, with everything read that a learner reads."""
    sim = pz.make(task)
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
    keys = jax.ShapeDtypeStruct((lanes,), key.dtype)
    states, obs = jax.eval_shape(lambda s, k: jax.vmap(s.init)(k), sim, keys)
    shape = (lanes, sim.env.dims.agent, sim.env.dims.act)

    def run(sim: Any, states: Any, key: Array) -> tuple[Any, Array]:
        def body(states: Any, key: Array) -> tuple[Any, Any]:
            action = jax.random.uniform(key, shape, obs.dtype, -1.0, 1.0)
            out, states, _ = pz.vstep(sim, states, action)
            return states, sum(jnp.sum(x, dtype=jnp.float32) for x in (out.obs, out.reward, out.cost))

        states, sums = lax.scan(body, states, jax.random.split(key, STEPS))
        return states, jnp.sum(sums)

    return Program(run, (sim, states, key), STEPS, (_size(states) // lanes, _size(obs) // lanes))


def _size(tree: Any) -> int:
    """Bytes of arrays; a random key is two words."""
    keys = jax.dtypes.prng_key
    return sum(x.size * (8 if jnp.issubdtype(x.dtype, keys) else x.dtype.itemsize) for x in jax.tree.leaves(tree))


def solver(name: str, lanes: int) -> Program:
    """A batch of solves with shared factors."""
    solve, factors, widths = SOLVERS[name]()
    dtype = "float64" if needs_float64(name) else "float32"
    mapped = tuple(jax.ShapeDtypeStruct((lanes, width), dtype) for width in widths)
    return Program(jax.vmap(solve, in_axes=(None, *(0 for _ in widths))), (factors, *mapped))


def _feeder() -> Parts:
    factors = powerflow.prepare_feeder(load_case("case33bw"))
    active = int(np.asarray(factors.active).size)
    return powerflow.solve_feeder_active, factors, (active, active)


def _feeder_gradient() -> Parts:
    solve, factors, widths = _feeder()

    def slope(factors: Any, p: Array, q: Array) -> Any:
        return jax.grad(lambda p, q: jnp.sum(solve(factors, p, q).v_pu), (0, 1))(p, q)

    return slope, factors, widths


def _meshed(**options: Any) -> Parts:
    case = load_case("case118")
    factors = powerflow.prepare_meshed(case)
    return lambda f, p, q: powerflow.solve_meshed(f, p, q, **options), factors, (case.n_bus, case.n_bus)


def _own_branches() -> Parts:
    """A grid of its own for each lane, inverted on the device."""
    case = load_case("case14")

    def solve(factors: Any, in_service: Array, p: Array, q: Array) -> Any:
        return powerflow.solve_meshed(powerflow.with_branches(factors, in_service=in_service), p, q)

    return solve, powerflow.prepare_meshed(case), (case.n_branch, case.n_bus, case.n_bus)


def _reactive() -> Parts:
    case = load_case("case118")
    factors = powerflow.prepare_meshed(case)

    def solve(pair: Any, p: Array, q: Array) -> Any:
        return powerflow.solve_within_reactive_limits(pair[0], pair[1], p, q)

    return solve, (factors, powerflow.prepare_reactive(case, factors)), (case.n_bus, case.n_bus)


def _threephase() -> Parts:
    case = load_feeder(13)
    loads = int(powerflow.nominal_phase_load(case).shape[-1])
    return powerflow.solve_threephase, powerflow.prepare_threephase(case), (loads, loads)


def _outages() -> Parts:
    case = load_case("case118")
    outages = powerflow.prepare_outages(case, units=(), rate_pu=np.ones(case.n_branch))
    return powerflow.n_minus_1, outages, (case.n_bus, case.n_bus)


def _busbars() -> Parts:
    """An assignment of its own for each lane, factorised on the device."""
    network = powerflow.prepare_topology(load_case("case118"))

    def solve(network: Any, topology: Array, p: Array, q: Array) -> Any:
        return powerflow.solve_topology(network, p, q, topology.astype(jnp.int8))

    return solve, network, (network.n_element, network.n_node, network.n_node)


def _switched() -> Parts:
    case = load_case("case33bw")
    opened = np.array([32, 33, 34, 35, 36], np.int32)  # the five ties of the feeder
    solve = lambda f, p, q: powerflow.solve_switched(f, jnp.asarray(opened), p, q)  # noqa: E731
    return solve, powerflow.prepare_switching(case), (case.n_bus, case.n_bus)


def _dc() -> Parts:
    case = load_case("case118")
    return powerflow.solve_dc, powerflow.prepare_dc(case), (case.n_bus,)


def _dc_outages() -> Parts:
    case = load_case("case118")
    return powerflow.outage_flows, powerflow.prepare_dc_outages(case), (case.n_branch,)


def _dispatch() -> Parts:
    case = load_case("pz_case118")

    def solve(factors: Any, load: Array) -> Any:
        return opf.economic_dispatch(factors.offers, jnp.sum(load), factors.p_min_mw, factors.p_max_mw)

    return solve, opf.prepare_dc_opf(case, rows=[]), (case.n_bus,)


def _dc_opf(name: str) -> Parts:
    case = load_case(name)
    rows = np.flatnonzero(case.branch.rate_a_mva > 0)[:20]
    return opf.dc_opf, opf.prepare_dc_opf(case, rows=rows), (case.n_bus,)


def _secure() -> Parts:
    case = load_case("pz_case5")
    sample = case.p_load_mw * np.linspace(0.3, 0.5, 5)[:, None]
    return opf.secure_dc_opf, opf.prepare_secure_dc_opf(case, sample), (case.n_bus,)


def _ac_opf(dtype: str) -> Parts:
    case = load_case("case14")
    solve = lambda f, p, q: opf.ac_opf(f, p, q, shedding=False)  # noqa: E731
    return solve, opf.prepare_ac_opf(case, dtype=dtype), (case.n_bus, case.n_bus)


SOLVERS: dict[str, Callable[[], Parts]] = {
    "feeder": _feeder,
    "feeder_gradient": _feeder_gradient,
    "meshed": _meshed,
    "meshed_fixed": lambda: _meshed(fixed_steps=4),
    "own_branches": _own_branches,
    "reactive_limits": _reactive,
    "threephase": _threephase,
    "outages": _outages,
    "busbars": _busbars,
    "switched": _switched,
    "dc": _dc,
    "dc_outages": _dc_outages,
    "dispatch": _dispatch,
    "dc_opf_5": lambda: _dc_opf("pz_case5"),
    "dc_opf_118": lambda: _dc_opf("pz_case118"),
    "dc_opf_secure": _secure,
    "ac_opf_32": lambda: _ac_opf("float32"),
    "ac_opf_64": lambda: _ac_opf("float64"),
}

# One learner of each kind, on tasks with and without a power flow of their own.
TRAINED: dict[str, tuple[type[config.Config], str]] = {
    "ppo_battery_arbitrage": (config.PPOConfig, "battery_arbitrage"),
    "ppo_opf_118": (config.PPOConfig, "opf_118"),
    "ippo_lagrangian_marl_der_arbitrage": (config.IPPOLagrangianConfig, "marl_der_arbitrage"),
    "apg_battery_arbitrage": (config.APGConfig, "battery_arbitrage"),
    "apg_dc_microgrid": (config.APGConfig, "dc_microgrid"),
    "sac_battery_arbitrage": (config.SACConfig, "battery_arbitrage"),
}


def training(name: str, lanes: int) -> Program:
    """`UPDATES` updates of a learner and its initialisation as one program."""
    kind, task = TRAINED[name]
    if kind is config.APGConfig:
        settings: dict[str, Any] = {"updates": UPDATES}
    elif kind is config.SACConfig:
        steps = config.SACConfig.steps
        settings = {"total_steps": UPDATES * steps * lanes, "capacity": 64 * steps * lanes, "warmup": steps * lanes}
    else:
        settings = {"steps": STEPS, "total_steps": UPDATES * STEPS * lanes}
    sim = pz.make(task, split="train")
    cfg = kind.from_dict({"task": task, "lanes": lanes, **settings})
    train = make_train(cfg, sim)
    return Program(train, (jax.ShapeDtypeStruct((), jax.random.key(0).dtype), sim), UPDATES)
