"""Words of other libraries: a message proposes ours by their meaning."""

from __future__ import annotations

import pytest

import powerzoo_jax
from powerzoo_jax.base.errors import nearest
from powerzoo_jax.base.synonyms import SYNONYMS, synonym
from powerzoo_jax.cli import main
from powerzoo_jax.rl.training.config import ALGORITHMS, types_of
from powerzoo_jax.tasks.settings import ELSEWHERE

PPO, SAC = (types_of(ALGORITHMS[name]) for name in ("ppo", "sac"))

# the keyword arguments of PPO and SAC in Stable-Baselines3 2.4, of CleanRL's ppo.py, of PureJaxRL's config
SB3_PPO = {
    **{"learning_rate": "lr", "n_steps": "steps", "batch_size": "minibatches", "n_epochs": "epochs", "gamma": "gamma"},
    **{"gae_lambda": "gae_lambda", "clip_range": "clip", "normalize_advantage": None, "ent_coef": "entropy"},
    **{"vf_coef": "value_weight", "max_grad_norm": "max_grad_norm", "target_kl": "kl_limit", "net_arch": "widths"},
    **{"n_envs": "lanes", "total_timesteps": "total_steps", "log_std_init": "log_std", "activation_fn": "activation"},
}
SB3_SAC = {
    **{"learning_rate": "lr", "buffer_size": "capacity", "learning_starts": "warmup", "batch_size": "batch"},
    **{"tau": "tau", "gamma": "gamma", "gradient_steps": "gradients", "ent_coef": "temperature"},
    "target_entropy": "target_entropy",
}
CLEANRL = {
    **{"total_timesteps": "total_steps", "learning_rate": "lr", "num_envs": "lanes", "num_steps": "steps"},
    **{"anneal_lr": "lr_end", "gamma": "gamma", "gae_lambda": "gae_lambda", "num_minibatches": "minibatches"},
    **{"update_epochs": "epochs", "clip_coef": "clip", "ent_coef": "entropy", "vf_coef": "value_weight"},
    **{"max_grad_norm": "max_grad_norm", "target_kl": "kl_limit", "env_id": "task"},
}
PUREJAXRL = {
    **{"LR": "lr", "NUM_ENVS": "lanes", "NUM_STEPS": "steps", "TOTAL_TIMESTEPS": "total_steps"},
    **{"UPDATE_EPOCHS": "epochs", "NUM_MINIBATCHES": "minibatches", "GAMMA": "gamma", "GAE_LAMBDA": "gae_lambda"},
    **{"CLIP_EPS": "clip", "ENT_COEF": "entropy", "VF_COEF": "value_weight", "MAX_GRAD_NORM": "max_grad_norm"},
    **{"ACTIVATION": "activation", "ENV_NAME": "task", "ANNEAL_LR": "lr_end"},
}


@pytest.mark.parametrize(
    ("theirs", "ours"), [(SB3_PPO, PPO), (SB3_SAC, SAC), (CLEANRL, PPO), (PUREJAXRL, PPO)], ids=repr
)
def test_a_setting_of_another_library_is_answered_with_the_one_of_the_same_meaning(theirs, ours):
    assert {name: nearest(name, ours) for name in theirs if theirs[name]} == {k: v for k, v in theirs.items() if v}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *(("training", "train"), ("validation", "val"), ("holdout", "test")),
        *(("heuristic", "rule"), ("mpc", "causal"), ("do-nothing", "no_control"), ("optimal", "oracle")),
    ],
)
def test_splits_and_policies_are_proposed_by_their_meaning(word, meant):
    assert nearest(word, ("train", "val", "test", "rule", "causal", "no_control", "oracle", "random")) == meant


def test_every_row_proposes_one_name_and_no_valid_name_is_answered_with_another():
    for row in SYNONYMS:
        assert len(set(row)) == len(row) > 1
        assert all(word == word.lower() and "-" not in word for word in row)
    for kind in ALGORITHMS.values():
        assert [name for name in types_of(kind) if nearest(name, types_of(kind)) != name] == []
    assert synonym("lr", ("lr",)) is None and synonym("unheard_of", PPO) is None


@pytest.mark.parametrize("word", ["learning_rate", "LR"])
def test_the_command_that_trains_says_how_a_setting_is_called(word, capsys, tmp_path):
    command = ["train", "battery_arbitrage", "--set", f"{word}=0.1", "--out", str(tmp_path)]
    assert main(command) == 2
    assert f"Unknown ppo setting {word!r}. Did you mean 'lr'? Valid: activation," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *(("horizon", "max_steps"), ("dt", "delta_t_minutes"), ("network", "case"), ("efficiency", "eta_roundtrip")),
        *(("capacity", "battery_capacity_mwh"), ("prices", "price_set"), ("dataset", "data_source")),
    ],
)
def test_a_keyword_of_a_task_is_proposed_by_its_meaning(word, meant):
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{word}'\. Did you mean '{meant}'\?"):
        powerzoo_jax.make("battery_arbitrage", **{word: 1})


@pytest.mark.parametrize("word", sorted(ELSEWHERE))
def test_what_is_no_keyword_of_a_task_is_answered_with_where_it_is_done(word):
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{word}'\. [A-Z].* Valid: ") as caught:
        powerzoo_jax.make("battery_arbitrage", **{word: 1})
    assert ELSEWHERE[word] in str(caught.value) and "Did you mean" not in str(caught.value)


def test_the_valid_keywords_are_those_that_change_something_in_this_task():
    def told(task, **keywords):
        with pytest.raises(TypeError) as caught:
            powerzoo_jax.make(task, zzz=1, **keywords)
        return str(caught.value).partition("Valid: ")[2].rstrip(".").split(", ")

    # each of these is refused by this task alone: "changes nothing: it needs ..."
    assert not {"augment_years", "augment_block_hours", "target_soc"} & set(told("battery_arbitrage"))
    assert "augment_years" in told("battery_arbitrage", augment="blocks")
    assert "price_forecast" not in told("marl_der_arbitrage")
    # one that changes nothing by itself is still the nearest name
    with pytest.raises(TypeError, match="Did you mean 'target_soc'"):
        powerzoo_jax.make("battery_arbitrage", target_socs=1)
