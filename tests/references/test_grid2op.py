"""The replay of Grid2Op's rules itself: recordings of Grid2Op, laws by hand, and a world of five substations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from powerzoo_jax.families.operation.grid2op.example import (
    E_MAX_MWH,
    EFFICIENCY,
    HYDRO,
    LIMITS_A,
    PARAMETERS,
    ROWS,
    STORAGE_MW,
    V_KV,
    WIND,
    WIND_MAX_MW,
    write_world,
)
from tests.references.grid2op import Action, Replay, nothing
from tests.references.grid2op_flow import DATA, ISLAND, REDISPATCH
from tests.references.grid2op_redispatch import Programme, follow, quadratic_step
from tests.references.grid2op_world import World, read_config, windows
from tests.tolerances import tolerance
from tools.record_grid2op import compare, read_recording

pytestmark = pytest.mark.reference

RECORDED = Path(__file__).parents[1] / "recorded" / "grid2op"
HOURS = 1 / 12
WIDE_A = (9e3,) * len(LIMITS_A)


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Replay]:
    """Replay of a world with the given limits, parameters and loads after its reset."""

    def started(episode: str = "calm", **options: Any) -> Replay:
        replay = Replay(World(write_world(tmp_path / "five", **options)))
        replay.reset(episode)
        return replay

    return started


def do(replay: Replay, **orders: dict[int, float]) -> bool:
    """One step with the entries of an action given by position; whether it ends the episode."""
    action = nothing(replay.grid)
    for name, values in orders.items():
        for k, value in values.items():
            getattr(action, name)[k] = value
    return replay.step(action)[1]


def wait(replay: Replay, steps: int) -> None:
    for _ in range(steps):
        do(replay)


class Oracle(Replay):
    """The replay as a recording is compared with it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        grid = world.grid
        self.folder, self.episodes = world.folder, world.episodes
        self.sizes = {"rho": grid.n_line, "topo_vect": len(grid.sub_of_place), "gen_p": len(grid.sub["unit"])}

    def step(self, action, attacked=None, duration=0):
        return super().step(Action(**action) if isinstance(action, dict) else action, attacked, duration)

    def simulate(self, action, horizon=1):
        return super().simulate(Action(**action), horizon)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.npz")), ids=lambda path: path.stem)
def test_recordings_of_grid2op_are_replayed_step_by_step(path, tmp_path):
    recorded = read_recording(path)
    found = compare(recorded, Oracle(World(write_world(tmp_path / "five", drawn=path.stem == "drawn"))))
    assert found.exceptions == []
    assert found.equal_ends == found.episodes and found.steps == (recorded["rows"] - 1).sum() > 30
    assert found.equal_simulations == found.simulations == len(recorded.get("sim.row", ()))
    for key, off in found.largest.items():
        assert off <= tolerance(f"grid2op_{key}", float), key


def test_the_recordings_hold_every_end_and_every_refusal():
    every = [read_recording(path) for path in RECORDED.glob("*.npz")]
    assert {str(end) for arrays in every for end in arrays["end"]} >= {DATA, ISLAND, REDISPATCH}
    for flag in ("illegal", "ambiguous", "refused_dispatch", "attacked"):
        assert any(arrays[flag].any() for arrays in every), flag
    assert any((arrays["tripped"] >= 0).any() for arrays in every)
    assert any((arrays["time_next_maintenance"] == 0).any() for arrays in every)
    assert any((np.abs(arrays["actual_dispatch"]) > 1).any() for arrays in every)


def test_a_change_of_a_recording_is_seen(tmp_path):
    recorded = read_recording(RECORDED / "nothing.npz")
    recorded["topo_vect"][7, 3] = 2
    found = compare(recorded, Oracle(World(write_world(tmp_path / "five"))))
    assert found.parted_rows == 1 and found.equal_ends == found.episodes - 1
    assert found.exceptions == ["calm step 7: topo_vect at [3]: [1], recorded [2]"]


