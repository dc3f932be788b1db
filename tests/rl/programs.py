"""What a traced program consists of."""

from __future__ import annotations

import collections
from typing import Any

import jax


def primitives(jaxpr: Any) -> collections.Counter[str]:
    """Count the primitives of a jaxpr, those of its inner programs included."""
    count: collections.Counter[str] = collections.Counter()
    for eqn in jaxpr.eqns:
        count[eqn.primitive.name] += 1
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                count += primitives(inner)
    return count
