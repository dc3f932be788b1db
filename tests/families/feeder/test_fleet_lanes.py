"""4,096 lanes of dso on different feeders, in one program: line status, impedances and device sizes."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import without_idle_branches
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.envs import Sim, vstep
from powerzoo_jax.envs.series import SHAPE
from powerzoo_jax.powerflow import prepare_feeder
from tests.references.newton import build_network, solve_states
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.long]

LANES, STEPS = 4096, 2
SWITCHED = (None, ((7, 8), (8, 21)), ((14, 15), (9, 15)), ((32, 33), (18, 33)), ((28, 29), (25, 29)))  # open, close
SCALES = (0.8, 1.0, 1.2)  # of all impedances
FLEX_BUSES = (6, 14, 18, 22, 28, 33)


def feeder(switched: Any, scale: float) -> Case:
    """case33bw with one line opened and one tie closed, and other impedances."""
    case = load_case("case33bw")
    branch, on = case.branch, case.branch.in_service.copy()
    for ends, status in zip(switched or (), (False, True), strict=bool(switched)):
        at = [k for k in range(len(on)) if {branch.from_id[k], branch.to_id[k]} == set(ends)]
        on[at] = status
    changed = dataclasses.replace(branch, in_service=on, r_pu=branch.r_pu * scale, x_pu=branch.x_pu * scale)
    return without_idle_branches(dataclasses.replace(case, branch=changed))


CASES = [feeder(switched, scale) for switched in SWITCHED for scale in SCALES]


def on_feeder(sim: Sim, case: Case) -> Sim:
    factors = prepare_feeder(case, active_bus_ids=FLEX_BUSES, load_factor=0.6, v_slack=1.0)
    grid = to_grid(case, v_min=0.94, v_max=1.06)
    return sim.replace(params=dataclasses.replace(sim.params, factors=factors, grid=grid))


def many() -> Sim:
    """Every lane its own caps, and one of 15 feeders."""
    sim = powerzoo_jax.make("dso")
    sims = powerzoo_jax.stack([on_feeder(sim, case) for case in CASES])
    lane = np.arange(LANES) % len(CASES)
    apart = jax.tree.map(lambda x: x[lane], dataclasses.replace(sims.params, bank=None))
    size = jnp.asarray(np.random.default_rng(8).uniform(0.5, 1.5, (LANES, len(FLEX_BUSES))), jnp.float32)
    fleet = apart.flexload
    fleet = fleet.replace(curtail_cap_mw=fleet.curtail_cap_mw * size, shift_cap_mw=fleet.shift_cap_mw * size)
    return sims.replace(params=dataclasses.replace(apart, bank=sims.params.bank, flexload=fleet))


@cache
def played() -> tuple[Sim, np.ndarray, list[Any], int]:
    """(lanes, actions (T, B, 1, 12), outputs of every step, how often the step was traced)."""
    sims, traces = many(), []

    def step(sims: Sim, states: Any, actions: Any) -> Any:
        traces.append(1)
        out, states, _ = vstep(sims, states, actions)
        return states, (out.obs[:, 0, :33], out.reward, out.info)

    states, _ = jax.jit(lambda s, keys: jax.vmap(Sim.init, in_axes=(powerzoo_jax.lanes(s), 0))(s, keys))(
        sims, jax.random.split(jax.random.key(0), LANES)
    )
    actions = np.random.default_rng(9).uniform(-1, 1, (STEPS, LANES, 1, 12)).astype(np.float32)
    run, outs = jax.jit(step), []
    rows = np.asarray(states.load_row)
    for t in range(STEPS):
        states, out = run(sims, states, jnp.asarray(actions[t]))
        outs.append(jax.tree.map(np.asarray, out))
    return sims, rows, outs, len(traces)


def test_one_trace_serves_all_lanes_and_steps():
    assert played()[3] == 1


def test_every_lane_is_solved_and_no_two_feeders_agree():
    _, _, outs, _ = played()
    for _, _, info in outs:
        assert not info.pf_status.any() and not info.terminated.any()
    v_min = outs[-1][2].v_min_pu[: len(CASES)]
    assert len(np.unique(v_min.round(6))) == len(CASES)


def test_sampled_lanes_solve_an_independent_power_flow_of_their_own_feeder():
    sims, rows, outs, _ = played()
    columns, params = sims.env.columns, sims.params
    names = ["load_factor", *(n for n in columns.names if n.rpartition("_")[0] == SHAPE)]
    bank = np.asarray(params.bank.load_rows, float)[:, [columns.at(n) for n in names]]
    for lane in range(0, LANES, LANES // 13):
        case = CASES[lane % len(CASES)]
        load = bank[rows[lane] + STEPS - 1] * float(params.load_ratio[lane]) @ np.asarray(params.shape_bus[lane], float)
        v_norm, _, info = outs[-1]
        device = (info.p_mw[lane] + 1j * info.q_mvar[lane]) @ np.asarray(params.place_bus[lane], float)
        s = (device - load * (case.p_load_mw + 1j * case.q_load_mvar)) / case.base_mva
        solution = solve_states(build_network(case), s[None])
        assert solution.converged.all()
        found = 1 + v_norm[lane].astype(float) / 10
        np.testing.assert_allclose(found, np.abs(solution.v[0]), atol=tolerance("v_pu", "float32"))
