"""Lanes with other outages, ratings and loads step in one program, each as it would alone."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import prepare_dc_outages

pytestmark = pytest.mark.property

VARIANTS = (
    {},
    {"lines_out": (3, 40)},
    {"rating_scale": 0.8},
    {"lines_out": (100,), "max_load_ratio": 0.95},
    {"split": "load_stress"},
)


@pytest.mark.long
def test_variants_of_case118_step_together_as_they_do_alone():
    sims = [powerzoo_jax.make("opf_118", **keywords) for keywords in VARIANTS]
    stacked, count = powerzoo_jax.stack(sims), 0

    @jax.jit
    def together(sims, keys, action):
        nonlocal count
        count += 1
        axes = (powerzoo_jax.lanes(sims), 0, None)
        return jax.vmap(lambda s, k, a: s.step(s.init(k)[0], a), in_axes=axes)(sims, keys, action)

    alone = jax.jit(lambda s, k, a: s.step(s.init(k)[0], a))
    keys = jax.random.split(jax.random.key(0), len(sims))
    for seed in range(2):
        action = jax.random.uniform(jax.random.key(seed), (54, 1), minval=-1, maxval=1)
        batch = together(stacked, keys, action)
        for lane, sim in enumerate(sims):
            one = alone(sim, keys[lane], action)
            np.testing.assert_allclose(batch.obs[lane], one.obs, atol=2e-6)
            np.testing.assert_allclose(batch.reward[lane], one.reward, rtol=1e-6)
            np.testing.assert_allclose(batch.info.line_flow_mw[lane], one.info.line_flow_mw, atol=2e-3)
    assert count == 1
    flow = np.asarray(batch.info.line_flow_mw)
    assert flow[1, [3, 40]].tolist() == [0, 0] and flow[3, 100] == 0 and np.abs(flow[0, [3, 40, 100]]).min() > 1e-3


OUTAGES = ((), (3,), (40,), (100,), (3, 100), (55,), (140,), (20, 60))


@pytest.mark.full
def test_4096_lanes_of_other_outages_and_ratings_step_in_one_compile():
    """Eight networks by 512 ratings each; the overload of every lane is recomputed from its flows and ratings."""
    stacked = powerzoo_jax.stack([powerzoo_jax.make("opf_118", lines_out=lines) for lines in OUTAGES])
    axes, each, count = powerzoo_jax.lanes(stacked), 512, 0
    wide = jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(lambda x: jnp.repeat(x, each, axis=0), part),
        axes,
        stacked,
        is_leaf=lambda x: x is None or isinstance(x, int),
    )
    scale = np.random.default_rng(0).uniform(0.5, 1.1, len(OUTAGES) * each).astype(np.float32)
    rate = wide.params.rate_mw * scale[:, None]
    wide = dataclasses.replace(wide, params=dataclasses.replace(wide.params, rate_mw=rate))

    @jax.jit
    def together(sims, keys, action):
        nonlocal count
        count += 1

        def one(sim, key, action):
            out = sim.step(sim.init(key)[0], action)
            return out.cost, out.info.line_flow_mw, jnp.isfinite(out.obs).all() & jnp.isfinite(out.reward).all()

        return jax.vmap(one, in_axes=(axes, 0, None))(sims, keys, action)

    keys = jax.random.split(jax.random.key(0), len(OUTAGES) * each)
    for seed in range(2):
        action = jax.random.uniform(jax.random.key(seed), (54, 1), minval=-1, maxval=1)
        cost, flow, fine = (np.asarray(x) for x in together(wide, keys, action))
        limit = np.where(np.asarray(rate) > 0, np.asarray(rate), np.inf)
        expected = np.maximum(np.abs(flow) - limit, 0).sum(1)
        np.testing.assert_allclose(cost[:, 0], expected, rtol=1e-4, atol=1e-2)
        assert fine.all() and (expected > 0).mean() > 0.5
    assert count == 1
    for k, lines in enumerate(OUTAGES):
        assert (flow[k * each : (k + 1) * each, list(lines)] == 0).all()


@pytest.mark.full
def test_the_cost_of_outages_is_a_channel_of_every_task_on_a_network():
    sims = [powerzoo_jax.make("opf_118", n_minus_1=on, rating_scale=0.8) for on in (False, True)]
    action = jax.random.uniform(jax.random.key(0), (54, 1), minval=-1, maxval=1)
    outs = [jax.jit(lambda s, k, a: s.step(s.init(k)[0], a))(sim, jax.random.key(4), action) for sim in sims]
    assert sims[1].spec.cost_names == (*sims[0].spec.cost_names, "n_minus_1")
    np.testing.assert_allclose(outs[1].cost[:-1], outs[0].cost, rtol=1e-5, atol=1e-3)
    flow, rate = np.asarray(outs[1].info.line_flow_mw, float), np.asarray(sims[1].params.rate_mw, float)
    outages, limit = prepare_dc_outages(load_case("pz_case118")), np.where(rate > 0, rate, np.inf)
    worst = 0.0
    for k in np.flatnonzero(~np.asarray(outages.islanding)):
        after = flow + np.asarray(outages.lodf, float)[:, k] * flow[k]
        worst = max(worst, np.maximum(np.abs(after) - limit, 0).sum())
    assert float(outs[1].cost[-1]) == pytest.approx(worst, rel=1e-4) and worst > float(outs[0].cost[0])


@pytest.mark.long
def test_markets_of_other_ramps_step_together():
    sims = [powerzoo_jax.make("gencos_bidding", ramp_rate_fraction=share) for share in (0.1, 0.5)]
    stacked = powerzoo_jax.stack(sims)
    axes = (powerzoo_jax.lanes(stacked), 0)
    state, obs = jax.jit(jax.vmap(lambda s, k: s.init(k), in_axes=axes))(stacked, jax.random.split(jax.random.key(0)))
    headroom = np.asarray(obs)[:, :, list(sims[0].env.fields.names).index("ramp_headroom")]
    assert (headroom[0] <= 0.1 + 1e-6).all() and headroom[1].max() > 0.1
    assert state.p_mw.shape == (2, 5)


@pytest.mark.parametrize(
    ("lines", "words"), [((8,), "without branch 8 .* the network falls apart"), ((186,), "positions of 0 to 185")]
)
def test_an_outage_that_splits_the_network_is_refused(lines, words):
    with pytest.raises(ValueError, match=words):
        powerzoo_jax.make("opf_118", lines_out=lines)


def test_sizes_that_differ_are_refused():
    with pytest.raises(ValueError, match="agents differs"):
        powerzoo_jax.stack([powerzoo_jax.make("marl_opf"), powerzoo_jax.make("opf_118")])
