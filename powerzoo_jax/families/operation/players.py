"""Players of a grid: greedy and recovery, which simulate what the actions of the table do on the next forecast row.

Simulated actions are ranked by (game over, sum of (rho - 1)+, largest rho), ties by the lowest row of the table. An
illegal one does nothing, and so ranks behind row 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import Step, struct
from powerzoo_jax.base.numerics import anywhere
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.envs.core import EnvAround, Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.operation import topology
from powerzoo_jax.families.operation.simulate import simulate
from powerzoo_jax.families.operation.types import RUNNING, GridAction, OperationState
from powerzoo_jax.oracle.registry import Policy

HOT, COOL, FULL = 0.95, 0.9, 1.0  # largest rho of doing nothing to act at; below, to return; at, to search
TRIED = 64  # busbar settings that `recovery` searches
IDLE = 32  # steps that `when_hot` passes at most before it asks again

Choose = Callable[[Sim, Any, Array, Array], Array]
"""(sim, state, obs (A, O), key) -> action (1, 1)"""


class ActionRanks(NamedTuple):
    """Grid one step ahead after each of some actions, (M,) each.

    over: bool, a game over    excess: sum of (rho - 1)+    rho: largest
    """

    over: Array
    excess: Array
    rho: Array


def look_ahead(sim: Sim, state: OperationState, rows: Array) -> ActionRanks:
    """ActionRanks of rows (M,) of the table, simulated side by side."""

    def one(row: Array) -> ActionRanks:
        found = simulate(sim, state, row)
        over = found.state.end != RUNNING
        return ActionRanks(over, jnp.sum(jnp.maximum(found.rho - 1, 0)), jnp.max(found.rho))

    return jax.vmap(one)(rows)


def best_action(sim: Sim, state: OperationState, rows: Array | None = None) -> Array:
    """Best action, the row () int32 of the table whose simulation ranks first.

    rows:  (M,) to choose among, in the order of ties; None takes the whole table
    """
    rows = jnp.arange(sim.params.table.set_line.shape[0], dtype=jnp.int32) if rows is None else rows
    return rows[first_of(look_ahead(sim, state, rows))]


def first_of(ranks: ActionRanks) -> Array:
    """Position () of the first action by rank."""
    left = jnp.ones(ranks.rho.shape, bool)
    for key in (ranks.over.astype(ranks.rho.dtype), ranks.excess, ranks.rho):
        left &= key <= jnp.min(jnp.where(left, key, jnp.inf))
    return jnp.argmax(left).astype(jnp.int32)


def is_hot(sim: Sim, state: OperationState, threshold: float | Array = HOT) -> Array:
    """Whether doing nothing leads to a largest rho above a threshold, or to a game over, () bool."""
    idle = look_ahead(sim, state, jnp.zeros(1, jnp.int32))
    return (idle.over | (idle.rho > threshold))[0]


def greedy(threshold: float = HOT) -> Choose:
    """Best action of the table where doing nothing leads to a largest rho above a threshold, else nothing."""
    return Partial(_greedy, jnp.asarray(threshold))


def _greedy(threshold: Array, sim: Sim, state: OperationState, obs: Array, key: Array) -> Array:
    del obs, key
    hot = is_hot(sim, state, threshold)
    found = lax.cond(anywhere(hot), lambda: best_action(sim, state), lambda: jnp.zeros((), jnp.int32))
    return jnp.where(hot, found, 0).reshape(1, 1)


def learnt(choice: Callable[[Array, Array, Array], Array], threshold: float = HOT) -> Choose:
    """Learnt choice among legal actions where doing nothing leads to a largest rho above a threshold, else nothing.

    choice:  Partial of (obs (A, O), legal (A, M) bool, key) -> action (A, U), as of `rl.policies.ppo_choice`
    """
    return Partial(_learnt, choice, jnp.asarray(threshold))


def _learnt(choice: Any, threshold: Array, sim: Sim, state: OperationState, obs: Array, key: Array) -> Array:
    action = choice(obs, topology.legal(state, sim.params)[None], key)
    return jnp.where(is_hot(sim, state, threshold), action, 0)


def recovery(sim: Sim, tried: int = TRIED) -> Choose:
    """Recovery: close an open line; when cool, put a substation back to its base; when full, search settings.

    A line is closed where that is legal and ends nothing. Below a largest rho of `COOL`, a substation goes back to
    busbar 1 where the simulated rho stays below; from `FULL` on, the first `tried` busbar settings are simulated.
    """
    table = jax.tree.map(np.asarray, sim.params.table)
    closing, base, settings = _rows_of(table, np.asarray(sim.params.sub))
    return Partial(_recovery, *(jnp.asarray(x, jnp.int32) for x in (closing, base, [0, *settings[:tried]])))


def _rows_of(table: GridAction, sub: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Row that closes each line (L,) and that puts each substation on busbar 1 (S,), 0 without; rows of settings."""
    busbar = np.asarray(table.set_busbar)
    moves = (busbar != 0).any(axis=1) | np.asarray(table.change_busbar).any(axis=1)
    switch = np.asarray(table.switch_line) | (np.asarray(table.set_line) > 0)
    lone = (switch.sum(axis=1) == 1) & ~moves
    closing = np.where((switch & lone[:, None]).any(axis=0), np.argmax(switch & lone[:, None], axis=0), 0)
    member = sub == np.arange(sub.max() + 1)[:, None]
    back = np.array([[np.array_equal(row == 1, of) and not (row > 1).any() for row in busbar] for of in member])
    base = np.where(back.any(axis=1), np.argmax(back, axis=1), 0)
    still = moves & ~switch.any(axis=1) & ~(np.asarray(table.set_line) < 0).any(axis=1)
    return closing, base, [k for k in np.flatnonzero(still).tolist() if k not in base]


