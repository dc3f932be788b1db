"""100,000 random and adversarial steps of the islanded data centre in one vmap: bus, battery, room and jobs balance."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.devices.datacenter import chiller_cop
from powerzoo_jax.families.microgrid.env import OUTDOOR
from tests.references.datacenter import DataCenter, Job
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

LANES, STEPS = 352, 288
TOL = tolerance("device_balance", "float32")
DT = 1 / 12
REPORTED = ("p_load_mw", "p_pv_mw", "p_pv_used_mw", "p_batt_mw", "p_dg_mw", "power_deficit_mw", "power_spill_mw")
REPORTED += ("t_zone", "t_outdoor", "soc", "fuel_cost", "carbon_kg", "terminated", "truncated")


def actions(lanes: int) -> jax.Array:
    """(lanes, STEPS, 1, 5): random, all high, all low, or jumping between both, by lane."""
    random = jax.random.uniform(jax.random.key(1), (lanes, STEPS, 1, 5), minval=-1.0, maxval=1.0)
    flip = jnp.broadcast_to(jnp.where(jnp.arange(STEPS) % 2 == 0, 1.0, -1.0)[None, :, None, None], random.shape)
    lane = jnp.broadcast_to(jnp.arange(lanes)[:, None, None, None], random.shape)
    return jnp.select(
        [lane % 8 == 0, lane % 8 == 1, lane % 8 == 2], [jnp.ones_like(random), -jnp.ones_like(random), flip], random
    )


@cache
def played() -> dict[str, np.ndarray]:
    """Everything the checks read, (LANES, STEPS) in float64 on the host."""
    sim = powerzoo_jax.make("dc_microgrid", split="train")

    def episode(key: jax.Array, plan: jax.Array) -> Any:
        state, _ = sim.init(key)

        def body(state: Any, action: jax.Array) -> Any:
            out = sim.step(state, action)
            supplied = sim.step(state, action.at[0, 4].set(1.0))
            info = out.info
            seen = {name: getattr(info, name) for name in REPORTED}
            seen |= {"reward": out.reward[0], "supplied": supplied.reward[0], "cost": out.cost, "obs": out.obs[0]}
            seen |= {"it_mw": out.state.site.it_mw[0], "cool_mw": out.state.site.cool_mw[0], "terms": info.terms[0]}
            row = sim.params.bank.weather_rows[state.weather_row + state.t]
            seen["cop"] = chiller_cop(sim.params.site, row[OUTDOOR, None])[0]
            return out.state, seen

        return jax.lax.scan(body, state, plan)[1]

    out = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), LANES), actions(LANES))
    return {name: np.asarray(x, np.float64) for name, x in out.items()}


def test_the_bus_balances_in_every_step():
    x = played()
    supply = x["p_pv_used_mw"] + x["p_batt_mw"] + x["p_dg_mw"] + x["power_deficit_mw"]
    assert np.abs(supply - x["p_load_mw"]).max() <= TOL
    assert np.abs(x["p_pv_mw"] - x["p_pv_used_mw"] - x["power_spill_mw"]).max() <= TOL


def test_neither_diesel_nor_battery_feeds_a_spill():
    x = played()
    spilling = x["power_spill_mw"] > TOL
    assert spilling.any()
    assert x["p_dg_mw"][spilling].max() <= TOL and x["p_batt_mw"][spilling].max() <= TOL


def test_the_battery_stores_what_its_terminal_power_says():
    x = played()
    p = x["p_batt_mw"]
    drawn = np.where(p > 0, p / 0.95, p * 0.95) * DT
    energy = 2.0 * np.concatenate([np.full((LANES, 1), 0.5), x["soc"]], axis=1)
    assert np.abs(np.diff(energy, axis=1) + drawn).max() <= TOL
    assert np.abs(energy[:, -1] - 1.0 + drawn.sum(axis=1)).max() <= TOL * STEPS**0.5
    assert x["soc"].min() >= 0.1 - TOL and x["soc"].max() <= 0.9 + TOL


def test_the_room_warms_by_what_is_not_removed():
    """The heat removed is the cooling power times the COP of the weather."""
    x = played()
    t = np.concatenate([np.full((LANES, 1), 22.0), x["t_zone"]], axis=1)
    heat = 1000 * x["cool_mw"] * x["cop"]
    rise = DT / 500 * (1000 * x["it_mw"] - heat + 5 * (x["t_outdoor"] - t[:, :-1]))
    assert (np.abs(np.diff(t, axis=1) - rise) / t[:, :-1]).max() <= TOL


def test_load_and_fuel_follow_from_power():
    x = played()
    np.testing.assert_allclose(x["p_load_mw"], 1.05 * x["it_mw"] + x["cool_mw"], rtol=TOL)
    np.testing.assert_allclose(x["fuel_cost"], 300 * DT * x["p_dg_mw"], rtol=TOL, atol=TOL)
    np.testing.assert_allclose(x["carbon_kg"], 800 * DT * x["p_dg_mw"], rtol=TOL, atol=TOL)
    assert x["p_dg_mw"].min() >= 0 and x["p_dg_mw"].max() <= 0.9 * (1 + TOL)


def test_shedding_load_is_never_cheaper_than_serving_it():
    """The same step with the diesel set at full command, which burns what is needed, is never worth less."""
    x = played()
    assert (x["supplied"] >= x["reward"] - TOL * np.maximum(1, np.abs(x["reward"]))).all()
    shed = x["power_deficit_mw"] > 0.01
    assert shed.any() and (x["supplied"] > x["reward"])[shed & (x["p_dg_mw"] < 0.89)].all()


def test_reward_costs_and_ends_are_what_the_task_says():
    x = played()
    weights = np.array([0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.0008, 0.01, 0.0008])
    np.testing.assert_allclose(x["reward"], x["terms"] @ weights, rtol=1e-4, atol=1e-4)
    assert all(np.isfinite(v).all() for v in x.values()) and x["cost"].min() >= 0
    assert not x["terminated"].any() and x["truncated"].sum() == LANES and x["truncated"][:, -1].all()


def test_observations_lie_inside_their_bounds_and_are_hardly_ever_clipped():
    obs = played()["obs"]
    low, high = (b[0] for b in powerzoo_jax.make("dc_microgrid").spaces()[0])
    assert (obs >= low).all() and (obs <= high).all()
    # a share of exactly 0 or 1 is a value like any other; temperatures at a bound would be clipped ones
    for column in (5, 6):
        assert ((obs[..., column] <= low[column]) | (obs[..., column] >= high[column])).mean() < 0.01


@pytest.mark.long
@pytest.mark.parametrize("split", ["test", "sla_tighten"])
def test_jobs_are_those_of_the_reference_job_by_job(split):
    """Starts, misses, GPUs in use and backlog of every step against lists and loops, in float64."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("dc_microgrid", split=split, dtype="float64")
        plan = np.asarray(actions(8), np.float64)[3:7]
        state, _ = jax.vmap(sim.init)(jax.random.split(jax.random.key(5), 4))

        def body(state: Any, action: jax.Array) -> Any:
            out = sim.step(state, action)
            site = out.state.site
            return out.state, (out.cost[0], site.job_gpus[0], site.infer_gpus[0], out.info.backlog_gpu_h)

        run = jax.jit(jax.vmap(lambda s, a: jax.lax.scan(body, s, a)[1]))
        got = np.stack([np.asarray(x) for x in run(state, jnp.asarray(plan))], axis=-1)
        weather, work = (np.asarray(x) for x in (sim.params.bank.weather_rows, sim.params.bank.work_rows))
    factor = 0.5 if split == "sla_tighten" else 1.0
    for lane in range(4):
        site = DataCenter(5)
        for t in range(STEPS):
            row, sky = work[int(state.work_row[lane]) + t], weather[int(state.weather_row[lane]) + t]
            now = 5.0 * t
            new = [
                [Job(g, d, now + (1 + factor * (k - 1)) * d) for g, d in zip(gpus, duration, strict=True) if g > 0]
                for gpus, duration, k in ((row[1:6], row[6:11], 2), (row[11:17], row[17:23], 3))
            ]
            u = (plan[lane, t, 0] + 1) / 2
            use = np.clip(sky[4] + row[0], 0, 1)
            want = site.step(now, new, [u[0], u[1]], 18 + 9 * u[2], use, sky[1])
            assert got[lane, t, :3].tolist() == [want.misses, want.job_gpus, want.serving], (lane, t)
            assert got[lane, t, 3] == pytest.approx(want.backlog_gpu_h, abs=1e-6)
