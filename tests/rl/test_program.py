"""The program of a whole training run stays on the device: no callback, no feed, for any learner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest

from powerzoo_jax.oracle import random_act
from powerzoo_jax.rl.algorithms import imitation
from powerzoo_jax.rl.algorithms.imitation import Teacher
from powerzoo_jax.rl.training.config import ALGORITHMS
from powerzoo_jax.rl.training.learners import LEARNERS
from tests.rl.toy_battery import toy_sim

HOST = ("callback", "debug", "infeed", "outfeed")
TINY = {"widths": (8,), "lanes": 2}
FEW = {"ppo_gru": {"minibatches": 2}}  # sequences: no more than there are lanes


def primitives(jaxpr: Any) -> Iterator[str]:
    """Names of all primitives of a program, inner programs included."""
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


def calls(function: Any, *arguments: Any) -> list[str]:
    """Primitives that would go to the host."""
    names = list(primitives(jax.make_jaxpr(function)(*arguments).jaxpr))
    assert "scan" in names
    return [name for name in names if any(word in name for word in HOST)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_training_never_asks_the_host(algorithm, monkeypatch):
    sim = toy_sim()
    monkeypatch.setattr(imitation, "teacher_of", lambda cfg, sim: Teacher(random_act(sim)))
    train = LEARNERS[algorithm].make_train(ALGORITHMS[algorithm](**TINY | FEW.get(algorithm, {})), sim)
    assert calls(train, jax.random.key(0), sim) == []


def test_a_callback_inside_the_loop_would_be_counted():
    def loop(x: jax.Array) -> jax.Array:
        def body(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            jax.debug.print("{}", x)
            return x + 1, None

        return jax.lax.scan(body, x, length=2)[0]

    assert calls(loop, jax.numpy.zeros(())) != []
