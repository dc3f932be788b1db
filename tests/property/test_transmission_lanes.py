"""Lanes with other outages, ratings and loads step in one program, each as it would alone."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import powerzoo_jax

VARIANTS = (
    {},
    {"lines_out": (3, 40)},
    {"rating_scale": 0.8},
    {"lines_out": (100,), "max_load_ratio": 0.95},
    {"split": "load_stress"},
)


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
