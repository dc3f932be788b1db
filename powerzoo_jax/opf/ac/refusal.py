"""Refusal of a platform: a program that is of no use there says so before it is compiled, with its reason."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_refused = Primitive("refused")


def refuse(x: Array, platform: str, why: str) -> Array:
    """The array as given, in a program that cannot be lowered for a platform, such as "tpu".

    why:  told by the error, with the remedy
    Raises nothing where the program is made for another platform. Lowering it for this one raises
    NotImplementedError: on the host, before anything is compiled.
    """
    out: Array = _refused.bind(x, platform=platform, why=why)
    return out


def _lower(context: Any, x: Any, *, platform: str, why: str) -> list[Any]:
    if platform in context.module_context.platforms:
        raise NotImplementedError(why)
    return [x]


_refused.def_impl(lambda x, **_: x)
_refused.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_refused, _lower)
batching.primitive_batchers[_refused] = lambda values, axes, **told: (_refused.bind(*values, **told), axes[0])
ad.deflinear2(_refused, lambda slope, x, **told: (_refused.bind(slope, **told),))
