"""First layers of networks on observations in two parts: what all agents see is multiplied once, never repeated.

The layer of an agent is  W_s s + W_o o_a + b,  where W_s and W_o are the rows of one matrix for the fields that are
shared and those that are not; so weights are those of a network on the whole observation. Of one agent that sees
everything, o_1 s o_2 s ..., W_s is the sum of the rows of every repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.envs.batch import split_observations
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import Runs, SharedObs, divide, fields_of

LEAST = 1024  # numbers of an observation (A, O) below which nothing is gained: the largest of other tasks has 310


@struct.dataclass
class SplitInput:
    """Input of a network in two parts; letters as in `SharedObs`.

    joint:  one agent sees the observations of all A, side by side: rows are 1 and features A O, else A and O
    """

    shared: Array
    own: Array
    runs: Runs = struct.field(pytree_node=False)
    joint: bool = struct.field(pytree_node=False)

    @property
    def agents(self) -> int:
        """Number of agents that the second part is of, A."""
        return int(self.own.shape[-2])

    @property
    def width(self) -> int:
        """Length of the observation of an agent, O."""
        return int(self.shared.shape[-1] + self.own.shape[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the input that this stands for, (..., rows, features)."""
        lead = self.shared.shape[:-1]
        return (*lead, 1, self.agents * self.width) if self.joint else (*lead, self.agents, self.width)

    def features(self, x: Array) -> tuple[Array, Array]:
        """Values of the features (F, ...) of the two parts: (S, ...), and (P, ...) or (A, P, ...) if joint."""
        if not self.joint:
            return fields_of(x, self.runs, True, 0), fields_of(x, self.runs, False, 0)
        each = x.reshape(self.agents, self.width, *x.shape[1:])
        # every repetition of a shared feature has the same moments
        return fields_of(each[0], self.runs, True, 0), fields_of(each, self.runs, False, 1)

    def of_features(self, shared: Array, own: Array) -> Array:
        """Inverse of `features`, (F,): shared ones repeated."""
        if not self.joint:
            own = own[None]
        whole: Array = SharedObs(shared, own, self.runs).expand()
        return whole.reshape(-1)

    def map(self, apply: Callable[..., Array], *features: Array) -> SplitInput:
        """Apply `apply(part, *features of that part)` to both parts; features (F,) each."""
        common, own = zip(*(self.features(x) for x in features), strict=True)
        return SplitInput(apply(self.shared, *common), apply(self.own, *own), self.runs, self.joint)

    def jointly(self) -> SplitInput:
        """The same as what one agent sees that sees everything."""
        return SplitInput(self.shared, self.own, self.runs, True)


def split_input(obs: SharedObs, joint: bool) -> SplitInput:
    """Observation of all agents as the input of a network of one, or of each."""
    return SplitInput(obs.shared, obs.own, obs.runs, joint)


class SplitDense(nn.Module):
    """Affine layer of an input in two parts: (..., rows, width). Weights are those of `flax.linen.Dense`."""

    features: int
    kernel_init: Any
    param_dtype: Any

    @nn.compact
    def __call__(self, x: SplitInput) -> Array:
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features), self.param_dtype)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,), self.param_dtype)
        if not x.joint:
            common, own = x.features(kernel)
            return (x.shared @ common)[..., None, :] + x.own @ own + bias
        each = kernel.reshape(x.agents, x.width, self.features)
        common = jnp.sum(fields_of(each, x.runs, True, 1), axis=0)
        flat = x.own.reshape(*x.own.shape[:-2], -1)
        own = fields_of(each, x.runs, False, 1).reshape(flat.shape[-1], self.features)
        return (x.shared @ common + flat @ own + bias)[..., None, :]


def worth_splitting(sim: Sim) -> bool:
    """Whether the observation of a task is long, and at least half of it repetition: that of `opf_118` is 95 %."""
    dims, split = sim.env.dims, split_observations(sim)
    if split is sim or dims.agent * dims.obs < LEAST:
        return False
    parts = jax.eval_shape(split.init, jax.random.key(0))[1]
    return isinstance(parts, SharedObs) and 2 * (parts.shared.size + parts.own.size) <= dims.agent * dims.obs


def summed_repetitions(sim: Sim, weights: Any) -> Any:
    """Weights of the same policy whose first layer reads a repeated field once: files pack the zeros elsewhere.

    weights:  of a network of one agent that sees the observations of all; others come back as they are
    """
    seen = jax.eval_shape(split_observations(sim).init, jax.random.key(0))[1]
    if not isinstance(seen, SharedObs):
        return weights
    agents, width = sim.env.dims.agent, sim.env.dims.obs
    repeated = np.repeat([shared for shared, _ in seen.runs], [length for _, length in seen.runs])[None, :, None]
    first = (np.arange(agents) == 0)[:, None, None]

    def fold(name: tuple[Any, ...], x: Array) -> Array:
        if [getattr(part, "key", None) for part in name[-2:]] != ["Dense_0", "kernel"] or len(x) != agents * width:
            return x
        each = x.reshape(agents, width, -1)
        once = jnp.where(first, jnp.sum(each, axis=0), 0)
        return jnp.where(repeated, once, each).reshape(x.shape)

    return jax.tree_util.tree_map_with_path(fold, weights)


def undivided(tree: Any) -> Any:
    """Shapes of a tree in which every observation in two parts is whole, as in states saved by earlier versions."""

    def join(x: Any) -> Any:
        if not isinstance(x, SharedObs):
            return x
        shape = (*x.own.shape[:-1], x.shared.shape[-1] + x.own.shape[-1])
        return jax.ShapeDtypeStruct(shape, x.own.dtype, sharding=getattr(x.own, "sharding", None))

    return jax.tree.map(join, tree, is_leaf=lambda x: isinstance(x, SharedObs))


def divided_like(tree: Any, like: Any) -> Any:
    """Arrays of `tree` divided where `like` has an observation in two parts."""

    def cut(old: Any, new: Any) -> Any:
        return divide(new, old.runs) if isinstance(old, SharedObs) and isinstance(new, Array) else new

    return jax.tree.map(cut, like, tree, is_leaf=lambda x: isinstance(x, SharedObs))
