"""Redispatch, curtailment and storages on random orders, closed loop: as the plain replay of Grid2Op's rules has it."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.solver_mode import auto_is
from powerzoo_jax.families.operation import redispatch
from powerzoo_jax.families.operation.types import DispatchState, Fleet, GridAction
from tests.references.grid2op import Action, GameOver, Outcome, Replay, State, nothing
from tests.references.grid2op_world import DEFAULTS, Episode
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.full]

F = np.float32
STEPS, EPISODE = 400, 25  # steps of a closed loop, and after how many it begins anew
LOADS, LINES, STORAGES = 4, 3, 2


def made(units: int, rng: np.random.Generator) -> SimpleNamespace:
    """A world of units, loads and storages of random characteristics, as the replay reads it."""
    sizes = {"or": LINES, "ex": LINES, "unit": units, "load": LOADS, "storage": STORAGES}
    edges = np.cumsum([0, *sizes.values()])
    place = {key: np.arange(a, b) for key, a, b in zip(sizes, edges, edges[1:], strict=False)}
    grid = SimpleNamespace(
        place=place, sub={key: np.zeros(n, int) for key, n in sizes.items()}, sub_of_place=np.zeros(edges[-1], int),
        n_line=LINES, n_sub=1,
    )  # fmt: skip
    p_max = rng.uniform(20, 200, units).astype(F)
    renewable = np.arange(units) % 3 == 2
    ramp = (p_max * rng.uniform(0.02, 0.12, units)).astype(F)
    ramp[renewable] = 0
    return SimpleNamespace(
        grid=grid, has_units=True, renewable=renewable, redispatchable=~renewable, p_max_mw=p_max,
        p_min_mw=np.zeros(units, F), ramp_up_mw=ramp, ramp_down_mw=ramp * F(0.9), cost=np.ones(units, F),
        e_max_mwh=F([15, 7]), e_min_mwh=F([0, 1]), produced_mw=F([5, 10]), absorbed_mw=F([5, 10]),
        loss_mw=F([0.1, 0.1]), charging=F([0.95, 0.9]), discharging=F([0.9, 1.0]), parameters=DEFAULTS,
    )  # fmt: skip


def params_of(world: SimpleNamespace) -> SimpleNamespace:
    columns = {key: jnp.asarray(getattr(world, key)) for key in Fleet.__dataclass_fields__ if key != "known"}
    rules = SimpleNamespace(storage_loss=jnp.asarray(True), storage_start=jnp.asarray(0.5))
    return SimpleNamespace(fleet=Fleet(**columns, known=jnp.asarray(True)), rules=rules, limit_a=jnp.zeros(LINES))


def begun(world: SimpleNamespace) -> State:
    charge = F(0.5) * world.e_max_mwh + world.loss_mw / 12
    units, places = len(world.p_max_mw), len(world.grid.sub_of_place)
    given = {name: np.zeros(units, F) for name in State.__annotations__ if not hasattr(State, name)}
    given |= {"ordered": np.zeros(units, bool), "limit": np.ones(units, F), "topology": np.ones(places, int)}
    given |= {"last_busbar": np.ones(places, int), "p_load": np.zeros(LOADS, F), "q_load": np.zeros(LOADS, F)}
    return State(**given | {"charge": charge, "charge_before": charge, "storage": np.zeros(STORAGES, F)})


def kept(state: State) -> DispatchState:
    own = {key: np.array(getattr(state, key)) for key in DispatchState.__dataclass_fields__ if hasattr(state, key)}
    return DispatchState(**own, curtailed_sum=F(state.curtailed_before), stored_sum=F(state.stored_before))


def drawn(world: SimpleNamespace, rng: np.random.Generator, out: bool) -> Action:
    action = nothing(world.grid)
    chosen = rng.random(len(world.p_max_mw)) < 0.15
    some = world.redispatchable & chosen & (rng.random() < 0.5)
    share = np.where(rng.random(len(chosen)) < 0.1, 1, rng.uniform(0, 1, len(chosen)))
    whole = np.where(rng.random(len(chosen)) < 0.5, world.ramp_up_mw, -world.ramp_down_mw)
    action.redispatch[some] = (share * whole)[some]
    limited = world.renewable & chosen & (rng.random() < 0.3)
    action.curtail[limited] = rng.uniform(0.3, 1, limited.sum())
    if rng.random() < 0.4:
        action.storage[:] = rng.uniform(-world.produced_mw, world.absorbed_mw) * (rng.random(STORAGES) < 0.7)
    for kind in ("unit", "load"):
        place = world.grid.place[kind]
        action.set_bus[place[rng.integers(len(place))]] = -1 if out and rng.random() < 0.1 else 0
    return action


def loop(world: SimpleNamespace, rng: np.random.Generator, out: bool) -> list[tuple]:
    """Rows of a closed loop: state before, orders, series, busbars; state after, set-points, infeasible, refused."""
    units, found = len(world.p_max_mw), []
    steps = rng.uniform(-0.01, 0.01, (STEPS + 1, units)) + 0.3 * rng.uniform(0, 1, units)
    rows = {"prod_p": (np.abs(steps) * world.p_max_mw).astype(F)}
    rows |= {"load_p": rng.uniform(5, 30, (STEPS + 1, LOADS)).astype(F), "load_q": np.zeros((STEPS + 1, LOADS), F)}
    replay = Replay(world)  # type: ignore[arg-type]
    replay.episode, replay.first, replay.outcome = Episode("", rows, None, None, None, {}), False, Outcome()
    for replay.row in range(STEPS):
        over = bool(found) and found[-1][-1][2]
        if replay.row % EPISODE == 0 or over:
            replay.state = begun(world)
            replay._inject(nothing(world.grid))
            continue
        before, action, replay.outcome, over = kept(replay.state), drawn(world, rng, out), Outcome(), False
        try:
            replay._inject(action)
        except GameOver:
            over = True
        s = replay.state
        after = (kept(s), s.p_unit.copy(), over, replay.outcome.refused_dispatch)
        row = [rows[key][replay.row] for key in ("prod_p", "load_p")]
        found.append((before, action[4:], row, np.maximum(s.topology, 0), after))
        s.topology[:] = 1
    return found


@pytest.mark.parametrize("mode", ["adaptive", "fixed"])
@pytest.mark.parametrize(("units", "out"), [(6, False), (6, True), (22, False), (62, False)])
def test_a_closed_loop_of_orders_is_that_of_the_replay(units, out, mode):
    rng = np.random.default_rng(units + out)
    world = made(units, rng)
    params = params_of(world)
    before, orders, row, busbar, (after, p_unit, over, refused) = (
        jax.tree.map(lambda *x: np.stack(x), *part) for part in zip(*loop(world, rng, out), strict=True)
    )

    def one(state, orders, row, busbar):
        idle = dict.fromkeys(GridAction.__dataclass_fields__)
        given = GridAction(**idle | dict(zip(("redispatch", "curtail", "storage"), orders, strict=True)))
        return redispatch.dispatch(state, given, *row, busbar, params)

    with auto_is(mode):
        found = jax.jit(jax.vmap(one))(before, orders, row, busbar)
    np.testing.assert_array_equal(found.infeasible, over)
    np.testing.assert_array_equal(found.refused, refused)
    assert not over.all() and (over.any() or units > 6)
    for name in DispatchState.__dataclass_fields__:
        ours, theirs = np.asarray(getattr(found.state, name))[~over], getattr(after, name)[~over]
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=tolerance("grid2op_dispatch", float), rtol=0, err_msg=name)
    np.testing.assert_allclose(found.p_unit[~over], p_unit[~over], atol=tolerance("grid2op_dispatch", float), rtol=0)
    assert np.isfinite(found.p_unit).all() and (np.abs(after.actual[~over]).max(1) > 1).mean() > 0.5
