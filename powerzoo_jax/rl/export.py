"""Policies that leave: a trained policy as a StableHLO program, which JAX alone runs on a processor, GPU or TPU.

The scaling of observations is inside the program. Any number of lanes goes through it at once.

Example, where only JAX is installed:
    program = jax.export.deserialize(bytearray(open("policy.stablehlo", "rb").read()))
    action = program.call(obs)  # obs (lanes, A, O) -> action (lanes, A, U)
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import jax
from jax import Array
from jax import export as jax_export

from powerzoo_jax.base.errors import missing_extra
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act

PLATFORMS = ("cpu", "cuda", "tpu")


def export_policy(sim: Sim, act: Act, *, platforms: Sequence[str] = PLATFORMS) -> bytes:
    """Serialised StableHLO program of a policy that remembers nothing: obs (lanes, A, O) -> action (lanes, A, U).

    act:        as `learner.act` gives it; drawn actions are drawn with one fixed key, so export the greedy policy
    platforms:  what the program is lowered for
    The dtype is that of the task's observations. Raises ImportError without flatbuffers (extra `export`).
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(missing_extra("The export of a policy", "flatbuffers", "export"))
    low = sim.spaces()[0].low

    def program(obs: Array) -> Array:
        return jax.vmap(lambda seen: act((), seen, jax.random.key(0))[1])(obs)

    (lanes,) = jax_export.symbolic_shape("lanes")
    shape = jax.ShapeDtypeStruct((lanes, *low.shape), low.dtype)
    return bytes(jax_export.export(jax.jit(program), platforms=tuple(platforms))(shape).serialize())
