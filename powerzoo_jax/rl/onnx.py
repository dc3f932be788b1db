"""Policies that leave: a trained policy as an ONNX graph, which any runtime of that format plays without JAX.

The graph is written operation by operation from the policy's own program (its jaxpr), and holds what policies are made
of: affine layers, a recurrent unit, choices, and the scaling of observations. Whatever depends on no input is computed
when the graph is written.

Example, where only onnxruntime is installed:
    session = onnxruntime.InferenceSession("policy.onnx")
    (action,) = session.run(None, {"obs": obs})  # obs (lanes, A, O) -> action (lanes, A, U)
    action, memory = session.run(None, {"obs": obs, "memory_0": memory})  # of a policy that remembers
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import export as jax_export
from jax.extend import core

from powerzoo_jax.base.errors import PowerZooError, missing_extra
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.rl.export import memory_of, program_of

OPSET, IR_VERSION = 17, 8  # of 2022: runtimes of today and of years ago read them
LANES = "lanes"
INLINE = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr"}  # operation -> parameter that holds its own jaxpr
SAME = {
    "abs": "Abs",
    "add": "Add",
    "and": "And",
    "copy": "Identity",
    "div": "Div",
    "eq": "Equal",
    "exp": "Exp",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "sqrt": "Sqrt",
    "stop_gradient": "Identity",
    "sub": "Sub",
    "tanh": "Tanh",
}  # operation of JAX -> operator of ONNX with the same meaning


def onnx_policy(sim: Sim, act: Act) -> bytes:
    """Serialised ONNX model of a policy: obs (lanes, A, O) -> action (lanes, A, U), any number of lanes at once.

    act:  as `learner.act` gives it; export the greedy policy, drawn actions would be drawn with one fixed key
    One that remembers has further inputs memory_0, memory_1, ... (lanes, ...), zeros before an episode, and gives them
    back behind the action. Types are those of the task's observations. Raises ImportError without the package `onnx`
    (extra `onnx`), PowerZooError for an operation that policies of this package do not have.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ImportError(missing_extra("A policy as an ONNX graph", "onnx", "onnx"))
    import onnx

    memory, low = memory_of(act), sim.spaces()[0].low
    inputs: list[Any] = [*memory, low]
    (lanes,) = jax_export.symbolic_shape(LANES)
    shapes = [jax.ShapeDtypeStruct((lanes, *x.shape), x.dtype) for x in inputs]
    program = program_of(act)
    arguments = (tuple(shapes[:-1]), shapes[-1]) if memory else (shapes[-1],)
    closed = jax.make_jaxpr(program)(*arguments)
    graph = _Graph()
    names = [f"memory_{i}" for i in range(len(memory))]
    for var, name in zip(closed.jaxpr.invars, (*names, "obs"), strict=True):
        graph.known[var] = name
    graph.run(closed.jaxpr, closed.consts)
    found = [graph.name(var) for var in closed.jaxpr.outvars]
    outputs = [f"{name}_after" for name in names] + ["action"]
    for name, output in zip(found, outputs, strict=True):
        graph.add("Identity", [name], output)
    after = [_described(n, v.aval) for n, v in zip(outputs, closed.jaxpr.outvars, strict=True)]
    before = [_described(n, v.aval) for n, v in zip((*names, "obs"), closed.jaxpr.invars, strict=True)]
    made = onnx.helper.make_graph(
        graph.nodes, sim.spec.id, [before[-1], *before[:-1]], [after[-1], *after[:-1]], graph.constants
    )
    model = onnx.helper.make_model(
        made, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="powerzoo_jax"
    )
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _described(name: str, aval: Any) -> Any:
    """Name, type and shape of an input or output."""
    import onnx

    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(aval.dtype))
    return onnx.helper.make_tensor_value_info(name, kind, [x if isinstance(x, int) else LANES for x in aval.shape])


