"""Training and evaluation over many devices: lanes are spread over a mesh, weights are the same everywhere.

The program is that of one device; XLA divides the work and sums the gradients (GSPMD, Xu et al. 2021). What belongs to
a lane stays on its device: steps of the environment run where their lanes live, so that no solver waits for another
device, and minibatches are shuffled within a device, so that no sample travels.
With several processes call `jax.distributed.initialize` first; the mesh then covers the devices of all of them.

Example:
    from powerzoo_jax.rl.algorithms import ppo
    from powerzoo_jax.rl.training.config import PPOConfig
    mesh = make_mesh()
    sim = spread(powerzoo_jax.make("battery_arbitrage", split="train"), mesh)
    cfg = PPOConfig(lanes=8, total_steps=8 * 48, epochs=1, minibatches=2, widths=(16,))
    state, metrics = on_mesh(ppo.make_train(cfg, sim), mesh)(key, sim)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from powerzoo_jax.base import Dims, Space, Step
from powerzoo_jax.envs.core import EnvAround, Sim

AXIS = "lanes"
EVERYWHERE = PartitionSpec()
BY_LANE = PartitionSpec(AXIS)

T = TypeVar("T")


def make_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """One axis over the devices given; by default all devices of all processes."""
    chosen = np.asarray(jax.devices() if devices is None else list(devices))
    return Mesh(chosen, (AXIS,), axis_types=(AxisType.Auto,))


def spread(sim: Sim, mesh: Mesh) -> Sim:
    """The same task with the lanes of a `vmap` spread over the mesh; a mesh of one device changes nothing.

    Parameters of a task must be shared by its lanes: a stacked Sim has them by lane.
    """
    if mesh.size == 1 or isinstance(sim.env, SpreadEnv):
        return sim
    return Sim(params=sim.params, env=SpreadEnv(sim.env, mesh), spec=sim.spec)


def whole(mesh: Mesh) -> NamedSharding:
    """Replicated sharding: every device of the mesh holds the whole array."""
    return NamedSharding(mesh, EVERYWHERE)


def everywhere(tree: T, mesh: Mesh) -> T:
    """Put a tree whole on every device of the mesh; all processes hold the same one."""
    if jax.process_count() == 1:
        return jax.device_put(tree, whole(mesh))

    def put(x: Any) -> Any:
        if isinstance(x, Array) and not x.is_fully_addressable:
            return x  # there already
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        return jax.make_array_from_process_local_data(whole(mesh), np.asarray(x))

    return jax.tree.map(put, tree)


def layout(tree: T, mesh: Mesh, lead: int = 0) -> T:
    """Sharding of every leaf of a training state: lanes are cut into equal parts, one a device, all else is whole.

    A class says with `BY_LANE` which of its fields have an axis of lanes, behind `lead` axes of runs side by side.
    Nothing is cut where the devices do not divide the lanes.
    """

    def cut(x: Any) -> NamedSharding:
        divides = mesh.size > 1 and x.shape[lead] % mesh.size == 0
        return NamedSharding(mesh, PartitionSpec(*(None,) * lead, AXIS)) if divides else whole(mesh)

    def one(node: Any) -> Any:
        if not hasattr(node, "BY_LANE"):
            return whole(mesh)
        fields = {f.name: getattr(node, f.name) for f in dataclasses.fields(node)}
        placed = {k: jax.tree.map(cut, v) if k in node.BY_LANE else layout(v, mesh, lead) for k, v in fields.items()}
        return dataclasses.replace(node, **placed)

    placed: T = jax.tree.map(one, tree, is_leaf=lambda x: hasattr(x, "BY_LANE"))
    return placed


def place(tree: T, mesh: Mesh, lead: int = 0) -> T:
    """Training state that lies whole on every device, laid out as `compile_on` leaves it."""
    return tree if mesh.size == 1 else jax.jit(lambda x: x, out_shardings=layout(tree, mesh, lead))(tree)


def on_mesh(function: Callable[..., T], mesh: Mesh) -> Callable[..., T]:
    """Function compiled for all devices of a mesh, at the first call with new shapes.

    Inputs and outputs are whole on every device and the same in every process: what is spread lives inside. So a
    training state can be saved, judged and resumed on any other number of devices.
    """
    program = jax.jit(function, out_shardings=whole(mesh))

    def call(*arguments: Any) -> T:
        with jax.set_mesh(mesh):
            return program(*everywhere(arguments, mesh))

    return call


def compile_on(
    mesh: Mesh, function: Callable[..., Any], *arguments: Any, donate: Sequence[int] = (), lead: int = 0
) -> Callable[..., Any]:
    """Compile a function now, for arguments that lie as they do; its results lie as `layout` says.

    donate:  places of arguments that the results may overwrite, such as the training state of an update; the caller
             must not touch them after the call
    lead:    axes of runs side by side in front of the lanes
    """
    with jax.set_mesh(mesh):
        results = layout(jax.eval_shape(function, *arguments), mesh, lead)
        program = jax.jit(function, out_shardings=results, donate_argnums=tuple(donate))
        compiled: Callable[..., Any] = program.lower(*arguments).compile()
    return compiled


def agree(*flags: bool) -> tuple[bool, ...]:
    """Union of the flags of all processes, each of which must call this and gets the same result."""
    if jax.process_count() == 1:
        return flags
    return tuple(multihost_utils.process_allgather(np.asarray(flags)).any(axis=0).tolist())


def devices_in_force() -> int:
    """Number of devices of the mesh that a program is traced for; 1 without one."""
    return int(dict(jax.sharding.get_abstract_mesh().shape).get(AXIS, 1))


def on_each_device(function: Callable[..., Any], *blocks: Any, axis: int = 0) -> Any:
    """`function(*blocks)` on every device alone, with its part of the leading axis; nothing travels between them.

    axis:  along which the results of the devices follow one another
    """
    count = devices_in_force()
    if count == 1 or any(x.shape[0] % count for x in jax.tree.leaves(blocks)):
        return function(*blocks)
    out = PartitionSpec(*(None,) * axis, AXIS)
    return jax.shard_map(function, in_specs=BY_LANE, out_specs=out, check_vma=False)(*blocks)


def over_devices(tree: T, axis: int = 0) -> T:
    """Divide the work on an axis among the devices of the mesh in force; without one, or by halves, nothing happens.

    A learner says this of each minibatch. Unsaid, every device would take the whole gradient: right, but no faster.
    """
    count = devices_in_force()
    if count == 1:
        return tree
    spec = PartitionSpec(*(None,) * axis, AXIS)

    def lay(x: Array) -> Array:
        return jax.lax.with_sharding_constraint(x, spec) if x.shape[axis] % count == 0 else x

    return jax.tree.map(lay, tree)


@dataclass(frozen=True)
class SpreadEnv(EnvAround):
    """An environment whose `vmap` is divided among the devices of a mesh; each runs its lanes without the others."""

    mesh: Mesh

    @property
    def dims(self) -> Dims:
        """Sizes of the environment."""
        dims: Dims = self.env.dims
        return dims

    def init(self, key: Array, params: Any) -> tuple[Any, Array]:
        """Draw an episode."""
        pair: tuple[Any, Array] = _by_lane(self.env.init, self.mesh)((key,), params)
        return pair

    def begin(self, key: Array, drawn: Any, params: Any) -> tuple[Any, Array]:
        """Begin a chosen episode."""
        pair: tuple[Any, Array] = _by_lane(self.env.begin, self.mesh)((key, drawn), params)
        return pair

    def step(self, state: Any, action: Array, params: Any) -> Step:
        """Advance one step."""
        out: Step = _by_lane(self.env.step, self.mesh)((state, action), params)
        return out

    def spaces(self, params: Any) -> tuple[Any, Space]:
        """Spaces of the environment."""
        pair: tuple[Any, Space] = self.env.spaces(params)
        return pair


def _by_lane(function: Callable[..., Any], mesh: Mesh) -> Callable[[tuple[Any, ...], Any], Any]:
    """`function(*lane, params)` with a rule for vmap: the lanes are cut into equal parts, one for each device."""

    @custom_vmap
    def call(lane: tuple[Any, ...], params: Any) -> Any:
        return function(*lane, params)

    @call.def_vmap
    def divided(size: int, batched: Sequence[Any], lane: tuple[Any, ...], params: Any) -> tuple[Any, Any]:
        if any(jax.tree.leaves(batched[1])):
            raise ValueError("a stacked Sim has parameters by lane and cannot be spread; run it on one device.")
        axes = jax.tree.map(lambda yes: 0 if yes else None, batched[0])
        specs = jax.tree.map(lambda yes: BY_LANE if yes else EVERYWHERE, batched[0])
        spare = -size % mesh.size  # lanes that fill up the last device; they repeat the last one and are dropped
        if spare:
            lane = jax.tree.map(lambda x, yes: _fill(x, spare) if yes else x, lane, batched[0])
        local = jax.vmap(lambda lane, params: function(*lane, params), in_axes=(axes, None))
        # the loops of the solvers carry values that differ by device beside ones that do not; nothing is checked then
        divide = jax.shard_map(local, mesh=mesh, in_specs=(specs, EVERYWHERE), out_specs=BY_LANE, check_vma=False)
        out = divide(lane, params)
        out = jax.tree.map(lambda x: x[:size], out) if spare else out
        return out, jax.tree.map(lambda _: True, out)

    return call


def _fill(x: Array, spare: int) -> Array:
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (spare, *x.shape[1:]))])