def _recovery(
    closing: Array, base: Array, settings: Array, sim: Sim, state: OperationState, obs: Array, key: Array
) -> Array:
    del obs, key
    params, zero = sim.params, jnp.zeros((), jnp.int32)
    legal, rho = topology.legal(state, params), jnp.max(state.flow.a_or / params.limit_a)
    closable = ~state.flow.on & (closing > 0) & legal[closing]
    close = closing[jnp.argmax(closable)]
    away = jnp.zeros(base.shape, jnp.int32).at[params.sub].max((state.busbar > 1).astype(jnp.int32)) > 0
    returnable = away & (base > 0) & legal[base]
    back = base[jnp.argmax(returnable)]
    wanted = jnp.any(closable), jnp.any(returnable) & (rho < COOL)
    step = jnp.where(wanted[0], close, jnp.where(wanted[1], back, zero))

    def tried() -> ActionRanks:
        return look_ahead(sim, state, step[None])

    none = ActionRanks(jnp.ones(1, bool), *(jnp.ones(1, rho.dtype) for _ in range(2)))
    seen = lax.cond(anywhere(step > 0), tried, lambda: none)
    fine = ~seen.over[0] & (wanted[0] | (seen.rho[0] < COOL))
    full = (rho >= FULL) & ~wanted[0]
    found = lax.cond(anywhere(full), lambda: best_action(sim, state, settings), lambda: zero)
    return jnp.where(full, found, jnp.where(fine, step, zero)).reshape(1, 1)


def as_policy(sim: Sim, choose: Choose, draws: Draw, keys: Array) -> Policy:
    """Policy of a player who needs the state: its carry is a twin of the episode, which plays the same actions.

    draws, keys:  (B,) Draw and PRNG key of each episode
    """
    states = jax.jit(jax.vmap(lambda key, drawn: sim.env.begin(key, drawn, sim.params)[0]))(keys, draws)
    return Policy(Partial(_twin, sim, choose if isinstance(choose, Partial) else Partial(choose)), states)


def _twin(sim: Sim, choose: Choose, state: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    action = choose(sim, state, obs, key)
    return sim.step(state, action).state, action


@struct.dataclass(kw_only=True)
class HotState:
    """State of a grid whose operator is asked when it is hot; its other fields are those of `inner`.

    hot:  () bool, whether the next action counts
    """

    inner: Any
    hot: Array

    def __getattr__(self, name: str) -> Any:
        # copying asks for attributes before there is an `inner` to ask
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class AskedWhenHot(EnvAround):
    """The operation of a grid whose operator is asked only where doing nothing leads above a largest rho.

    A step is one of the grid and the idle ones behind it, up to `most`, with the sums of their rewards, terms and
    costs; after as many the grid steps on with `legal` nothing else than row 0.
    """

    threshold: float = HOT
    most: int = IDLE

    def _around(self, params: Any) -> Sim:
        return Sim(params=params, env=self.env, spec=None)  # type: ignore[arg-type]

    def init(self, key: Array, params: Any) -> tuple[HotState, Array]:
        """Draw an episode."""
        return self._first(self.env.init(key, params), params)

    def begin(self, key: Array, drawn: Draw, params: Any) -> tuple[HotState, Array]:
        """Begin a chosen episode."""
        return self._first(self.env.begin(key, drawn, params), params)

    def _first(self, begun: tuple[Any, Array], params: Any) -> tuple[HotState, Array]:
        state, obs = begun
        return HotState(inner=state, hot=is_hot(self._around(params), state, self.threshold)), obs

    def step(self, state: HotState, action: Array, params: Any) -> Step:
        """Advance to where the operator is asked again."""
        sim, idle = self._around(params), jnp.zeros_like(action)

        def once(inner: Any, action: Array) -> tuple[Step, Array]:
            out: Step = self.env.step(inner, action, params)
            ended = out.info.terminated | out.info.truncated
            return out, ended | is_hot(sim, out.state, self.threshold)

        def more(carry: tuple[Step, Array, Array]) -> tuple[Step, Array, Array]:
            out, _, count = carry
            new, due = once(out.state, idle)
            info = dataclasses.replace(new.info, terms=out.info.terms + new.info.terms)
            return new._replace(reward=out.reward + new.reward, cost=out.cost + new.cost, info=info), due, count + 1

        first = *once(state.inner, where_done(state.hot, action, idle)), jnp.zeros((), jnp.int32)
        out, due, _ = lax.while_loop(lambda c: ~c[1] & (c[2] < self.most), more, first)
        alone = jnp.arange(out.info.legal.shape[-1]) == 0
        info = dataclasses.replace(out.info, legal=out.info.legal & (due | alone)[None])
        return out._replace(state=HotState(inner=out.state, hot=due), info=info)


def when_hot(sim: Sim, threshold: float = HOT, most: int = IDLE) -> Sim:
    """The same grid for an operator who is asked only where doing nothing leads to a largest rho above a threshold."""
    return dataclasses.replace(sim, env=AskedWhenHot(sim.env, threshold, most))