class _Graph:
    """Nodes of a graph in the order of their writing, and what each variable of a jaxpr is: an array, or a name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.known: dict[Any, Any] = {}
        self.count = 0

    def add(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node of one output and return its name."""
        import onnx

        self.count += 1
        output = output or f"{kind.lower()}_{self.count}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        """Name of a constant array."""
        import onnx

        self.count += 1
        name = f"constant_{self.count}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def value(self, var: Any) -> Any:
        """Array that a variable or a literal stands for where no input reaches it, else the name of a node's output."""
        return np.asarray(var.val) if isinstance(var, core.Literal) else self.known[var]

    def name(self, var: Any) -> str:
        """Name of a variable, as a constant of the graph if it is an array."""
        value = self.value(var)
        if isinstance(value, str):
            return value
        name = self.constant(value)
        if not isinstance(var, core.Literal):
            self.known[var] = name
        return name

    def run(self, jaxpr: Any, consts: Sequence[Any]) -> None:
        """Write the equations of a jaxpr whose inputs are known."""
        self.known |= dict(zip(jaxpr.constvars, consts, strict=True))
        for equation in jaxpr.eqns:
            kind = equation.primitive.name
            values = [self.value(var) for var in equation.invars]
            if kind in INLINE:
                inner = equation.params[INLINE[kind]]
                # one jaxpr may be called twice, with other inputs
                self.known |= dict(zip(inner.jaxpr.invars, values, strict=True))
                self.run(inner.jaxpr, inner.consts)
                found = [self.value(var) for var in inner.jaxpr.outvars]
            elif not any(isinstance(v, str) for v in values) and self._fixed(equation):
                out = equation.primitive.bind(*values, **equation.params)
                found = list(out) if equation.primitive.multiple_results else [out]
            elif kind in SAME:
                found = [self.add(SAME[kind], [self.name(var) for var in equation.invars])]
            elif kind in RULES:
                found = [RULES[kind](self, equation)]
            else:
                raise PowerZooError(f"{kind} has no form in the ONNX graphs of policies; export to StableHLO instead.")
            self.known |= dict(zip(equation.outvars, found, strict=True))

    def _fixed(self, equation: Any) -> bool:
        """Whether the results of an equation have as many elements whatever the number of lanes."""
        return all(isinstance(n, int) for var in equation.outvars for n in var.aval.shape)

    def shape(self, shape: Sequence[Any], input: str) -> str:
        """Name of a shape tensor in which the lanes are those of an input with lanes in front."""
        if all(isinstance(n, int) for n in shape):
            return self.constant(np.array(shape, np.int64))
        size = self.add("Shape", [input], start=0, end=1)
        parts = [self.constant(np.array([n], np.int64)) if isinstance(n, int) else size for n in shape]
        return self.add("Concat", parts, axis=0)

    def reshape(self, name: str, shape: Sequence[Any]) -> str:
        """A tensor in another shape, of which one axis at most is the lanes."""
        return self.add("Reshape", [name, self.constant(np.array([_static(n) for n in shape], np.int64))])

    def take(self, name: str, index: np.ndarray, axis: int) -> str:
        """Rows of a tensor along an axis, which takes the shape of the index."""
        return self.add("Gather", [name, self.constant(np.asarray(index, np.int64))], axis=axis)

    def fixed(self, var: Any, what: str) -> np.ndarray:
        """Array of a variable that no input may reach. Raises PowerZooError where one does."""
        value = self.value(var)
        if isinstance(value, str):
            raise PowerZooError(f"{what} that depends on observations has no form in the ONNX graphs of policies.")
        return np.asarray(value)


def _static(n: Any) -> int:
    """Entry of a shape as ONNX's Reshape has it: -1 for the lanes."""
    return n if isinstance(n, int) else -1


def _broadcast(graph: _Graph, equation: Any) -> str:
    (var, *_), shape = equation.invars, equation.params["shape"]
    axes = [int(i) for i in equation.params["broadcast_dimensions"]]
    here = [1] * len(shape)
    for axis, n in zip(axes, var.aval.shape, strict=True):
        here[axis] = n
    name = graph.reshape(graph.name(var), here)
    if [_static(n) for n in here] == [_static(n) for n in shape]:
        return name
    return graph.add("Expand", [name, graph.shape(shape, "obs")])


def _reshape(graph: _Graph, equation: Any) -> str:
    return graph.reshape(graph.name(equation.invars[0]), equation.outvars[0].aval.shape)


def _dot(graph: _Graph, equation: Any) -> str:
    """Rows times a matrix; the axes that are summed are the last one of the rows and one of the matrix."""
    left, right = equation.invars
    (rows, columns), batch = equation.params["dimension_numbers"]
    plain = tuple(rows) == (left.aval.ndim - 1,) and right.aval.ndim == 2 and len(columns) == 1
    if not plain or any(map(len, batch)):
        raise PowerZooError(f"a product along axes {rows} and {columns} has no form in the ONNX graphs of policies.")
    name = graph.name(right)
    if columns[0] == 1:
        name = graph.add("Transpose", [name], perm=[1, 0])
    return graph.add("MatMul", [graph.name(left), name])


