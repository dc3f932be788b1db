"""Settings: what is read, what is refused and how it is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from powerzoo_jax.rl.training.config import ALGORITHMS, APGConfig, PPOConfig, load, override
from powerzoo_jax.rl.training.learners import LEARNERS
from powerzoo_jax.tasks.registry import get_spec

SHIPPED = Path(__file__).parents[2] / "configs" / "battery_arbitrage_ppo.toml"


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_a_section_lies_over_the_top_level_and_the_defaults(tmp_path):
    path = write(tmp_path, 'task = "dso"\n[ppo]\nlr = 1e-2\nwidths = [8, 4]\n[apg]\nlanes = 3\n')
    assert PPOConfig.from_toml(path) == PPOConfig(task="dso", lr=1e-2, widths=(8, 4))
    assert APGConfig.from_toml(path) == APGConfig(task="dso", lanes=3)


def test_the_file_names_its_algorithm_and_the_caller_may_choose_another(tmp_path):
    path = write(tmp_path, 'algorithm = "apg"\n')
    assert isinstance(load(path), APGConfig)
    assert isinstance(load(path, "ppo"), PPOConfig)


def test_an_unknown_algorithm_names_the_nearest(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'ppo'"):
        load(write(tmp_path, 'algorithm = "pppo"\n'))


@pytest.mark.parametrize("text", ["[ppo]\ngama = 0.9\n", "gama = 0.9\n"])
def test_an_unknown_key_names_the_nearest(tmp_path, text):
    with pytest.raises(ValueError, match=r"Unknown ppo setting 'gama'\. Did you mean 'gamma'"):
        PPOConfig.from_toml(write(tmp_path, text))


def test_an_unknown_override_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'lanes'"):
        override(APGConfig(), {"lane": "3"})


def test_overrides_are_typed_by_their_field():
    cfg = override(
        PPOConfig(),
        {"lr": "1", "total_steps": "3e6", "widths": "64, 32", "cost_weights": "", "bootstrap": "False", "split": "val"},
    )
    assert cfg == PPOConfig(lr=1.0, total_steps=3_000_000, widths=(64, 32), bootstrap=False, split="val")


@pytest.mark.parametrize(("key", "text"), [("lanes", "2.5"), ("lr", "fast"), ("bootstrap", "maybe"), ("widths", "a")])
def test_text_of_the_wrong_type_names_the_setting(key, text):
    with pytest.raises(ValueError, match=key):
        override(PPOConfig(), {key: text})


@pytest.mark.parametrize("values", [{"lanes": 0}, {"lanes": True}, {"lr": "1e-3"}, {"widths": 64}, {"widths": [0.5]}])
def test_a_value_of_the_wrong_type_or_sign_is_refused(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        PPOConfig.from_dict(values)


def test_an_unknown_activation_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'relu'"):
        PPOConfig(activation="rel")


def test_more_minibatches_than_samples_are_refused():
    with pytest.raises(ValueError, match="minibatches"):
        PPOConfig(lanes=1, steps=4, minibatches=8)


def test_a_slip_in_a_settings_file_names_the_file_and_the_line(tmp_path):
    (tmp_path / "slip.toml").write_text('task = "dso"\nlr = \n')
    with pytest.raises(ValueError, match=r"slip\.toml.*line 2"):
        load(tmp_path / "slip.toml")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_resolved_settings_read_back_as_themselves(algorithm):
    cfg = load(SHIPPED, algorithm)
    plain = cfg.to_dict()
    assert plain.pop("algorithm") == algorithm
    assert type(cfg).from_dict(plain) == cfg


@pytest.mark.parametrize("path", sorted(SHIPPED.parent.glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_file_is_named_after_its_task_and_algorithm(path):
    cfg = load(path)
    name, _, variant = path.stem.partition(f"_{cfg.algorithm}")
    assert name == cfg.task and re.fullmatch("(_[a-z]+)?", variant)
    assert not variant or cfg.algorithm + variant not in ALGORITHMS, "the name says another algorithm"
    assert get_spec(cfg.task).id == cfg.task


@pytest.mark.parametrize("history", [1, 2])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_learner_trains_on_the_prices_that_its_settings_ask_for(algorithm, history, monkeypatch):
    asked = []

    def make(task, **keywords):
        asked.append((task, keywords))
        raise LookupError

    monkeypatch.setattr("powerzoo_jax.tasks.make", make)
    cfg = ALGORITHMS[algorithm](task="dso", augment="synthetic", augment_years=7, history=history)
    with pytest.raises(LookupError):
        LEARNERS[algorithm].make_update(cfg)
    assert asked == [("dso", {"split": "train", "augment": "synthetic", "augment_years": 7})]
