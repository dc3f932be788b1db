"""Anchors of the normalised score: the shipped references, and those that a user registers."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class, list_tasks
from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.base.files.forms import require_form
from powerzoo_jax.base.files.results import write_text
from powerzoo_jax.base.textfile import read_json
from powerzoo_jax.families.market.equilibrium import equilibrium_score
from powerzoo_jax.oracle import get_reference
from powerzoo_jax.oracle.registry import load_table
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks import list_tasks as list_core_tasks
from powerzoo_jax.tasks.score import gain

TEST = "test"
FILE = "baselines.json"

_registered: dict[str, dict[str, float]] = {}


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "powerzoo_jax"


def normalized_score(task: str, ret: float, split: str = TEST) -> float:
    """Gain (ret - rule) / (best - rule) of a mean return, with the oracle of `register_baseline` in the part of the
    best; on a market, whose agents earn for themselves, the equilibrium score 1 - NashConv / NashConv(rule).

    ret:  mean return of an episode [unit of the reward]; on a market with a shipped record the NashConv of the joint
          policy [$], `families.market.equilibrium.exploitability(...).nash_conv`
    Raises KeyError where no anchors are known, naming the command that computes them, ValueError for registered ones
    without the rule that a gain is measured from, where the rule breaks a budget on the split, for a best that is no
    better than it, and for a NashConv below zero.
    """
    anchors = get_baseline(task, split)
    name = get_task_class(task).name
    if "nash_conv" in anchors:
        if ret < 0:
            raise ValueError(
                f"{ret} is no NashConv of {name!r}, which is never negative. Agents of a market earn for "
                "themselves: give what they gain by leaving; see powerzoo_jax.families.market.equilibrium."
            )
        return equilibrium_score(ret, anchors["nash_conv"]["rule"])
    return _gain(name, ret, anchors, split)


def joint_gain(task: str, ret: float, split: str = TEST) -> float:
    """Gain of a mean return of all agents together, also on a market, where it measures collusion.

    Arguments and errors as in `normalized_score`.
    """
    return _gain(get_task_class(task).name, ret, get_baseline(task, split), split)


def _gain(name: str, ret: float, anchors: dict[str, Any], split: str) -> float:
    if "rule" not in anchors:
        raise ValueError(
            f"a gain on {name!r} is measured from its rule, and none is registered. Give it: "
            f"register_baseline({name!r}, random, oracle, rule=...)."
        )
    if not anchors.get("feasible", {"rule": True})["rule"]:
        raise ValueError(f"the rule of {name!r} breaks a budget on the split {split!r}: no gain is measured from it.")
    share = gain(ret, anchors["rule"], anchors["best"] if "best" in anchors else anchors["oracle"])
    assert share is not None  # only what breaks a budget has no gain, and a return alone tells of none
    return share


def get_baseline(task: str, split: str = TEST) -> dict[str, Any]:
    """Reference returns of a task: those given to `register_baseline`, else the shipped record, see
    `oracle.get_reference`.

    Raises KeyError where neither exists.
    """
    name = get_task_class(task).name
    own = {**_saved(), **_registered}
    if split == TEST and _key(name) in own:
        return dict(own[_key(name)])
    if name not in list_core_tasks():
        raise KeyError(f"no anchors are known for {name!r}. Give them: register_baseline({name!r}, random, oracle).")
    return get_reference(name, split)


def register_baseline(
    task: str, random: float, oracle: float, rule: float | None = None, save: bool = True
) -> dict[str, float]:
    """Anchor the score of a task's test split at its registered version; `save` keeps it in the user's cache folder.

    A score is a gain, which takes the rule.
    Raises ValueError where random and oracle are equal, or one is not finite.
    """
    name = get_task_class(task).name
    if not math.isfinite(oracle - random) or oracle == random:
        raise ValueError(f"anchors random = {random} and oracle = {oracle} do not span a scale. Give two that differ.")
    record = {"random": float(random), "oracle": float(oracle)} | ({} if rule is None else {"rule": float(rule)})
    _registered[_key(name)] = record
    if save:
        write_text(_folder() / FILE, json.dumps({**_saved(), _key(name): record}, indent=1) + "\n")
    return dict(record)


def list_baselines() -> list[str]:
    """Ids of the tasks that have anchors on their test split, sorted."""
    own = {**_saved(), **_registered}
    shipped = {name for name in list_tasks() if TEST in load_table().get(name, {}).get(f"v{_version(name)}", {})}
    return [name for name in list_tasks() if _key(name) in own or name in shipped]


def _key(name: str) -> str:
    return f"{name}-v{_version(name)}"


def _version(name: str) -> int:
    """Version of a task of the core; those that a user registers have none."""
    return get_spec(name).version if name in list_core_tasks() else 0


def _saved() -> dict[str, dict[str, float]]:
    path = _folder() / FILE
    if not path.is_file():
        return {}
    remedy = "Remove it, and register the anchors again."
    saved: dict[str, dict[str, float]] = read_json(path, SettingsError, remedy)
    require_form(saved, {str: {"random": float, "oracle": float}}, str(path), SettingsError, remedy)
    return saved