def _cast(graph: _Graph, equation: Any) -> str:
    import onnx

    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(equation.params["new_dtype"]))
    return graph.add("Cast", [graph.name(equation.invars[0])], to=kind)


def _select(graph: _Graph, equation: Any) -> str:
    which, no, yes = (graph.name(var) for var in equation.invars)
    return graph.add("Where", [which, yes, no])


def _slice(graph: _Graph, equation: Any) -> str:
    (var,), given = equation.invars, equation.params
    steps = given["strides"] or (1,) * var.aval.ndim
    parts = zip(given["start_indices"], given["limit_indices"], steps, var.aval.shape, strict=True)
    # the axis of the lanes is never cut
    rows = [(start, end, axis, k) for axis, (start, end, k, n) in enumerate(parts) if isinstance(n, int)]
    bounds = (graph.constant(np.array(column, np.int64)) for column in zip(*rows, strict=True))
    return graph.add("Slice", [graph.name(var), *bounds])


def _concatenate(graph: _Graph, equation: Any) -> str:
    full = [var for var in equation.invars if 0 not in var.aval.shape]
    return graph.add("Concat", [graph.name(var) for var in full], axis=equation.params["dimension"])


def _transpose(graph: _Graph, equation: Any) -> str:
    return graph.add("Transpose", [graph.name(equation.invars[0])], perm=list(equation.params["permutation"]))


def _argmax(graph: _Graph, equation: Any) -> str:
    import onnx

    (axis,), kind = equation.params["axes"], np.dtype(equation.params["index_dtype"])
    found = graph.add("ArgMax", [graph.name(equation.invars[0])], axis=int(axis), keepdims=0)
    return graph.add("Cast", [found], to=onnx.helper.np_dtype_to_tensor_dtype(kind))


def _power(graph: _Graph, equation: Any) -> str:
    (var,) = equation.invars
    return graph.add("Pow", [graph.name(var), graph.constant(np.asarray(equation.params["y"], var.aval.dtype))])


def _gather(graph: _Graph, equation: Any) -> str:
    """Columns by a fixed index along one axis."""
    var, index = equation.invars
    numbers, shape = equation.params["dimension_numbers"], equation.outvars[0].aval.shape
    rows = graph.fixed(index, "an index")[..., 0]
    axes = numbers.start_index_map
    if len(axes) != 1 or tuple(numbers.collapsed_slice_dims) != tuple(axes) or numbers.operand_batching_dims:
        raise PowerZooError("a choice along several axes has no form in the ONNX graphs of policies.")
    axis = int(axes[0])
    kept = [i for i in range(len(shape)) if i not in map(int, numbers.offset_dims)]
    if kept != list(range(axis, axis + rows.ndim)):
        raise PowerZooError(f"columns that move to axes {kept} have no form in the ONNX graphs of policies.")
    return graph.take(graph.name(var), rows, axis)


def _scatter(graph: _Graph, equation: Any) -> str:
    """New values for some columns along one axis, by a fixed index."""
    var, index, update = equation.invars
    numbers = equation.params["dimension_numbers"]
    rows, axes = graph.fixed(index, "an index"), numbers.scatter_dims_to_operand_dims
    axis, size = int(axes[0]), update.aval.shape
    if len(axes) != 1 or rows.ndim != 2 or tuple(numbers.inserted_window_dims) != tuple(axes):
        raise PowerZooError("new values along several axes have no form in the ONNX graphs of policies.")
    # the updates stand behind the columns, and every column is taken from one or the other
    place = np.arange(var.aval.shape[axis])
    place[rows[:, 0]] = place.size + np.arange(size[axis])
    both = graph.add("Concat", [graph.name(var), graph.name(update)], axis=axis)
    return graph.take(both, place, axis)


RULES: dict[str, Callable[[_Graph, Any], str]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "dot_general": _dot,
    "convert_element_type": _cast,
    "select_n": _select,
    "slice": _slice,
    "concatenate": _concatenate,
    "transpose": _transpose,
    "argmax": _argmax,
    "integer_pow": _power,
    "gather": _gather,
    "scatter": _scatter,
}
