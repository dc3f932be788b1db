"""`bench`: speed of power flows and environment steps on this machine; TSV on standard output."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.spaces import sample
from powerzoo_jax.cases import load_case
from powerzoo_jax.cli.table import STDOUT, working, write_json
from powerzoo_jax.envs import vstep
from powerzoo_jax.powerflow import nominal_injection, prepare_feeder, solve_feeder
from powerzoo_jax.tasks import make

HEADER = ("what", "batch", "compile_s", "per_s", "device", "jax")
SPAN = (0.8, 1.2)  # loads of the power flows, as a share of nominal: no two scenarios alike


def run(options: argparse.Namespace) -> int:
    """Measure at batch 1 and at the batch asked for; compile time apart."""
    device, rows = jax.devices()[0], list[dict[str, Any]]()
    if not options.json:
        print("\t".join(HEADER))
    for batch in sorted({1, options.lanes}):
        for name, measure in (("power flow, case33bw", _power_flow), (f"env step, {options.task}", _env_step)):
            with working(f"measuring {name}, batch {batch}"):
                compile_s, rate = measure(options.task, batch, options.seconds)
            row = (name, batch, round(compile_s, 2), round(rate), device.device_kind, jax.__version__)
            rows.append(dict(zip(HEADER, row, strict=True)))
            if not options.json:
                print("\t".join(map(str, row)), flush=True)
    if options.json:
        write_json(rows, STDOUT)
    return 0


def device_name() -> str:
    """Model of the accelerator, or of the processor where JAX knows it as "cpu" only."""
    device = jax.devices()[0]
    about = Path("/proc/cpuinfo")
    if device.platform != "cpu" or not about.is_file():
        return device.device_kind
    models = re.findall(r"^model name\s*: (.*)$", about.read_text(), re.MULTILINE)
    return models[0].strip() if models else device.device_kind


def _power_flow(task: str, batch: int, seconds: float) -> tuple[float, float]:
    del task
    case, dtype = load_case("case33bw"), resolve_dtype()
    factors = prepare_feeder(case)
    share = np.random.default_rng(0).uniform(*SPAN, (batch, case.n_bus))
    demand = nominal_injection(case) * share
    p, q = jnp.asarray(demand.real, dtype), jnp.asarray(demand.imag, dtype)
    compiled, compile_s = _compile(jax.vmap(solve_feeder, (None, 0, 0)), factors, p, q)
    return compile_s, _rate(lambda: compiled(factors, p, q), batch, seconds)


def _env_step(task: str, batch: int, seconds: float) -> tuple[float, float]:
    """Steps with uniform random actions and the batch-level restart, one episode a call."""
    sim = make(task)
    space = sim.spaces()[1]
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(0), batch))

    def episode(sim: Any, states: Any, key: Any) -> Any:
        def advance(states: Any, key: Any) -> tuple[Any, Any]:
            actions = jax.vmap(lambda k: sample(space, k))(jax.random.split(key, batch))
            out, states, _ = vstep(sim, states, actions)
            return states, jnp.sum(out.reward)

        return jax.lax.scan(advance, states, jax.random.split(key, sim.spec.horizon))

    key = jax.random.key(1)
    compiled, compile_s = _compile(episode, sim, states, key)
    return compile_s, _rate(lambda: compiled(sim, states, key), batch * sim.spec.horizon, seconds)


def _compile(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    clock = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    return compiled, time.perf_counter() - clock


def _rate(call: Callable[[], Any], units: int, seconds: float) -> float:
    """Units of work a second: the median call within the time given, after one call to warm up."""
    jax.block_until_ready(call())
    times: list[float] = []
    while sum(times) < seconds:
        clock = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - clock)
    return units / float(np.median(times))
