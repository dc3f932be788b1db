"""References play in float64, learners in float32, and both play the same episodes: every draw has one width."""

from __future__ import annotations

import ast
from pathlib import Path

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import powerzoo_jax
from powerzoo_jax.base import random
from powerzoo_jax.base.spaces import Box, Discrete, MultiDiscrete, sample
from powerzoo_jax.data.synthetic import (
    PRICE_DE_2018,
    WIND_NOISE,
    Sessions,
    draw_home_sessions,
    draw_price_noise,
    perturb_plants,
    resample_sessions,
)
from powerzoo_jax.data.synthetic_load import JOBS, draw_jobs
from powerzoo_jax.devices import datacenter, fleet
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.feeder.tasks.catalog import VARIANTS
from powerzoo_jax.families.market.tasks import bidding as build_market
from powerzoo_jax.families.market.tasks.storage import make_storage_market
from powerzoo_jax.families.microgrid.tasks import build as build_microgrid
from powerzoo_jax.families.transmission.tasks import units as build_transmission
from powerzoo_jax.oracle.baselines import random_act
from powerzoo_jax.tasks import get_spec, list_tasks
from powerzoo_jax.tasks.score import episode_keys, seeded_starts
from powerzoo_jax.tasks.spec import CALENDAR

PACKAGE = Path(powerzoo_jax.__file__).parent
N, SEED = 16, 42
MANY = 2000  # data centres: one job in some hundred had another duration
CAST = 1e-6  # relative: what one value rounded to float32 may differ by from that in float64
KEY = jax.random.key(3)

# key verbs; what else `jax.random` has draws
VERBS = {"key", "split", "fold_in", "key_data", "wrap_key_data"}
# the one place that draws, and learners: the noise of their actions and the rows of their batches are no episodes
DRAWING = {"base/random.py"}
LEARNERS = "rl/"
SHIFTS = {
    "feeder": (),
    "joint": (),
    "market": build_market.SHIFTS,
    "microgrid": tuple(build_microgrid.STRESS),
    "transmission": build_transmission.STRESS,
}


def splits_of(task: str) -> tuple[str, ...]:
    if task in VARIANTS:
        return (*CALENDAR, *(name for name, _ in VARIANTS[task].shifts))
    more = ("price_stress",) if task == "battery_arbitrage" else SHIFTS[get_spec(task).family]
    return (*CALENDAR, *more)


@jax.jit
def trips(sim: Sim, soc: Array) -> dict[str, Array]:
    """Trips of the episodes whose states of charge are given; one program for all splits of a task."""
    layout, dt = sim.env.layout, sim.env.dt_hours
    begin = jax.vmap(lambda key, soc: fleet.begin(layout, key, soc, sim.params, dt)["vehicle"])
    vehicle = begin(episode_keys(SEED, N), soc)
    return {"depart_min": vehicle.depart_min, "trip_mwh": vehicle.trip_mwh}


@jax.jit
def arrivals(sim: Sim) -> dict[str, Array]:
    """Jobs that arrive at ten in the morning."""
    site, sizes, minute = sim.params.datacenter, sim.env.layout.sizes, jnp.asarray(600, jnp.int32)
    draw = jax.vmap(lambda key: datacenter.draw_arrivals(key, site, sizes, sim.env.dt_hours, minute))
    both = zip(("train", "finetune"), draw(episode_keys(SEED, MANY)), strict=True)
    return {f"{kind} {name}": x for kind, jobs in both for name, x in jobs._asdict().items()}


def episodes(task: str, split: str, dtype: str) -> dict[str, np.ndarray]:
    """What seeded episodes draw: starts, states of charge, trips, and the jobs of a step."""
    sim = powerzoo_jax.make(task, split=split, dtype=dtype)
    drawn, kinds = seeded_starts(sim, N, SEED), getattr(getattr(sim.env, "layout", None), "kinds", ())
    found = {"load_row": drawn.load_row, "price_row": drawn.price_row, "soc": drawn.soc}
    found |= trips(sim, drawn.soc) if "vehicle" in kinds else {}
    found |= arrivals(sim) if "datacenter" in kinds else {}
    return {name: np.asarray(x) for name, x in found.items()}


def assert_same(ours: np.ndarray, theirs: np.ndarray, what: str, relative: float = CAST) -> None:
    """Whole numbers equal, reals cast."""
    real = np.issubdtype(ours.dtype, np.floating)
    assert theirs.dtype == (np.float64 if real else ours.dtype), what
    np.testing.assert_allclose(ours, theirs, rtol=relative if real else 0, atol=0, err_msg=what)


@pytest.mark.tiers(
    "long",
    quick=["marl_uc"],
    full=["dc_microgrid_safe", "gencos_bidding", "marl_der_arbitrage", "marl_opf", "marl_opf_118", "opf_118"],
)
@pytest.mark.parametrize("task", list_tasks())
def test_learners_and_references_play_the_same_episodes(task):
    for split in splits_of(task):
        ours = episodes(task, split, "float32")
        with jax.enable_x64(True):
            theirs = episodes(task, split, "float64")
        for name, x in theirs.items():
            assert_same(ours[name], x, f"{split} {name}")