def test_a_flow_balances_and_holds_its_set_points(play):
    replay = play(limits=WIDE_A)
    do(replay, storage={0: 6.0})
    flow, grid, shunt = replay.flow, replay.grid, 4.0
    for sub in range(grid.n_sub):
        out = sum(
            (getattr(flow, f"p_{end}") + 1j * getattr(flow, f"q_{end}"))[grid.sub[end] == sub].sum()
            for end in ("or", "ex")
        )
        here = {kind: grid.sub[kind] == sub for kind in ("unit", "load", "storage")}
        fed = (flow.gen_p + 1j * flow.gen_q)[here["unit"]].sum()
        fed -= (replay.state.p_load + 1j * replay.state.q_load)[here["load"]].sum()
        fed -= replay.state.storage[here["storage"]].sum()
        if sub == 4:  # the capacitor gives its rated power at 1 pu, more with the square of the voltage
            fed += 1j * shunt * (flow.load_v[3] / grid.vn_kv[4]) ** 2
        assert abs(out - fed) < tolerance("grid2op_pq", float)
    np.testing.assert_allclose(flow.gen_v, V_KV, atol=tolerance("grid2op_v", float))
    assert 0 < flow.gen_p.sum() - replay.state.p_load.sum() - 6.0 < 3.0  # losses


def test_a_line_above_its_limit_opens_in_the_third_step(play):
    """Two steps are allowed; the first observation does not count."""
    limit = np.array(WIDE_A)
    limit[1] = 0.8 * play(limits=WIDE_A).flow.a_or[1]
    replay = play(limits=limit)
    assert replay.observation["rho"][1] > 1
    wait(replay, 2)
    assert replay.observation["timestep_overflow"][1] == 2 and replay.observation["line_status"][1]
    do(replay)
    assert replay.outcome.tripped[1] == 0 and not replay.observation["line_status"][1]
    assert replay.observation["time_before_cooldown_line"][1] == 10 and replay.observation["timestep_overflow"][1] == 0
    assert replay.observation["rho"][1] == replay.flow.p_ex[1] == 0


def test_a_line_above_twice_its_limit_opens_at_once(play):
    load = np.ones(ROWS)
    load[4:] = 1.6
    before = play(limits=WIDE_A, load=load)
    wait(before, 3)
    normal = before.flow.a_or[1]
    wait(before, 1)
    limit = np.array(WIDE_A)
    limit[1] = 0.49 * before.flow.a_or[1]
    assert normal < 2 * limit[1]
    replay = play(limits=limit, load=load, parameters=PARAMETERS | {"NB_TIMESTEP_OVERFLOW_ALLOWED": 99})
    wait(replay, 3)
    assert replay.observation["line_status"].all()
    do(replay)
    assert replay.outcome.tripped.tolist() == [-1, 0, -1, -1, -1, -1, -1]


def test_a_cooldown_of_three_makes_the_next_three_orders_illegal(play):
    replay = play(limits=WIDE_A)
    illegal = []
    for status in (-1, 1, 1, 1, 1):
        do(replay, set_line={4: status})
        illegal.append(replay.outcome.illegal)
    assert illegal == [False, True, True, True, False]
    assert replay.observation["line_status"][4]


def test_an_order_to_the_end_of_an_open_line_closes_it(play):
    replay = play(limits=WIDE_A)
    do(replay, set_line={4: -1})
    assert not replay.observation["line_status"][4]
    wait(replay, 3)
    do(replay, set_bus={replay.grid.place["or"][4]: 1})
    assert not replay.outcome.illegal and replay.observation["line_status"][4]
    # it counts as an order to the line, not to the substation
    assert replay.observation["time_before_cooldown_line"].tolist() == [0, 0, 0, 0, 3, 0, 0]
    assert (replay.observation["time_before_cooldown_sub"] == 0).all()


def test_two_lines_are_illegal_and_a_contradiction_is_ambiguous(play):
    replay = play(limits=WIDE_A)
    do(replay, set_line={0: -1, 1: -1})
    assert replay.outcome.illegal and replay.observation["line_status"].all()
    do(replay, set_line={0: -1}, switch_line={0: True})
    assert replay.outcome.ambiguous and replay.observation["line_status"].all()
    do(replay, storage={0: STORAGE_MW + 1})
    assert replay.outcome.ambiguous and replay.observation["storage_power"][0] == 0


