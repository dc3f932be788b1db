"""What the scripts of this folder share: the days that a policy is scored on, and the line that the runner reads."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax
import numpy as np

import powerzoo_jax
from tests.foreign.record import RECORD

BATTERY, BATTERIES = "battery_arbitrage", "marl_der_arbitrage"
DAYS, KEY, DIGITS = 64, 26, 4
CHEAP, DEAR = 15, 85  # percentiles
Act = Callable[[np.ndarray], np.ndarray]


class Days:
    """Days of a task's test split, the same for every script and seed.

    Example:
        Days("battery_arbitrage").mean_return(lambda obs: np.zeros((len(obs), 1)))
    """

    def __init__(self, task: str) -> None:
        self._task = task

    @functools.cached_property
    def _programs(self) -> tuple[Callable[..., Any], Callable[..., Any], int]:
        """Beginning and step of all days, and the steps of one; made late, since workers are forked before JAX runs."""
        sim = powerzoo_jax.make(self._task, split="test")
        return jax.jit(jax.vmap(sim.init)), jax.jit(jax.vmap(sim.step)), sim.spec.horizon

    def mean_return(self, act: Act) -> float:
        """Return of a day [$], mean over days and agents.

        act:  observations (R, O) of R agents -> actions (R, U), clipped to [-1, 1]
        """
        begin, step, steps = self._programs
        state, obs = begin(jax.random.split(jax.random.key(KEY), DAYS))
        total = 0.0
        for _ in range(steps):
            rows = np.asarray(obs).reshape(-1, obs.shape[-1])
            actions = np.clip(np.asarray(act(rows), np.float32), -1, 1)
            out = step(state, actions.reshape(*obs.shape[:2], -1))
            state, obs, total = out.state, out.obs, total + float(np.mean(out.reward))
        return round(total, DIGITS)

    @functools.cached_property
    def references(self) -> dict[str, float]:
        """Returns of play by chance and of none [$]."""
        rng = np.random.default_rng(0)
        return {
            "random": self.mean_return(lambda obs: rng.uniform(-1, 1, (len(obs), 1))),
            "idle": self.mean_return(lambda obs: np.zeros((len(obs), 1))),
        }


def rule(prices: np.ndarray) -> np.ndarray:
    """Charge while the first of the prices (R, T) is among the cheapest in sight, discharge among the dearest."""
    cheap, dear = np.percentile(prices, [CHEAP, DEAR], axis=1)
    return np.where(prices[:, 0] >= dear, 1.0, np.where(prices[:, 0] <= cheap, -1.0, 0.0))[:, None]


def final_ends(env: Any) -> Any:
    """The same environment, whose ends of the horizon are told as final: what is stored is settled there.

    A learner that takes them for interruptions adds a value of stored energy to what the settlement has paid for it.
    """
    step = env.step

    def told(actions: Any) -> tuple[Any, ...]:
        obs, rewards, terminated, truncated, infos = step(actions)
        if isinstance(truncated, dict):
            ends = {agent: terminated[agent] or truncated[agent] for agent in truncated}
            return obs, rewards, ends, dict.fromkeys(truncated, False), infos
        return obs, rewards, terminated | truncated, truncated & False, infos

    env.step = told
    return env


def run(package: str, train: Callable[..., Any], task: str | dict[str, str]) -> None:
    """Run a script: train, score, and print one line a seed, JSON behind the word RECORD.

    package:  distribution whose learner it is, or that its learner needs
    train:    (days, seed, *words of the command line) -> returns before and after training [$], and what else to record
    task:     the task that is learnt, or one by the first word of the command line
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    name = task if isinstance(task, str) else task[given.words[0]]
    days = Days(name)
    known = {"task": name, "package": f"{package} {metadata.version(package)}"}
    for seed in given.seeds:
        before, after, *more = train(days, seed, *given.words)
        told = {"seed": seed, **known, **days.references, "before": before, "after": after}
        for entry in more:
            told |= entry
        print(RECORD + json.dumps(told), flush=True)
