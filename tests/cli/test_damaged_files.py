"""Damaged files of others end in an error of ours, or are read: hundreds of seeded mutations of each kind of file."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from powerzoo_compat._textfile import read_file
from powerzoo_compat.powerzoo_api.benchmarks.offline import ARRAYS, META, DatasetLoader

import powerzoo_jax as pz
from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.cli.board import latex, read_rows, write_page
from powerzoo_jax.cli.commands.plot import _read_log
from powerzoo_jax.cli.runs import LOG, Run, open_run, require_ours
from powerzoo_jax.envs import Trace, load_traces, save_traces
from powerzoo_jax.envs.trace.types import TracedNetwork, TraceTable
from powerzoo_jax.plot import episode_html
from powerzoo_jax.rl import OfflineData, load_offline, save_offline
from powerzoo_jax.rl.training.config import PPOConfig, load
from powerzoo_jax.rl.zoo import find_policy, load_policy, read_card
from powerzoo_jax.tasks.spec import from_toml
from tests.cli.damage import array, arrays, as_json, cut

ROOT = Path(__file__).parents[2]
COUNTS = [40, pytest.param(1000, id="1000")]
TASK = "battery_arbitrage"


def table(width: int, steps: int = 4) -> TraceTable:
    values = np.linspace(0.9, 1.1, steps * width).reshape(steps, width)
    return TraceTable(values, tuple(f"x{k}" for k in range(width)), ("MW",) * width)


def traces() -> dict[str, Trace]:
    """Two policies on a network of five buses, with every kind of table."""
    ends = np.arange(4), np.arange(1, 5)
    limits = {"v_min_pu": np.full(5, 0.9), "v_max_pu": np.full(5, 1.1), "rate_mva": np.full(4, 2.0)}
    network = TracedNetwork(
        **{"bus_ids": tuple("12345"), "from_bus": ends[0], "to_bus": ends[1], "in_service": np.ones(4, bool)},
        **{"root": 0, "device_ids": ("b",), "device_bus": np.array([3]), **limits},
    )
    widths = {
        **{"action": 2, "reward": 2, "reward_term": 4, "cost": 2, "info": 3, "soc": 1, "price_per_mwh": 1},
        **{"bus_voltage_pu": 5, "bus_injection_mw": 5, "branch_flow_mw": 4, "branch_loading_percent": 4},
        **{"unit_power_mw": 2, "device_power_mw": 1},
    }
    tables = {name: table(width) for name, width in widths.items()}
    about: dict[str, Any] = {"task": "t", "version": 1, "family": "feeder", "split": "test", "episode": 0}
    about |= {"dt_hours": 0.5, "agents": ("a", "b"), "budgets": (1.0, float("inf")), "money": True}
    return {name: Trace(policy=name, tables=tables, networks={"": network}, **about) for name in ("rule", "oracle")}


def outcomes(count: int, once: Callable[[random.Random], Any]) -> Counter[str]:
    """How seeded damages ended: read, or the class of an error of ours; any other error fails the test."""
    found: Counter[str] = Counter()
    for seed in range(count):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                once(random.Random(seed))
            found["read"] += 1
        except PowerZooError as err:
            text = str(err)
            assert len(text) < 5000 and "\x1b" not in text and "\x07" not in text
            found[type(err).__name__] += 1
        except Exception as err:
            raise AssertionError(f"seed {seed}: {type(err).__name__}") from err
    return found


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_traces(count, tmp_path):
    path = save_traces(tmp_path / "t.npz", traces())
    whole, content = read_npz(path), path.read_bytes()

    def once(draw: random.Random) -> None:
        if draw.random() < 0.2:
            path.write_bytes(cut(draw, content))
        else:
            write_npz(path, arrays(draw, whole, "about"))
        page = episode_html(list(load_traces(path).values()))
        data = page.split('type="application/json">')[1].split("</script>")[0]
        json.loads(data, parse_constant=lambda word: pytest.fail(word))

    found = outcomes(count, once)
    assert found["read"] and found["DataError"]


@pytest.mark.full
@pytest.mark.parametrize("count", COUNTS)
def test_policies_of_the_zoo(count, tmp_path):
    sim, path = pz.make(TASK), tmp_path / "p.npz"
    whole = read_npz(find_policy(TASK))

    def once(draw: random.Random) -> None:
        write_npz(path, arrays(draw, whole, "about"))
        read_card(path)
        load_policy(path, sim)

    found = outcomes(count, once)
    assert found["read"] and found["DataError"]


def offline() -> OfflineData:
    """Two episodes of two steps of one agent."""
    seen, flat = np.zeros((4, 1, 3), np.float32), np.zeros(4, bool)
    about: dict[str, Any] = {"task": "t", "split": "test", "policy": "rule", "family": "feeder", "version": 1}
    about |= {"seed": 0, "drawn": True, "dt_hours": 0.5, "keywords": {}, "cost_budgets": [None]}
    about |= {"agents": ["a"], "observation_names": list("xyz"), "observation_units": ["-"] * 3, "action_names": ["p"]}
    about |= {"reward_terms": ["r"], "cost_names": ["c"], "cost_units": ["-"]}
    parts = {"actions": seen[..., :1], "rewards": seen[..., 0], "terms": seen[..., :1], "costs": seen[:, 0, :1]}
    bounds = {"low": seen[0], "high": seen[0], "final_observations": seen[:2], "lengths": np.array([2, 2], np.int32)}
    return OfflineData(observations=seen, **parts, **bounds, terminated=flat, truncated=flat, about=about)


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_offline_data(count, tmp_path):
    path = save_offline(tmp_path / "d.npz", offline())
    whole = read_npz(path)

    def once(draw: random.Random) -> None:
        write_npz(path, arrays(draw, whole, "about"))
        data = load_offline(path)
        assert len(data.returns) == len(data.lengths) and data.next_observations.shape == data.observations.shape
        repr(data)

    found = outcomes(count, once)
    assert found["read"] and found["DataError"]


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_data_sets_of_the_drop_in(count, tmp_path):
    path, flat = tmp_path / "d.npz", {"rewards": 1, "terminals": 1, "truncations": 1}
    whole = {name: np.zeros((4, 3)[: flat.get(name, 2)], np.float32) for name in ARRAYS}
    whole |= {name: np.array([False, True, False, True]) for name in ("terminals", "truncations")}
    whole[META] = np.array(json.dumps({"task_id": "t", "version": 1, "seed": 0}))

    def once(draw: random.Random) -> None:
        write_npz(path, arrays(draw, whole, META))
        data = DatasetLoader(path)
        data.filter(min_return=-1.0)
        data.get_dataset()

    found = outcomes(count, once)
    assert found["read"] and found["DataError"]


RECORD = {
    **{"config": PPOConfig().to_dict(), "seeds": 2, "seed": 0, "grid": {"lr": [1e-3, 1e-4]}},
    **{"keywords": ["case=case69"], "modules": ["/tmp/mine.py"]},
}


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_records_of_runs(count, tmp_path):
    path, text = tmp_path / "run.json", json.dumps(RECORD)

    def once(draw: random.Random) -> None:
        path.write_bytes(cut(draw, text.encode()) if draw.random() < 0.2 else as_json(draw, RECORD).encode())
        run = open_run(tmp_path)
        require_ours(tmp_path)
        assert 0 < run.rows <= 2**16 and len(run.labels) == len(run.points)

    found = outcomes(count, once)
    assert found["read"] and found["RunError"]


@pytest.mark.parametrize("seeds", [0, -1, 10**9, 10**400, 1.5, True, None, "2"])
def test_a_run_of_no_seeds_or_of_a_thousand_million_is_refused(seeds, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({**RECORD, "seeds": seeds}))
    with pytest.raises(PowerZooError, match="seeds"):
        open_run(tmp_path)


def toml_of(draw: random.Random, text: str) -> bytes:
    """Lines of settings that are cut, doubled, nested or given other values."""
    if draw.random() < 0.2:
        return cut(draw, text.encode())
    lines = text.splitlines()
    for _ in range(draw.randrange(1, 4)):
        k = draw.randrange(len(lines))
        name = lines[k].partition("=")[0].strip() or "x"
        values = (
            "nan",
            "-1",
            "0",
            "1e400",
            '"x"',
            "[]",
            "[[1]]",
            "{a = 1}",
            "true",
            "9" * 400,
            "[" * 3000,
            "1979-05-27",
        )
        lines[k] = draw.choice(("", f"[{name}]", lines[k] * 2, *(f"{name} = {value}" for value in values)))
    return "\n".join(lines).encode()


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_settings_and_task_files(count, tmp_path):
    path, settings = tmp_path / "s.toml", sorted((ROOT / "configs").glob("*.toml"))
    task = 'id = "m"\nversion = 1\nfamily = "feeder"\ncase = "c"\nhorizon = 48\ndt_hours = 0.5\nsplit = "train"\n'
    task += (
        'agents = ["a"]\ncost_names = []\ncost_budget = []\nterm_names = []\nterm_weights = []\n[overrides]\nx = 1\n'
    )

    def once(draw: random.Random) -> None:
        own = draw.random() < 0.3
        path.write_bytes(toml_of(draw, task if own else draw.choice(settings).read_text(encoding="utf-8")))
        (from_toml if own else load)(path)

    found = outcomes(count, once)
    assert found["read"] and found["SettingsError"]


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_yaml_files(count, tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "s.yaml"
    text = "train:\n  lr: 0.1\n  steps: [1, 2]\ntask: dso\n"

    def once(draw: random.Random) -> None:
        more = draw.choice(("a: &x [*x]\n", "[" * 3000, "d: 2023-13-45\n", "", "!!python/object:os.system x\n"))
        path.write_bytes(cut(draw, (text + more).encode()))
        read_file(path)

    assert outcomes(count, once)["SettingsError"]


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_boards(count, tmp_path):
    rows = json.loads((ROOT / "docs" / "leaderboard.json").read_text(encoding="utf-8"))[:3]
    rows += [{"task": "dso", "version": 1, "error": "no"}]
    path = tmp_path / "b.json"

    def once(draw: random.Random) -> None:
        path.write_text(as_json(draw, rows), encoding="utf-8")
        found = read_rows(path)
        write_page(found)
        latex(found)

    found = outcomes(count, once)
    assert found["read"] and found["RunError"]


@pytest.mark.tiers(full=["1000"])
@pytest.mark.parametrize("count", COUNTS)
def test_logs_of_runs(count, tmp_path):
    run, log = Run(tmp_path, PPOConfig()), "update\tenv_steps\treturn\tepisodes\n1\t10\t0.5\t2\n2\t20\t0.6\t2\n"

    def once(draw: random.Random) -> None:
        (tmp_path / LOG).write_bytes(log.encode() if draw.random() < 0.5 else cut(draw, log.encode()))
        _read_log(run, LOG)

    found = outcomes(count, once)
    assert found["read"] and found["RunError"]


def test_every_kind_of_damage_to_an_array_happens():
    """A fuzz whose mutations changed nothing would pass."""
    draws = [array(random.Random(seed), np.arange(6.0).reshape(2, 3)) for seed in range(200)]
    assert len({x.dtype for x in draws}) > 5 and len({x.shape for x in draws}) > 5
    assert any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in draws)