def test_a_load_alone_on_a_busbar_ends_the_episode(play):
    replay = play(limits=WIDE_A)
    assert do(replay, set_bus={replay.grid.place["load"][3]: 2})
    assert replay.outcome.end == ISLAND and replay.observation is None
    assert replay.rewards() == {"redisp": -10.0, "l2rpn": 0.0, "lines": 0.0, "duration": 1 / (ROWS - 1)}


def test_a_capacitor_left_alone_ends_the_episode(play):
    """The shunt stays on busbar 1 while all else of its substation moves."""
    replay = play(limits=WIDE_A)
    there = np.flatnonzero(replay.grid.sub_of_place == 4)
    assert do(replay, set_bus=dict.fromkeys(there, 2)) and replay.outcome.end == ISLAND


def test_a_storage_charges_and_discharges_with_its_efficiencies(play):
    replay = play(limits=WIDE_A)
    loss = EFFICIENCY["power_loss"] * HOURS
    charge = 0.5 * E_MAX_MWH  # the loss of the reset is added before it is taken
    assert replay.observation["storage_charge"][0] == pytest.approx(charge)
    do(replay, storage={0: 3.0})
    charge += 3.0 * HOURS * EFFICIENCY["charging_efficiency"] - loss
    assert replay.observation["storage_charge"][0] == pytest.approx(charge)
    do(replay, storage={0: -2.0})
    charge -= 2.0 * HOURS / EFFICIENCY["discharging_efficiency"] + loss
    assert replay.observation["storage_charge"][0] == pytest.approx(charge)
    do(replay)
    assert replay.observation["storage_charge"][0] == pytest.approx(charge - loss)
    assert replay.observation["storage_power"][0] == 0


def test_a_full_storage_takes_what_fits(play):
    replay = play(limits=WIDE_A)
    charges = []
    while replay.state.storage[0] == STORAGE_MW or not charges:
        charges.append(replay.state.charge[0])
        do(replay, storage={0: STORAGE_MW})
    room = E_MAX_MWH - charges[-1]
    assert replay.state.storage[0] == pytest.approx(room / HOURS / EFFICIENCY["charging_efficiency"], rel=1e-5)


def test_the_units_give_what_a_storage_takes(play):
    replay = play(limits=WIDE_A)
    do(replay, storage={0: 6.0})
    assert replay.observation["actual_dispatch"].sum() == pytest.approx(6.0, abs=tolerance("grid2op_dispatch", float))
    do(replay)
    assert replay.observation["actual_dispatch"].sum() == pytest.approx(0.0, abs=tolerance("grid2op_dispatch", float))


def test_curtailment_holds_a_unit_and_the_others_make_up_for_it(play):
    replay = play(limits=WIDE_A)
    share = 0.45
    asked = replay.episode.rows["prod_p"][1, WIND]
    assert asked > share * WIND_MAX_MW
    do(replay, curtail={WIND: share})
    seen = replay.observation
    assert seen["gen_p"][WIND] == pytest.approx(share * WIND_MAX_MW)
    cut = asked - share * WIND_MAX_MW
    assert seen["actual_dispatch"].sum() == pytest.approx(cut, abs=tolerance("grid2op_dispatch", float))
    do(replay)  # stays in force
    assert replay.observation["gen_p"][WIND] == pytest.approx(share * WIND_MAX_MW)


def test_a_curtailment_beyond_the_ramps_ends_the_episode_before_its_flow(play):
    replay = play(limits=WIDE_A)
    assert do(replay, curtail={WIND: 0.0})
    assert replay.outcome.end == REDISPATCH and replay.outcome.refused_dispatch


def test_a_redispatched_unit_follows_its_order_within_its_ramp(play):
    replay = play(limits=WIDE_A)
    do(replay, redispatch={HYDRO: 2.0})
    seen, near = replay.observation, tolerance("grid2op_dispatch", float)
    assert seen["target_dispatch"][HYDRO] == 2.0
    # the hydro plant is the only one ordered, so it gets its target and the thermal unit the opposite
    np.testing.assert_allclose(seen["actual_dispatch"], [-2.0, 2.0, 0.0], atol=near)
    assert seen["gen_p"][HYDRO] == pytest.approx(replay.episode.rows["prod_p"][1, HYDRO] + 2.0, abs=near)


