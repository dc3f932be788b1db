"""The environment contract as a function: run it on any Sim, ours or yours.

from powerzoo_jax.tasks.contract import check_sim
check_sim(powerzoo_jax.make("battery_arbitrage"))     # raises ContractError listing every breach
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.base.spaces import Box, Space, contains, sample
from powerzoo_jax.base.tree import stack_leaves
from powerzoo_jax.base.types import Step
from powerzoo_jax.envs.batch import autoreset, vstep
from powerzoo_jax.envs.core import Sim

LANES = 3
VMAP_TOL = 2e-5  # one step of float32, relative above 1: batched products sum in another order


class ContractError(PowerZooError, AssertionError):
    """A Sim breaks the environment contract; the message lists every breach."""


def check_sim(sim: Sim, *, others: tuple[Sim, ...] = (), seed: int = 0) -> None:
    """Check a Sim against the contract and raise ContractError with all breaches at once.

    sim:     one lane (not stacked)
    others:  the same task on other splits: they must share one compiled program
    seed:    of the episodes played

    Checked: shapes and strong dtypes, one tree from init, step, autoreset and vstep, one trace, membership of the
    spaces, determinism, vmap = loop, costs >= 0, finite values under absurd actions, flags, purity, masks.
    """
    named = [(rule.__name__[1:].replace("_", " "), rule(sim, seed)) for rule in RULES]
    named += [("one compile over the splits", _one_program(sim, others))]
    breaches = [f"{name}: {text}" for name, findings in named for text in _all(findings)]
    if breaches:
        raise ContractError(f"{sim.spec.id} breaks the contract:\n" + "\n".join(f"- {b}" for b in breaches))


def _all(findings: Iterator[str]) -> Iterator[str]:
    """The findings of one rule; an environment that raises has broken it, and the other rules still run."""
    try:
        yield from findings
    except Exception as err:
        yield f"raised {type(err).__name__}: {str(err).splitlines()[0] if str(err) else 'without a message'}"


@jax.jit
def _step(sim: Sim, state: Any, action: Any) -> Step:
    return sim.step(state, action)


@jax.jit
def _init(sim: Sim, key: Any) -> tuple[Any, Any]:
    return sim.init(key)


@jax.jit
def _steps(sim: Sim, states: Any, actions: Any) -> Step:
    return jax.vmap(sim.step)(states, actions)


def _start(sim: Sim, seed: int) -> tuple[Any, Any]:
    return _init(sim, jax.random.key(seed))


def _draw(space: Space, seed: int) -> Any:
    return sample(space, jax.random.key(seed))


def _shapes_and_dtypes(sim: Sim, seed: int) -> Iterator[str]:
    dims, (observation, action) = sim.env.dims, sim.spaces()
    state, obs = _start(sim, seed)
    out = _step(sim, state, _draw(action, seed))
    expected = {
        "obs": (out.obs, (dims.agent, dims.obs)),
        "first obs": (obs, (dims.agent, dims.obs)),
        "reward": (out.reward, (dims.agent,)),
        "cost": (out.cost, (dims.cost,)),
        "terminated": (out.info.terminated, ()),
        "truncated": (out.info.truncated, ()),
        "legal": (out.info.legal, (dims.agent, dims.choice)),
        "terms": (out.info.terms, (dims.agent, dims.term)),
    }
    for name, (value, shape) in expected.items():
        if value.shape != shape:
            yield f"{name} has shape {value.shape}, expected {shape}"
    if observation.shape != (dims.agent, dims.obs):
        yield f"observation space has shape {observation.shape}, expected {(dims.agent, dims.obs)}"
    for flag in ("terminated", "truncated"):
        if getattr(out.info, flag).dtype != jnp.bool_:
            yield f"{flag} has dtype {getattr(out.info, flag).dtype}, expected bool"
    for path, leaf in jax.tree_util.tree_leaves_with_path((state, out)):
        if getattr(leaf, "weak_type", False):
            yield f"leaf {jax.tree_util.keystr(path)} is weakly typed: give it an explicit dtype, or it compiles twice"


def _one_tree(sim: Sim, seed: int) -> Iterator[str]:
    state, _ = _start(sim, seed)
    action = _draw(sim.spaces()[1], seed)
    out = _step(sim, state, action)
    # shapes need no program: tracing settles them
    after, _ = jax.eval_shape(autoreset, sim, out)
    _, lanes, _ = jax.eval_shape(vstep, sim, stack_leaves([state] * LANES), jnp.stack([action] * LANES))
    lane = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), lanes)
    for name, other in (("step", out.state), ("autoreset", after), ("vstep", lane)):
        if _signature(other) != _signature(state):
            yield f"the state of {name} differs in tree, shape or dtype from that of init"


def _signature(tree: Any) -> Any:
    return jax.tree.structure(tree), [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]


def _one_trace(sim: Sim, seed: int) -> Iterator[str]:
    trace, traces = _counted_step()
    state, _ = _start(sim, seed)
    for k in range(3):
        action = _draw(sim.spaces()[1], k)
        trace(sim, state, action)
        state = _step(sim, state, action).state
    if traces() != 1:
        yield f"three steps traced the program {traces()} times"


def _counted_step() -> tuple[Callable[..., Any], Callable[[], int]]:
    """Function that traces a step as the jitted one would, without compiling it, and a counter of its traces."""
    traces = 0

    def step(sim: Sim, state: Any, action: Any) -> Step:
        nonlocal traces
        traces += 1
        return sim.step(state, action)

    return jax.jit(step).trace, lambda: traces


def _membership(sim: Sim, seed: int) -> Iterator[str]:
    observation, action = sim.spaces()
    state, obs = _start(sim, seed)
    for k in range(int(sim.params.horizon)):
        if not contains(observation, np.asarray(obs)):
            yield f"the observation before step {k} lies outside its declared bounds"
            return
        out = _step(sim, state, _draw(action, seed + k))
        if not bool(jnp.all(out.cost >= 0)):
            yield f"a cost channel is negative in step {k}: {np.asarray(out.cost).tolist()}"
            return
        state, obs = out.state, out.obs
    if not (bool(out.info.truncated) or bool(out.info.terminated)):
        yield f"no end flag after the horizon of {int(sim.params.horizon)} steps"
    later = _step(sim, state, _draw(action, seed))
    if bool(later.info.truncated) != bool(out.info.truncated):
        yield "stepping past the end clears the flags"


def _determinism(sim: Sim, seed: int) -> Iterator[str]:
    action = _draw(sim.spaces()[1], seed)
    state, obs = _start(sim, seed)
    again, obs_again = _start(sim, seed)
    if not _equal((state, obs), (again, obs_again)) or not _equal(_step(sim, state, action), _step(sim, again, action)):
        yield "the same key and action gave two results"
    if _equal(state, _start(sim, seed + 1)[0]):
        yield "another key gave the same state"


def _equal(a: Any, b: Any) -> bool:
    def host(x: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return all(np.array_equal(host(x), host(y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def _vmap_equals_loop(sim: Sim, seed: int) -> Iterator[str]:
    actions = jnp.stack([_draw(sim.spaces()[1], seed + k) for k in range(LANES)])
    states = stack_leaves([_start(sim, seed + k)[0] for k in range(LANES)])
    batch = _steps(sim, states, actions)
    for k in range(LANES):
        one = _step(sim, jax.tree.map(lambda x, k=k: x[k], states), actions[k])
        for name in ("obs", "reward", "cost"):
            together = np.asarray(getattr(batch, name), float)
            # an excess is a small difference of large flows: what other lanes show tells how large
            size = np.maximum(np.abs(together).max(axis=0), 1.0)
            gap = (np.abs(together[k] - np.asarray(getattr(one, name), float)) / size).max(initial=0.0)
            if gap > VMAP_TOL:
                yield f"lane {k} of a vmap differs from the single step by {gap:.1e} in {name}"


def _finite_under_absurd_actions(sim: Sim, seed: int) -> Iterator[str]:
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        return
    state, _ = _start(sim, seed)
    for value in (np.nan, np.inf, -1e30):
        out = _step(sim, state, jnp.full(space.shape, value, space.low.dtype))
        for name, x in (("obs", out.obs), ("reward", out.reward), ("cost", out.cost), ("terms", out.info.terms)):
            if not bool(jnp.all(jnp.isfinite(x))):
                yield f"action {value} gave a {name} that is not finite"


def _names_and_sizes(sim: Sim, seed: int) -> Iterator[str]:
    del seed
    dims, spec = sim.env.dims, sim.spec
    for name, listed, size in (
        ("cost_names", spec.cost_names, dims.cost),
        ("cost_budget", spec.cost_budget, dims.cost),
        ("term_names", spec.term_names, dims.term),
        ("term_weights", spec.term_weights, dims.term),
        ("agents", spec.agents, dims.agent),
    ):
        if len(listed) != size:
            yield f"spec.{name} has {len(listed)} entries, the environment {size}"
    twin = copy.deepcopy(sim.env)
    if hash(twin) != hash(sim.env) or twin != sim.env:
        yield "two equal environments are not equal by value, so each would compile its own program"


def _reward_is_the_weighted_sum(sim: Sim, seed: int) -> Iterator[str]:
    state, _ = _start(sim, seed)
    out = _step(sim, state, _draw(sim.spaces()[1], seed))
    total = np.asarray(out.info.terms, float) @ np.asarray(sim.spec.term_weights)
    if not np.allclose(total, np.asarray(out.reward, float), rtol=1e-5, atol=1e-5):
        yield f"reward {np.asarray(out.reward)} is not the weighted sum {total} of the terms"


def _one_program(sim: Sim, others: tuple[Sim, ...]) -> Iterator[str]:
    if not others:
        return
    trace, traces = _counted_step()
    state, _ = _start(sim, 0)
    for one in (sim, *others):
        trace(one, state, _draw(sim.spaces()[1], 0))
    if traces() != 1:
        names = ", ".join(s.spec.split for s in (sim, *others))
        yield f"{traces()} programs for the splits {names}: a leaf changes shape or dtype, or a static differs"


Rule = Callable[[Sim, int], Iterator[str]]
RULES: tuple[Rule, ...] = (
    _shapes_and_dtypes,
    _one_tree,
    _one_trace,
    _membership,
    _determinism,
    _vmap_equals_loop,
    _finite_under_absurd_actions,
    _names_and_sizes,
    _reward_is_the_weighted_sum,
)
