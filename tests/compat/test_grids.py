"""Grids, devices and markets as environments of their own, and tasks out of dicts and files."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import powerzoo
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test
from powerzoo import rl
from powerzoo.envs import BatteryEnv, DistGridEnv, FlexLoad, GridEnv, PowerEnv, SolarEnv, TransGridEnv
from powerzoo.envs.base import BaseEnv
from powerzoo.envs.market import BidBasedMarketEnv, CostBasedMarketEnv, MarketEnv
from powerzoo.envs.microgrid import DCMicrogridEnv
from powerzoo.envs.resource import DieselResource, ResourceEnv, VehicleEnv, WindEnv
from powerzoo.tasks import audit_env, make_task_env
from powerzoo.wrappers import FlattenWrapper, GymnasiumWrapper, MARLWrapper, NormalizationWrapper

STEPS = 6
SOLAR = {"type": "solar", "bus_id": 10, "capacity_mw": 0.3}
HOME = {"type": "battery", "bus_id": 18, "capacity_mwh": 1.0, "power_mw": 0.3}
FLEX = {"type": "flexload", "bus_id": 25, "curtail_cap_mw": 0.1, "shift_cap_mw": 0.1}
CONFIG = {
    "name": "mine",
    "grid": {"type": "distribution", "case": "Case33bw", "max_load_ratio": 0.5},
    "resources": [SOLAR, HOME | {"name": "home"}, FLEX],
    "reward": {"type": "safety_only", "penalty": 2.0},
    "episode": {"max_steps": STEPS},
}
YAML = """
grid: {type: distribution, case: Case33bw, max_load_ratio: 0.5}
resources:
  - {type: solar, bus_id: 10, capacity_mw: 0.3}
  - {name: home, type: battery, bus_id: 18, capacity_mwh: 1.0, power_mw: 0.3}
  - {type: flexload, bus_id: 25, curtail_cap_mw: 0.1, shift_cap_mw: 0.1}
