"""Simulations built before this process runs JAX, and the refusal of processes forked after it did.

JAX runs threads, which a fork does not copy: a child that is forked once they run waits for them for ever. Gymnasium's
asynchronous vector environments fork, and they build one environment before they do. So an environment that is built
in a process without running JAX takes the arrays of its simulation from a short-lived child, as NumPy, and moves them
to the device at its first reset.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import pickle
import select
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import xla_bridge  # JAX has no public door to whether it runs

from powerzoo_jax import tasks
from powerzoo_jax.envs.core import Sim

PACKAGE = "powerzoo"  # and what begins with it
KEPT = 8  # simulations built apart, and simulations moved to the device, that are kept for the next of the same
PATIENCE_S = 120.0  # for the child; then the simulation is built here
FORKED = (
    "this process was forked after JAX had started in its parent, where it would wait for ever. Start workers anew: "
    "context='spawn' or 'forkserver' for gymnasium.vector.AsyncVectorEnv and multiprocessing, start_method='spawn' "
    "for Stable-Baselines3; or step no environment before the workers are forked; or use one batch of lanes, "
    "vectorization_mode='vector_entry_point'."
)

Made = TypeVar("Made")
_built: OrderedDict[Any, Sim] = OrderedDict()
_moved: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
_started_at_fork = _stranded = False


def has_started() -> bool:
    """True once JAX runs in this process."""
    return bool(xla_bridge.backends_are_initialized())


def refuse_forked() -> None:
    """Raise RuntimeError, with the remedy, in a process that was forked from one in which JAX runs."""
    if _stranded:
        raise RuntimeError(FORKED)


def make(task_id: str, **keywords: Any) -> Sim:
    """Simulation of a task as `powerzoo_jax.make` builds it; its leaves may be of NumPy, see `on_device`."""
    key = (task_id, tuple(sorted(keywords.items())))
    # before the fork, so that both processes have the functions that it defines, see `_Names`
    importlib.import_module(tasks.get_builder(task_id, keywords.get("version")).split(":")[0])
    try:
        found = None if has_started() else _built.get(key)
    except TypeError:  # a keyword without a hash, a list
        return built_apart(lambda: tasks.make(task_id, **keywords))
    sim = built_apart(lambda: tasks.make(task_id, **keywords)) if found is None else found
    return sim if has_started() else _keep(_built, key, sim)


def built_apart(build: Callable[[], Sim]) -> Sim:
    """Simulation that `build` makes, with leaves of NumPy where JAX does not run yet; errors are those of `build`.

    What `build` changes beside it is lost. Raises RuntimeError in a process that cannot run JAX.
    """
    refuse_forked()
    apart = None if has_started() or not _may_fork() else _in_child(build)
    # what failed in the child is raised here, with its traceback
    return build() if apart is None else apart


def on_device(sim: Sim) -> Sim:
    """The simulation with its leaves on the device; one copy serves all environments of the same arrays."""
    params = sim.params
    if not any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(params)):
        return sim
    # the pair keeps the arrays alive, so that their id stays theirs
    given, moved = _moved.get(id(params), (None, None))
    if given is None:
        moved = jax.device_put(params)
    return sim.replace(params=_keep(_moved, id(params), (params, moved))[1])  # type: ignore[attr-defined,no-any-return]


def _keep(table: OrderedDict[Any, Made], key: Any, value: Made) -> Made:
    table[key] = value
    table.move_to_end(key)
    while len(table) > KEPT:
        table.popitem(last=False)
    return value


def _may_fork() -> bool:
    # macOS cannot fork safely and, as Windows, starts workers anew; another thread may hold a lock for ever
    return sys.platform == "linux" and threading.active_count() == 1


def _in_child(build: Callable[[], Sim]) -> Sim | None:
    """The simulation with NumPy leaves from a forked child; None where that failed."""
    reader, writer = os.pipe()
    names = _Names()
    child = os.fork()
    if child == 0:
        _serve(build, writer, names)
    os.close(writer)
    told = bytearray()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], PATIENCE_S)[0]:
            part = pipe.read(1 << 20)
            if not part:
                break
            told += part
        else:
            os.kill(child, signal.SIGKILL)
    if os.waitpid(child, 0)[1]:
        return None
    return Sim(*names.read(bytes(told)))


class _Names:
    """Names of the package's functions in this process and in its child: their addresses, which a fork keeps.

    An observation's fields are functions without a name of their own. Simulations share compiled programs where their
    functions are the same ones, so that these must not be copied.
    """

    def __init__(self) -> None:
        ours = (f for f in gc.get_objects() if type(f) is FunctionType and str(f.__module__).startswith(PACKAGE))
        self._functions = {id(f): f for f in ours}

    def write(self, value: Any, file: Any) -> None:
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = lambda x: id(x) if id(x) in self._functions else None  # type: ignore[method-assign]
        pickler.dump(value)

    def read(self, told: bytes) -> Any:
        unpickler = pickle.Unpickler(io.BytesIO(told))
        unpickler.persistent_load = self._functions.__getitem__  # type: ignore[method-assign]
        return unpickler.load()


def _serve(build: Callable[[], Sim], writer: int, names: _Names) -> None:
    """Write the simulation to the parent and end this process, whose buffers and exit handlers are the parent's."""
    try:
        jax.config.update("jax_platforms", "cpu")  # an accelerator serves one process
        sim = build()
        params = jax.tree.map(np.asarray, sim.params)
        with os.fdopen(writer, "wb") as pipe:
            names.write((params, sim.env, sim.spec), pipe)
        os._exit(0)
    except BaseException:  # the parent builds it again and raises what is wrong
        os._exit(1)


def _note_start() -> None:
    global _started_at_fork
    _started_at_fork = has_started()


def _note_child() -> None:
    global _stranded
    _stranded = _stranded or _started_at_fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_start, after_in_child=_note_child)