def test_an_attacked_line_is_open_and_cools_down_as_long_as_it_lasts(play):
    replay = play(limits=WIDE_A)
    attacked = np.zeros(replay.grid.n_line, bool)
    attacked[4] = True
    for left in (4, 3, 2, 1):
        seen, _ = replay.step(nothing(replay.grid), attacked, left)
        assert not seen["line_status"][4] and seen["time_before_cooldown_line"][4] == left - 1
    do(replay, set_line={4: 1})
    assert not replay.outcome.illegal and replay.observation["line_status"][4]


def test_maintenance_opens_a_line_after_the_action_and_blocks_it_until_its_end(play):
    replay = play("outages", limits=WIDE_A)
    assert replay.observation["time_next_maintenance"][2] == 6
    assert replay.observation["duration_next_maintenance"][2] == 4
    wait(replay, 5)
    for left in (4, 3, 2, 1):
        do(replay, set_line={2: 1})
        seen = replay.observation
        assert not seen["line_status"][2] and seen["time_next_maintenance"][2] == 0
        assert seen["time_before_cooldown_line"][2] == left
    do(replay, set_line={2: 1})
    assert replay.outcome.illegal  # the last remaining step counts as cooldown
    do(replay, set_line={2: 1})
    assert replay.observation["line_status"][2]


def test_a_simulation_leaves_the_replay_as_it_is_and_meets_its_forecast(play):
    replay = play(limits=WIDE_A)
    wait(replay, 2)
    before = {key: np.copy(value) for key, value in vars(replay.state).items()}
    seen, failed, _ = replay.simulate(nothing(replay.grid), horizon=2)
    assert not failed
    for key, value in before.items():
        np.testing.assert_array_equal(getattr(replay.state, key), value)
    rows = replay.episode.rows
    np.testing.assert_allclose(seen["load_p"], rows["load_p"][4] * 1.01, atol=1e-3)  # three decimals in the files
    order = nothing(replay.grid)
    order.set_bus[replay.grid.place["load"][3]] = 2
    seen, failed, outcome = replay.simulate(order)
    assert failed and seen is None and outcome.end == ISLAND


def test_a_window_is_counted_down_to_and_through():
    time, left = windows(np.array([0, 0, 1, 1, 0, 0, 1, 0.0]))
    assert time.tolist() == [2, 1, 0, 0, 2, 1, 0, -1]
    assert left.tolist() == [2, 2, 2, 1, 1, 1, 1, 0]


def test_a_config_is_read_and_not_run(tmp_path):
    text = "import os\nos.remove('x')\nfrom a import B\nn = 12\nconfig = {'k': n * 24, 'c': B, 'r': B([[0, 1], [2]])}\n"
    (tmp_path / "config.py").write_text(text, encoding="utf-8")
    found = read_config(tmp_path / "config.py")
    assert found == {"k": 288, "c": ("name", "B"), "r": ("call", ("name", "B"), [[[0, 1], [2]]])}


def test_a_quadratic_step_meets_its_conditions():
    """Stationary where free, multipliers of the right sign at the bounds (Nocedal and Wright, section 16.1)."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        root = rng.normal(size=(6, 6))
        b, g = root @ root.T + 0.1 * np.eye(6), rng.normal(size=6)
        low, high = -rng.uniform(0, 1, 6), rng.uniform(0, 1, 6)
        total = rng.uniform(low.sum(), high.sum())
        step, price, bound = quadratic_step(b, g, low, high, total)
        assert (step >= low - 1e-9).all() and (step <= high + 1e-9).all()
        assert step.sum() == pytest.approx(total, abs=1e-9)
        np.testing.assert_allclose(b @ step + g - price - bound, 0, atol=1e-8)
        at_low, at_high = step <= low + 1e-9, step >= high - 1e-9
        assert (bound[~at_low] <= 1e-9).all() and (bound[~at_high] >= -1e-9).all()


def test_the_path_ends_near_the_optimum_of_ordered_units():
    """With every unit ordered the optimum is one: equal weights share what is missing equally."""
    one = np.ones(4)
    wanted = np.array([1.0, -1.0, 0.5, 0.1])
    given = Programme(one / 4, one > 0, wanted, -2 * one, 2 * one, 1.0, wanted, 1.0, 1e-9)
    np.testing.assert_allclose(follow(given), wanted + (1.0 - wanted.sum()) / 4, atol=1e-6)
