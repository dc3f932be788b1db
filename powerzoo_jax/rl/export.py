"""Policies that leave: a trained policy as a StableHLO program, which JAX alone runs on a processor, GPU or TPU.

The scaling of observations is inside the program. Any number of lanes goes through it at once. One that remembers
takes what it remembers as well, a tuple of arrays with a row for each lane, zeros before an episode, and gives it back.

Example, where only JAX is installed:
    program = jax.export.deserialize(bytearray(open("policy.stablehlo", "rb").read()))
    action = program.call(obs)  # obs (lanes, A, O) -> action (lanes, A, U)
    memory, action = program.call(memory, obs)  # of a policy that remembers
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax import export as jax_export

from powerzoo_jax.base.errors import missing_extra
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act, first_carry

PLATFORMS = ("cpu", "cuda", "tpu")


def export_policy(sim: Sim, act: Act, *, platforms: Sequence[str] = PLATFORMS) -> bytes:
    """Serialised StableHLO program of a policy: obs (lanes, A, O) -> action (lanes, A, U).

    act:        as `learner.act` gives it; drawn actions are drawn with one fixed key, so export the greedy policy
    platforms:  what the program is lowered for
    One that remembers: (memory, obs) -> (memory, action), see `memory_of`. The dtype is that of the task's
    observations. Raises ImportError without flatbuffers (extra `export`).
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(missing_extra("The export of a policy", "flatbuffers", "export"))
    low = sim.spaces()[0].low

    memory = memory_of(act)
    (lanes,) = jax_export.symbolic_shape("lanes")

    def shape(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((lanes, *x.shape), x.dtype)

    arguments = (tuple(map(shape, memory)), shape(low)) if memory else (shape(low),)
    chosen = jax.jit(program_of(act))
    return bytes(jax_export.export(chosen, platforms=tuple(platforms))(*arguments).serialize())


def program_of(act: Act) -> Callable[..., Any]:
    """Pure function of a policy over lanes: obs -> action, or (memory, obs) -> (memory, action) where it remembers."""
    form = jax.tree.structure(first_carry(act, ()))

    def program(obs: Array) -> Array:
        return jax.vmap(lambda seen: act((), seen, jax.random.key(0))[1])(obs)

    def remembering(memory: tuple[Array, ...], obs: Array) -> tuple[tuple[Array, ...], Array]:
        def one(memory: tuple[Array, ...], seen: Array) -> tuple[tuple[Array, ...], Array]:
            carry, action = act(jax.tree.unflatten(form, memory), seen, jax.random.key(0))
            return tuple(jax.tree.leaves(carry)), action

        return jax.vmap(one)(memory, obs)

    return remembering if memory_of(act) else program


def memory_of(act: Act) -> tuple[Array, ...]:
    """Arrays (...) [-] that a policy remembers in one lane, zeros before an episode; none for one without memory."""
    return tuple(jax.tree.leaves(first_carry(act, ())))
