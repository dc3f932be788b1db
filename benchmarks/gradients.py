"""Cost of a gradient of losses in solves, batched: one pinned core, interleaved.

Usage: python benchmarks/gradients.py [--quick] [--case case118 ...] [--rounds 15] [--out results.tsv]

What is timed: device arrays of injections in -> losses of all lanes; the same with their gradient by all injections;
loads are those of benchmarks/powerflow.py. `gradient_solves` is what the gradient costs, the solve it needs included,
in solves of the same program that return losses.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import Engine
from powerflow import BLOCKED, FEEDERS, draw
from report import Table, parser

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import prepare_feeder, prepare_meshed, solve_feeder, solve_meshed

CASES = ("case33bw", "case118", "case300")
BATCH = 256
COLUMNS = ["case", "dtype", "B", "losses_us", "gradient_us", "gradient_solves"]


def engines(name: str, dtype: str, batch: int) -> tuple[Engine, Engine]:
    """The program of losses, and that of losses and their gradient."""
    case = load_case(name)
    dense = name in FEEDERS and name not in BLOCKED
    factors = (prepare_feeder if dense else prepare_meshed)(case, dtype=dtype)
    solve: Any = solve_feeder if dense else solve_meshed
    s = draw(case, batch)[0]
    given = factors, jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype)

    def losses(factors: Any, p: jax.Array, q: jax.Array) -> jax.Array:
        return solve(factors, p, q).p_loss

    both = jax.jit(jax.vmap(jax.value_and_grad(losses, (1, 2)), in_axes=(None, 0, 0)))
    alone = jax.jit(jax.vmap(losses, in_axes=(None, 0, 0)))
    np.testing.assert_allclose(alone(*given), both(*given)[0], rtol=1e-4)
    runs = (lambda program=program: jax.block_until_ready(program(*given)) for program in (alone, both))
    return tuple(Engine(name, dtype, batch, run) for run in runs)  # type: ignore[return-value]


def main() -> None:
    arguments = parser(__doc__, "few rounds")
    arguments.add_argument("--case", nargs="+", default=CASES, help=f"default: {' '.join(CASES)}")
    args = arguments.parse_args()
    with Table(COLUMNS, args.out) as table:
        for name in args.case:
            for dtype in ("float32", "float64"):
                with jax.enable_x64(dtype == "float64"):
                    pair = engines(name, dtype, BATCH)
                    for _ in range(args.rounds or (5 if args.quick else 15)):
                        for engine in pair:
                            engine.time(0.05)
                cost = [1e6 / engine.rate for engine in pair]
                row = (name, dtype, str(BATCH), *(f"{x:.3f}" for x in cost), f"{cost[1] / cost[0]:.2f}")
                table.add(row)


if __name__ == "__main__":
    main()
