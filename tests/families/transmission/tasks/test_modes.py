"""The transmission tasks keep the contract in every observation and action mode; what a mode shows is what it says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
from powerzoo_jax.tasks.contract import check_sim

pytestmark = pytest.mark.contract

MODES = {
    "local scores": ("marl_opf", {"obs_mode": "local"}, 15),
    "forecast and schedule": ("marl_opf", {"obs_mode": "local_plus_forecast", "action_mode": "direct"}, 19),
    "commitment by schedule": ("marl_uc", {"obs_mode": "local", "action_mode": "direct"}, 20),
    "commitment with forecast": ("marl_uc", {"obs_mode": "local_plus_forecast"}, 24),
    "many units by schedule": ("opf_118", {"obs_mode": "local_plus_forecast", "action_mode": "direct"}, 199),
}


@pytest.mark.tiers("long", full=["local-scores"])
@pytest.mark.parametrize(("task", "keywords", "size"), MODES.values(), ids=[name.replace(" ", "-") for name in MODES])
def test_a_mode_keeps_the_contract(task, keywords, size):
    sim = powerzoo_jax.make(task, **keywords)
    assert sim.env.dims.obs == size
    check_sim(sim, others=(powerzoo_jax.make(task, split="load_stress", **keywords),))


@pytest.mark.long
@pytest.mark.parametrize(
    "keywords",
    [{"physics": "ac", "solver_mode": "pf"}, {"solver_mode": "pf", "n_minus_1": True}],
    ids=["ac-schedule", "dc-outages"],
)
def test_a_grid_under_one_operator_keeps_the_contract(keywords):
    check_sim(make_transgrid("pz_case5", **keywords))


def test_sizes_are_those_of_the_specification():
    expected = {"marl_opf": 15, "marl_uc": 20, "opf_118": 195, "comparison_tso_centralized": 249}
    assert {task: powerzoo_jax.make(task).env.dims.obs for task in expected} == expected


def test_a_local_view_shows_the_own_bus_and_the_lines_that_touch_it():
    sim = powerzoo_jax.make("marl_opf", obs_mode="local")
    _, obs = jax.jit(sim.init)(jax.random.key(0))
    names = list(sim.env.fields.names)
    shown = np.asarray(obs)[:, names.index("adjacent_line_flow_util_0") :][:, :6] != 0
    # lines 1-2, 1-4, 1-5, 2-3, 3-4, 4-5; units at buses 1, 1, 3, 4, 5
    assert shown.astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 1, 0, 0, 1, 1],
        [0, 0, 1, 0, 0, 1],
    ]
    load = np.asarray(obs)[:, names.index("bus_load_norm")]
    assert load[[0, 1, 4]].tolist() == [0, 0, 0] and load[3] == pytest.approx(load[2] * 400 / 600)


def test_forecasts_are_the_loads_that_come():
    sim = powerzoo_jax.make("marl_opf", obs_mode="local_plus_forecast")
    state, obs = jax.jit(sim.init)(jax.random.key(1))
    step = jax.jit(lambda s, x: s.step(x, jnp.zeros((5, 1))))
    first = [i for i, name in enumerate(sim.env.fields.names) if name.startswith("load_forecast")]
    promised, loads = np.asarray(obs)[0, first] * float(sim.params.peak_load_mw), []
    for _ in range(5):
        out = step(sim, state)
        state = out.state
        loads.append(float(out.info.load_mw))
    np.testing.assert_allclose(promised, loads[1:], rtol=1e-6)


@pytest.mark.parametrize(("task", "scale"), [("marl_opf", 1.08), ("comparison_tso_centralized", 1.15)])
def test_stressed_splits_change_what_they_name_and_nothing_else(task, scale):
    base, load, line = (powerzoo_jax.make(task, split=s) for s in ("test", "load_stress", "line_tightening"))
    assert float(load.params.full_load_mw / base.params.full_load_mw) == pytest.approx(scale)
    assert float(line.params.rate_mw[0] / base.params.rate_mw[0]) == pytest.approx(0.85)
    assert float(line.params.full_load_mw) == float(base.params.full_load_mw)
    assert load.params.peak_load_mw == base.params.peak_load_mw
    for other in (load, line):
        assert np.array_equal(other.params.starts.load_row, base.params.starts.load_row)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"obs_mode": "globl"}, ValueError, "global"),
        ({"split": "load_stres"}, ValueError, "load_stress"),
        ({"voll": 0.0}, ValueError, "voll = 0.0 must be positive"),
        ({"max_step": 3}, TypeError, "max_steps"),
        ({"obs_mode": "flattened"}, ValueError, "needs commitment"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(keywords, error, words):
    with pytest.raises(error, match=words):
        powerzoo_jax.make("marl_opf", **keywords)
