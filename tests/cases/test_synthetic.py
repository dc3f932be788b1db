"""Random feeders: trees, conductors, drops and ratings that a network of their voltage could have."""

from functools import partial

import jax
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import validate
from powerzoo_jax.cases.synthetic import BASE_MVA, FEEDERS, draw_feeder, feeder_case, get_feeder_model, jitter_feeder
from powerzoo_jax.cases.topology import is_radial

KEY = jax.random.key(3)
N_BUS, MANY = 20, 200


@pytest.fixture(scope="module", params=sorted(FEEDERS))
def drawn(request):
    model = FEEDERS[request.param]
    draw = jax.jit(jax.vmap(partial(draw_feeder, n_bus=N_BUS, model=model)))
    return model, jax.tree.map(np.asarray, draw(jax.random.split(KEY, MANY)))


def complex_voltages(case):
    """Voltages of a radial case by backward and forward sweeps in complex128, written for this test alone."""
    parent = case.positions(case.branch.from_id)
    z = case.branch.r_pu + 1j * case.branch.x_pu
    s = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    v = np.ones(case.n_bus, complex)
    for _ in range(60):
        current = np.conj(s / v)
        for bus in range(case.n_bus - 1, 0, -1):
            current[parent[bus - 1]] += current[bus]
        for bus in range(1, case.n_bus):
            v[bus] = v[parent[bus - 1]] - z[bus - 1] * current[bus]
    return v, current


def test_every_feeder_is_a_valid_tree_of_known_conductors(drawn):
    model, feeder = drawn
    assert np.all(feeder.parent < np.arange(1, N_BUS)) and np.all(feeder.parent >= 0)
    assert np.all(np.arange(1, N_BUS) - feeder.parent <= model.window)
    ratio = feeder.r_pu / feeder.x_pu
    known = np.array([r / x for r, x, _ in model.conductors])
    assert np.abs(ratio[..., None] - known).min(axis=-1).max() < 1e-3 * known.max()
    for lane in range(3):
        case = feeder_case(jax.tree.map(lambda x, lane=lane: x[lane], feeder), model)
        assert is_radial(case) and [p for p in validate(case) if p.severity == "error"] == []


def test_an_exact_power_flow_meets_the_drop_and_the_ratings(drawn):
    model, feeder = drawn
    for lane in range(5):
        case = feeder_case(jax.tree.map(lambda x, lane=lane: x[lane], feeder), model)
        v, current = complex_voltages(case)
        # the linearised drop neglects losses, a few per cent of the drop itself
        assert 0.95 * model.drop_pu[0] < 1 - np.abs(v).min() < 1.15 * model.drop_pu[1]
        assert np.all(np.abs(current[1:]) * BASE_MVA < case.branch.rate_a_mva)


def test_loads_have_their_mean_and_spread_and_neighbours_are_independent(drawn):
    model, feeder = drawn
    assert np.all(feeder.p_mw[:, 0] == 0)
    load = feeder.p_mw[:, 1:]
    assert load.mean() == pytest.approx(model.load_mw, rel=0.04)
    log = np.log(load)
    assert log.std() == pytest.approx(model.load_spread, rel=0.04)
    assert abs(np.corrcoef(log[:, 1:].ravel(), log[:, :-1].ravel())[0, 1]) < 0.05
    factor = load / np.hypot(load, feeder.q_mvar[:, 1:])
    assert model.power_factor[0] - 1e-5 <= factor.min() and factor.max() <= model.power_factor[1] + 1e-5


def test_jitter_has_mean_one_its_spread_and_keeps_power_factors():
    model = FEEDERS["mv_cable"]
    feeder = jax.tree.map(np.asarray, jax.jit(draw_feeder, static_argnums=(1, 2))(KEY, N_BUS, model))
    shake = jax.jit(jax.vmap(partial(jitter_feeder, load_spread=0.1, rating_spread=0.05), (0, None)))
    shaken = jax.tree.map(np.asarray, shake(jax.random.split(KEY, 2000), feeder))
    load, rating = shaken.p_mw[:, 1:] / feeder.p_mw[1:], shaken.rate_mva / feeder.rate_mva
    for factor, spread in ((load, 0.1), (rating, 0.05)):
        assert factor.mean() == pytest.approx(1.0, abs=0.003)
        assert np.log(factor).std() == pytest.approx(spread, rel=0.02)
        assert abs(np.corrcoef(factor[:, 1:].ravel(), factor[:, :-1].ravel())[0, 1]) < 0.02
    np.testing.assert_allclose(shaken.q_mvar[:, 1:] / feeder.q_mvar[1:], load, rtol=1e-5)
    assert np.array_equal(shaken.parent[0], feeder.parent) and np.array_equal(shaken.r_pu[0], feeder.r_pu)


def test_an_unknown_level_names_the_nearest():
    with pytest.raises(CaseError, match="Did you mean 'mv_cable'"):
        get_feeder_model("mv_cabel")