DRAWS = {
    "uniform": lambda dtype: random.uniform(KEY, (64,), dtype),
    "normal": lambda dtype: random.normal(KEY, (64,), dtype),
    "integers": lambda dtype: random.integers(KEY, (64,), -3, jnp.arange(1, 65, dtype=jnp.int32)),
    "bernoulli": lambda dtype: random.bernoulli(KEY, (64,), 0.473),
    # above ten JAX draws Poisson numbers by another method
    "poisson": lambda dtype: random.poisson(KEY, (2, 32), np.array([[0.7], [40.0]], dtype)),
    "Discrete": lambda dtype: sample(Discrete(1000), KEY),
    "MultiDiscrete": lambda dtype: sample(MultiDiscrete(np.full(64, 1000, np.int32)), KEY),
}


@pytest.mark.tiers(full=["poisson"])
@pytest.mark.parametrize("name", DRAWS)
def test_raw_draws_are_equal_bit_for_bit_under_both_float_types(name):
    ours = np.asarray(DRAWS[name]("float32"))
    with jax.enable_x64(True):
        theirs = np.asarray(DRAWS[name]("float64"))
    assert_same(ours, theirs, name, relative=0.0)
    assert len(np.unique(ours)) > 1 or ours.shape == ()


def widths(program: jex.core.Jaxpr) -> set[int]:
    """Bits of every draw in a traced program, through all nested calls."""
    found = set()
    for eqn in program.eqns:
        if eqn.primitive.name == "random_bits":
            found.add(eqn.params["bit_width"])
        for inner in jex.core.jaxprs_in_params(eqn.params):
            found |= widths(inner)
    return found


def markups(key: Array) -> Array:
    sim = make_storage_market("bid", markup_std=0.1, dtype="float64")
    return sim.init(key)[0].markup


GENERATORS = {
    "markups": markups,
    "bounded": lambda key: sample(Box(np.full((9, 2), -1.0), np.full((9, 2), 3.0)), key),
    "plants": lambda key: perturb_plants(key, jnp.full((96, 2), 0.5), WIND_NOISE),
    "batch jobs": lambda key: draw_jobs(key, jnp.ones(50), 64, JOBS).duration_s,
    "prices": lambda key: draw_price_noise(key, 400, PRICE_DE_2018),
    "sessions at home": lambda key: draw_home_sessions(key, jnp.ones(100)).energy_kwh,
    "sessions at work": lambda key: resample_sessions(key, Sessions(*jnp.ones((3, 100))), 99, 5.0).arrival_min,
}


@pytest.mark.parametrize("name", GENERATORS)
def test_what_is_drawn_for_float64_takes_32_bits(name):
    with jax.enable_x64(True):
        program = jax.make_jaxpr(GENERATORS[name])(KEY)
    assert widths(program.jaxpr) == {32}
    assert program.out_avals[0].dtype == np.float64


def test_random_actions_take_32_bits_for_float64():
    with jax.enable_x64(True):
        act = random_act(powerzoo_jax.make("dso", dtype="float64"))
        program = jax.make_jaxpr(lambda key: act((), None, key)[1])(KEY)
    assert widths(program.jaxpr) == {32} and program.out_avals[0].dtype == np.float64


def test_the_check_sees_64_bits():
    with jax.enable_x64(True):
        assert widths(jax.make_jaxpr(jax.random.normal)(KEY).jaxpr) == {64}


def samplers(source: str) -> list[str]:
    """What a module draws from `jax.random` itself, and imports that hide it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "jax.random" and node.attr not in VERBS:
            found.append(f"line {node.lineno}: jax.random.{node.attr}")
        elif isinstance(node, ast.Import):
            found += [f"line {node.lineno}: import {a.name}" for a in node.names if a.name.startswith("jax.random")]
        elif isinstance(node, ast.ImportFrom) and node.module in ("jax", "jax.random"):
            hidden = [a.name for a in node.names if node.module == "jax.random" or a.name == "random"]
            found += [f"line {node.lineno}: from {node.module} import {name}" for name in hidden]
    return found


def test_only_one_module_and_learners_draw():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in DRAWING and not name.startswith(LEARNERS):
            found |= {name: calls} if (calls := samplers(path.read_text(encoding="utf-8"))) else {}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "x = jax.random.randint(key, (), 0, 3)",
        "from jax import random",
        "from jax.random import normal",
        "import jax.random",
    ],
)
def test_the_check_sees_a_draw(source):
    assert len(samplers(source)) == 1


def test_the_check_lets_keys_pass():
    assert samplers("k = jax.random.fold_in(jax.random.key(0), 1)\nfrom jax import Array, lax") == []
