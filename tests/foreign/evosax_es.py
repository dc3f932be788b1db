"""A search of evosax on its own problem for gymnax environments: each network of a generation plays whole days."""

from __future__ import annotations

import gymnax
import jax
import numpy as np
import optax
from evosax.algorithms import Open_ES
from evosax.problems import MLP, GymnaxProblem, tanh_output_fn
from powerzoo_compat.gymnax_view import to_gymnax  # ours

import powerzoo_jax  # ours
from tests.foreign.scoring import BATTERY, Days, run

POPULATION, PLAYED, GENERATIONS = 64, 8, 60


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the middle of the search before and after."""
    gymnax.make = lambda name: to_gymnax(powerzoo_jax.make(name))  # ours
    policy = MLP((32, 1), output_fn=tanh_output_fn, kernel_init=jax.nn.initializers.normal(0.01))
    problem = GymnaxProblem(BATTERY, policy, num_rollouts=PLAYED, use_normalize_obs=False)
    key, key_problem, key_first = jax.random.split(jax.random.key(seed), 3)
    found = problem.init(key_problem)
    first = problem.sample(key_first)
    search = Open_ES(POPULATION, first, optimizer=optax.adam(0.01), std_schedule=optax.constant_schedule(0.05))
    state, params = search.init(key, first, search.default_params), search.default_params

    @jax.jit
    def generation(carry, key):
        state, found = carry
        key_ask, key_eval, key_tell = jax.random.split(key, 3)
        population, state = search.ask(key_ask, state, params)
        returns, found, _ = problem.eval(key_eval, population, found)
        state, _ = search.tell(key_tell, population, -returns, state, params)
        return state, found

    def score(state):
        weights = search.get_mean(state)
        played = jax.jit(jax.vmap(lambda obs: policy.apply(weights, obs, None)))
        return days.mean_return(lambda obs: np.asarray(played(obs)))

    before, carry = score(state), (state, found)
    for key in jax.random.split(jax.random.key(seed + 1_000), GENERATIONS):
        carry = generation(carry, key)
    return before, score(carry[0])


if __name__ == "__main__":
    run("evosax", train, BATTERY)