episode: {max_steps: 6}
"""


def feeder():
    grid = DistGridEnv(max_load_ratio=0.5, max_episode_steps=STEPS)
    grid.register_resource(SolarEnv(capacity_mw=0.3), 10)
    grid.register_resource(BatteryEnv(capacity_mwh=1.0, power_mw=0.3), 18, "home")
    grid.register_resource(FlexLoad(curtail_cap_mw=0.1, shift_cap_mw=0.1), 25)
    return grid


@pytest.fixture(scope="module")
def power():
    return PowerEnv(feeder())


@pytest.fixture(scope="module")
def trans():
    return TransGridEnv(difficulty="easy", max_episode_steps=STEPS)


def checked(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        check_env(env, skip_render_check=True)  # which asks for a registered id


def test_the_classes_of_the_contract_are_base_envs():
    for cls in (GridEnv, ResourceEnv, PowerEnv, MarketEnv, DCMicrogridEnv):
        assert issubclass(cls, BaseEnv) and issubclass(cls, gymnasium.Env)
    assert powerzoo.TransGridEnv is TransGridEnv and powerzoo.BatteryEnv is BatteryEnv


@pytest.mark.long
def test_a_transmission_grid_follows_a_schedule_in_mw_or_finds_its_own(trans):
    # sizes of the specification: Case5 shows 18 entries, a DC optimum runs the cheap unit up to its lines
    assert trans.obs_space.shape == (18,) and len(trans.obs_names) == 18 and trans.delta_t_minutes == 60
    state, _ = trans.reset(seed=0)
    assert {key: x.size for key, x in state.items()} == {"line_flow": 6, "load": 5, "unit": 5, "clock": 2}
    np.testing.assert_array_equal(trans.obs(state), trans.obs())
    *_, best = trans.step(None)
    assert best["is_safe"] and best["lmp"] == pytest.approx(10.0, abs=1e-3)
    assert best["unit_power_mw"].sum() == pytest.approx(best["total_load_mw"], abs=1e-2)
    schedule = np.array([20, 60, 300, 50, 0.0])
    schedule[4] = best["total_load_mw"] - schedule.sum()
    trans.reset(seed=0)  # the same load
    *_, given = trans.step({"unit_power_mw": schedule})
    np.testing.assert_allclose(given["unit_power_mw"], schedule, atol=1e-2)
    assert given["gen_cost_usd"] > best["gen_cost_usd"]
    for action, words in (
        ({"unit_mw": schedule}, "unit_power_mw"),
        ({"unit_power_mw": schedule[:2]}, r"\(5,\).*\(2,\)"),
        ({"unit_power_mw": schedule * np.nan}, "NaN"),
    ):
        with pytest.raises(ValueError, match=words):
            trans.step(action)


@pytest.mark.long
@pytest.mark.parametrize("enforced", [True, False])
def test_an_ac_grid_lists_the_buses_that_gave_up_their_voltage(enforced):
    """In a light load the condenser of bus 3, which cannot take in reactive power, does not hold 1.010 pu."""
    keywords = {} if enforced else {"enforce_q_lim": False}
    grid = TransGridEnv("Case14", physics="ac", solver_mode="pf", max_load_ratio=0.3, max_episode_steps=1, **keywords)
    _, opened = grid.reset(seed=0)
    *_, info = grid.step(None)
    ids = grid.nodes.id.tolist()
    told, v = info["q_limited_bus_ids"], dict(zip(ids, info["vm_pu"], strict=True))
    assert all(bus in (where, -1) for bus, where in zip(told.tolist(), ids, strict=True))
    assert (told.dtype, told.shape) == (opened["q_limited_bus_ids"].dtype, opened["q_limited_bus_ids"].shape)
    limited = set(told[told >= 0].tolist())
    assert (3 in limited) == enforced and limited <= {2, 3, 6, 8}
    held = {2: 1.045, 3: 1.010, 6: 1.070, 8: 1.090}
    assert all((v[bus] == pytest.approx(held[bus], abs=1e-6)) == (bus not in limited) for bus in held)
    assert ("cost_reactive_shortfall" in info) == enforced
    assert "reactive_shortfall" not in info["selected_constraint_names"]


@pytest.mark.long
def test_a_grid_behind_its_wrapper_passes_the_checker(trans):
    env = GymnasiumWrapper(trans)
    checked(env)
    assert audit_env(env) == [] and env.action_names[0] == "unit_1_p"
    scaled = NormalizationWrapper(env)
    assert np.abs(scaled.reset(seed=1)[0]).max() <= 1
    with pytest.raises(TypeError, match="obs"):
        GymnasiumWrapper(object())


@pytest.mark.long
def test_units_of_a_grid_are_agents_of_a_parallel_env(trans):
    env = MARLWrapper(trans)
    assert env.action_space("unit_2").high == 520.0 and env.observation_space("unit_2").shape == (6 + 5 + 2 + 6,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(env, num_cycles=STEPS + 1)
    env.reset(seed=0)
    schedule = (40, 100, 200, 150, 60)
    _, rewards, *_, infos = env.step({a: [p] for a, p in zip(env.agents, schedule, strict=True)})
    others = [0, 1, 2, 4]  # unit 3 stands at the reference bus and covers the difference
    assert len(set(rewards.values())) == 1 and len(rewards) == 5
    np.testing.assert_allclose(infos["unit_0"]["unit_power_mw"][others], np.array(schedule)[others], rtol=1e-4)
    with pytest.raises(KeyError, match="unit_4"):
        env.step({"unit_5": [1.0]})
    with pytest.raises(ValueError, match="devices"):
        MARLWrapper(DistGridEnv(), "resources")


@pytest.mark.full
def test_ids_of_grids_name_their_difficulty():
    for grid, sizes in (("TransGrid", (18, 18, 18)), ("DistGrid", (165, 165, 165))):
        for difficulty, size in zip(("easy", "medium", "hard"), sizes, strict=True):
            assert gymnasium.spec(f"PowerZoo/{grid}-{difficulty}-v0").kwargs["difficulty"] == difficulty
            if difficulty == "hard":
                env = gymnasium.make(f"PowerZoo/{grid}-{difficulty}-v0")
                assert env.observation_space.shape == (size,)
    band = env.unwrapped.sim.params.grid
    assert (float(band.v_min.min()), float(band.v_max.max())) == (pytest.approx(0.93), pytest.approx(1.07))


@pytest.mark.full
def test_a_power_env_speaks_dicts_and_its_devices_obey_them(power):
    assert power.observation_space["grid"].shape == (165 + 2 + 4 + 1,)
    assert list(power.action_space) == ["solar_0", "home", "flexload_0"]
    obs, info = power.reset(seed=0, options={"day": "2016-06-07"})
    assert power.observation_space.contains(obs) and set(info["resources"]) == set(power.resources)
    *_, info = power.step({"home": {"p_mw": 0.2}, "flexload_0": {"curtail_mw": 0.05}})
    told = {name: status["current_p_mw"] for name, status in info["resources"].items()}
    assert told == pytest.approx({"solar_0": 0.0, "home": 0.2, "flexload_0": 0.05}, abs=1e-6)  # at midnight
    obs, *_ = power.step({"home": np.array([-0.5])})
    # 0.5 of 1 MWh, 0.2 MW out and 0.15 MW in for half an hour each at 95 % a way
    assert obs["resources"]["home"][3] == pytest.approx(0.5 - 0.1 / 0.95 + 0.075 * 0.95, abs=1e-5)
    assert power.get_observation_fields()[172:174] == ("flexload_0/buffer_energy_norm", "flexload_0/buffer_fill_ratio")
    for action, error, words in (
        ({"house": [0.1]}, ValueError, "home"),
        ({"home": {"power": 1.0}}, ValueError, "p_mw"),
        ({"home": [np.nan]}, ValueError, "NaN"),
        (np.zeros(4), TypeError, "dict"),
    ):
        with pytest.raises(error, match=words):
            power.step(action)


@pytest.mark.long
def test_a_flattened_power_env_is_a_standard_one(power):
    env = FlattenWrapper(power)
    checked(env)
    assert env.observation_space.shape == (172 + 8 + 6 + 4 + 2,) == (len(env.get_observation_fields()),)
    np.testing.assert_allclose(env.action_space.low, [0, -0.3, 0, 0])
    env.reset(seed=0, options={"day": "2016-06-07"})
    *_, info = env.step(np.array([0.5, 0.1, 0.5, 0.0], np.float32))
    assert info["resources"]["home"]["current_p_mw"] == pytest.approx(0.1)
    assert info["resources"]["flexload_0"]["current_p_mw"] == pytest.approx(0.05)


def test_devices_are_refused_where_they_cannot_stand():
    grid = DistGridEnv()
    grid.register_resource(VehicleEnv(E_max_kWh=40.0, soc_init=0.9), 5)
    assert grid.resources["vehicle_0"].ratings["capacity_kwh"] == 40.0
    for wrong, error, words in (
        (lambda: grid.register_resource(WindEnv(), 99), ValueError, "99"),
        (lambda: grid.register_resource(WindEnv(), 7, "vehicle_0"), ValueError, "vehicle_0"),
        (lambda: grid.register_resource(DieselResource(), 7), ValueError, "DCMicrogridEnv"),
        (lambda: grid.register_resource("battery", 7), TypeError, "BatteryEnv"),
        (lambda: TransGridEnv().register_resource(BatteryEnv(), 1), ValueError, "DistGridEnv"),
        (lambda: BatteryEnv(capacity=1.0), TypeError, "capacity_mwh"),
        (lambda: BatteryEnv(power_mw=-1.0), ValueError, "positive"),
        (lambda: BatteryEnv(efficiency=0.9, eta_roundtrip=0.8), ValueError, "same thing"),
        (lambda: VehicleEnv(capacity_kwh=1.0, E_max_kWh=2.0), ValueError, "Give one"),
        (lambda: BatteryEnv(phase="D"), ValueError, "ABC"),
        (lambda: BatteryEnv().reset(seed=0), RuntimeError, "register_resource|Register"),
        (lambda: DistGridEnv(difficulty="harder"), ValueError, "hard"),
        (lambda: DistGridEnv(v_mni=0.9), TypeError, "v_min"),
        (lambda: TransGridEnv(physic="ac"), TypeError, "physics"),
    ):
        with pytest.raises(error, match=words):
            wrong()
    assert list(grid.resources) == ["vehicle_0"]
    grid.unregister_resource("vehicle_0")
    assert grid.action_space.shape == (0,)


@pytest.mark.long
def test_markets_pay_the_price_that_the_battery_moves():
    cost, bid = CostBasedMarketEnv(max_episode_steps=2, split="test"), BidBasedMarketEnv(max_episode_steps=2)
    assert (cost.observation_space.shape, bid.observation_space.shape) == ((5,), (6,))
    cost.reset(seed=0)
    _, reward, *_, info = cost.step(np.ones(1, np.float32))
    assert info["realized_p_mw"] == pytest.approx(50.0)
    assert reward == pytest.approx(info["lmp_bus"] * 50.0 * 0.5, rel=1e-5) and info["opf_success"] is True
    with pytest.raises(TypeError, match="markup_std"):
        CostBasedMarketEnv(markup_std=0.1)


@pytest.mark.full
def test_a_task_out_of_a_dict_equals_the_grid_it_describes(power):
    env = make_task_env(CONFIG)
    assert audit_env(env) == [] and env.observation_space.shape == (192,)
    flat = FlattenWrapper(power)
    options = {"day": "2016-06-07"}
    (one, _), (two, _) = env.reset(seed=4, options=options), flat.reset(seed=4, options=options)
    assert sorted(one.tolist()) == sorted(two.tolist())  # devices by kind here, by id there
    *_, told = env.step(np.array([1, 0.5, 0, 0.2], np.float32))
    _, reward, *_, info = flat.step(np.array([0, 0.15, 0, 0.2], np.float32))
    assert told["env_reward"] == pytest.approx(reward, rel=1e-6) and told["p_slack_MW"] == info["p_slack_MW"]


@pytest.mark.long
def test_devices_of_a_dict_are_agents_where_it_says_so():
    config = CONFIG | {"agents": {"agent_type": "resource"}}
    env = make_task_env(config, framework="pettingzoo")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(env, num_cycles=STEPS + 1)
    auto = make_task_env(config)
    assert audit_env(auto) == []
    auto.reset(seed=0)
    _, rewards, *_, infos = auto.step({})
    assert rewards == {a: pytest.approx(-2 * i["cost_sum"]) for a, i in infos.items()} and len(rewards) == 3
    with pytest.raises(ValueError, match="RLlib"):
        make_task_env(config, framework="rllib")


@pytest.mark.full
def test_a_file_describes_a_grid(tmp_path, power):
    file = tmp_path / "grid.yaml"
    file.write_text(YAML)
    env = PowerEnv.from_yaml(file)
    assert env.observation_space == power.observation_space and env.action_space == power.action_space
    assert rl.make_env(str(file), normalize=True).observation_space.shape == (192,)
    assert rl.RLConfig(task_config=CONFIG).task["name"] == "mine"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grids": {}}, "grid"),
        ({"grid": {"type": "distributed"}}, "distribution"),
        ({"grid": CONFIG["grid"] | {"v_mni": 0.9}}, "v_min"),
        ({"resources": [SOLAR | {"type": "sun"}]}, "solar"),
        ({"resources": [{"type": "solar"}]}, "bus_id"),
        ({"resources": [HOME | {"power": 1.0}]}, "power_mw"),
        ({"resources": [HOME | {"name": "a"}, SOLAR | {"name": "a"}]}, "two resources"),
        ({"episode": {"steps": 3}}, "max_steps"),
        ({"agents": {"agent_type": "devices"}}, "resource"),
        ({"reward": {"type": "safty_only"}}, "safety_only"),
        ({"observation": {"mode": "local"}}, "flattened"),
    ],
)
def test_a_wrong_key_of_a_dict_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        make_task_env(CONFIG | change)
