"""The zoo: every shipped policy earns what its card says, and what does not fit a policy is refused by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.errors import DataError, DataMissing, SettingsError
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.envs.episode import first_carry
from powerzoo_jax.rl.algorithms import apg
from powerzoo_jax.rl.policies import ActorPolicy, apg_act
from powerzoo_jax.rl.training.config import ALGORITHMS, APGConfig, load
from powerzoo_jax.rl.zoo import (
    LIMIT_KB,
    card_text,
    find_policy,
    list_policies,
    read_card,
    rounded,
    save_policy,
    spec_of,
)
from powerzoo_jax.tasks.score import evaluate
from tests.rl.toy_battery import toy_sim

ENTRIES = list_policies()
SMALLEST = "dc_microgrid"


@pytest.mark.full
@pytest.mark.parametrize("task", ENTRIES)
def test_a_policy_earns_on_fixed_episodes_what_its_card_lists(task):
    """A last digit differs from processor to processor; a wrong weight, scale or carry moves returns by far more."""
    first = read_card(task)["first"]
    sim = pz.make(task, split=first["split"])
    record = evaluate(sim, pz.load_policy(task, sim), n_episodes=len(first["returns"]), seed=first["seed"])
    assert record.episodes == first["episodes"] and len(first["returns"]) >= 3
    assert np.isfinite(record.episode_rewards).all() and record.pf_failure_rate == 0
    size = np.abs(first["returns"]).max()
    np.testing.assert_allclose(record.episode_rewards, first["returns"], rtol=1e-3, atol=1e-3 * size)
    for name, budget in record.cost_thresholds.items():
        if budget is not None:
            told = first["costs"][name]
            np.testing.assert_allclose(
                record.episode_costs_by_constraint[name], told, rtol=1e-2, atol=1e-2 * max(budget, *told)
            )


@pytest.mark.parametrize("task", ENTRIES)
def test_a_file_is_small_and_its_card_says_what_it_holds(task):
    path, about = find_policy(task), read_card(task)
    assert path.stat().st_size <= 1e3 * LIMIT_KB
    assert path.with_suffix(".md").read_text(encoding="utf-8") == card_text(about, path.stat().st_size)
    assert about["version"] == pz.make(task).spec.version
    assert set(about["scores"]) == {"val", "test"}
    for split, score in about["scores"].items():
        budgets = {name: x for name, x in score["budgets"].items() if x is not None}
        assert score["feasible"] == all(score["costs"][name] <= 1.001 * x + 1e-6 for name, x in budgets.items())
        if score["gain"] is not None:
            rule, best = score["ends"]
            known = pz.oracle.get_reference(task, split)
            assert [rule, best] == pytest.approx([known["rule"], known["best"]])
            assert score["gain"] == pytest.approx((score["return"] - rule) / (best - rule))


@pytest.mark.parametrize("task", ENTRIES)
def test_a_card_holds_the_settings_that_its_command_takes(task, tmp_path):
    about = read_card(task)
    text = find_policy(task).with_suffix(".md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "SETTINGS.toml").write_text(settings, encoding="utf-8")
    stored = dict(about["settings"])
    # settings that came later have their defaults
    assert load(tmp_path / "SETTINGS.toml") == ALGORITHMS[stored.pop("algorithm")].from_dict(stored)
    assert f"train SETTINGS.toml --seed {about['seed']} " in about["commands"][0]


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'dc_microgrid'"):
        pz.load_policy("dc_microgird")


def test_a_task_without_a_policy_says_how_to_train_one():
    missing = sorted(set(pz.list_tasks()) - set(ENTRIES))[0]
    with pytest.raises(ValueError, match=f"no policy for '{missing}'.*powerzoo-jax train {missing} --out RUN"):
        pz.load_policy(missing)


def test_another_version_is_refused(tmp_path):
    path = changed(tmp_path, version=7)
    with pytest.raises(SettingsError, match="version 7, and this package has version 1"):
        pz.load_policy(path)


def test_changed_keywords_are_named_with_both_values():
    with pytest.raises(SettingsError, match=r"dg_max_mw = 1.2 \(trained with 0.9\)"):
        pz.load_policy(SMALLEST, pz.make(SMALLEST, dg_max_mw=1.2))


def test_another_task_is_refused():
    with pytest.raises(SettingsError, match="cannot play 'toy"):
        pz.load_policy(SMALLEST, toy_sim())


def test_other_agents_are_refused():
    sim = pz.make(SMALLEST)
    sim = replace(sim, spec=replace(sim.spec, agents=("somebody",)))
    with pytest.raises(SettingsError, match=r"agents of 'dc_microgrid' is \['somebody'\]"):
        pz.load_policy(SMALLEST, sim)


def test_padded_observations_are_refused():
    dims = pz.make("dso").env.dims
    sim = pz.make("dso", dims=replace(dims, bus=dims.bus + 1))
    with pytest.raises(SettingsError, match="observation of 'dso'"):
        pz.load_policy("dso", sim)


def changed(folder, **about):
    """A copy of an entry whose card says something else."""
    arrays = read_npz(find_policy(SMALLEST))
    told = json.loads(str(arrays["about"])) | about
    write_npz(folder / "changed.npz", arrays | {"about": np.array(json.dumps(told))})
    return folder / "changed.npz"


@pytest.mark.parametrize("about", [{"format": 2}, {"settings": {"algorithm": "apg", "wdiths": [8]}}])
def test_a_file_of_another_version_of_the_package_names_that_version(tmp_path, about):
    with pytest.raises(DataError, match=re.escape(read_card(SMALLEST)["library_version"])):
        pz.load_policy(changed(tmp_path, **about))


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_a_damaged_byte_is_noticed(tmp_path, place):
    content = bytearray(find_policy(SMALLEST).read_bytes())
    content[int(place * len(content))] ^= 0x10
    path = tmp_path / "damaged.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        pz.load_policy(path)


def test_a_file_that_is_cut_off_or_of_something_else_or_missing_is_refused(tmp_path):
    path = tmp_path / "policy.npz"
    with pytest.raises(DataMissing, match="There is no policy"):
        pz.load_policy(path)
    path.write_bytes(find_policy(SMALLEST).read_bytes()[:500])
    with pytest.raises(DataError, match="damaged"):
        pz.load_policy(path)
    write_npz(path, {"x": np.zeros(3)})
    with pytest.raises(DataError, match="holds no policy"):
        pz.load_policy(path)
    arrays = read_npz(find_policy(SMALLEST))
    write_npz(path, arrays | {"low": arrays["low"][:-1]})
    with pytest.raises(DataError, match="not of the sizes"):
        pz.load_policy(path)


def trained(memory=0):
    """A policy of the toy with weights that differ, and its settings."""
    sim, cfg = toy_sim(), APGConfig(lanes=4, widths=(8, 8), memory=memory)
    policy = apg.policy_of(apg.make_update(cfg, sim)[0](jax.random.key(3), sim))
    actor = jax.tree.map(lambda x: x + 0.1 * jnp.sin(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), policy.actor)
    return sim, cfg, ActorPolicy(actor=actor, scale=policy.scale)


def test_rounding_keeps_moments_and_eleven_bits_of_a_weight():
    _, _, policy = trained()
    again = rounded(policy)
    assert jax.tree.structure(again) == jax.tree.structure(policy)
    for new, old in zip(jax.tree.leaves(again.actor), jax.tree.leaves(policy.actor), strict=True):
        assert new.dtype == old.dtype
        np.testing.assert_allclose(new, old, rtol=2.0**-11, atol=2.0**-24)
    jax.tree.map(np.testing.assert_array_equal, again.scale, policy.scale)


def test_a_weight_beyond_float16_is_named(tmp_path):
    _, _, policy = trained()
    policy = replace(policy, actor=jax.tree.map(lambda x: 1e6 * x, policy.actor))
    with pytest.raises(DataError, match=r"weight all/params/.*beyond float16"):
        save_policy(tmp_path / "big.npz", policy, {})


def test_the_file_of_a_policy_that_remembers_brings_its_memory():
    """Every entry that has a memory starts with that of its own settings, all zeros."""
    found = [task for task in ENTRIES if read_card(task)["settings"].get("memory", 0)]
    assert found
    for task in found:
        carry = first_carry(pz.load_policy(task), ())
        assert carry.shape[-1] == read_card(task)["settings"]["memory"] and not carry.any()


def test_the_act_of_a_rounded_policy_is_close_to_its_own():
    sim, cfg, policy = trained(memory=4)
    obs = jnp.asarray(sim.spaces()[0].high)
    acts = [apg_act(cfg, sim, p) for p in (policy, rounded(policy))]
    memories, actions = zip(*(act(first_carry(act, ()), obs, jax.random.key(0)) for act in acts), strict=True)
    np.testing.assert_allclose(actions[1], actions[0], atol=5e-3)
    assert not np.array_equal(memories[1], memories[0])


def test_the_card_names_agents_and_shapes_of_the_task():
    sim = pz.make(SMALLEST)
    told = spec_of(sim)
    assert told == {name: read_card(SMALLEST)[name] for name in told}
