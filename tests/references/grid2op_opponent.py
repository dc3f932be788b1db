"""Opponents under fixed loadings, and counts of their attacks; run as a program it plays Grid2Op's own.

`python -m tests.references.grid2op_opponent`, where grid2op is installed, prints the tables that
tests/families/operation/test_opponent.py compares with.
"""

from __future__ import annotations

import pprint
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from powerzoo_jax.families.operation.grid2op.example import LINES, write_world

RHO = np.array([0.3, 0.9, 0.5, 0.2, 0.4, 0.7, 0.6], np.float32)
OUT, PERIOD, STEPS_OUT = 4, 60, 2  # a line that is out for two of sixty steps, beside those under attack
EPISODES, STEPS = 300, 400
WAITS, DURATIONS = (0, 1, 2, 4, 6, 9, 13, 18, 25, 40, 400), (1, 2, 4, 5, 6, 8, 10, 13, 17, 25, 400)
_ONE = {"lines_attacked": [LINES[1], LINES[4], LINES[5]]}
_GEOMETRIC = {"attack_every_xxx_hour": 2, "average_attack_duration_hour": 1, "minimum_attack_duration_hour": 0.25}
_LIMITS = {"opponent_init_budget": 8.0, "opponent_budget_per_ts": 0.5, "opponent_attack_duration": 8}
_LIMITS |= {"opponent_attack_cooldown": 12, "opponent_budget_class": "BaseActionBudget"}
CONFIGS = {
    "RandomLineOpponent": _LIMITS | {"kwargs_opponent": _ONE},
    "WeightedRandomOpponent": _LIMITS
    | {"kwargs_opponent": _ONE | {"rho_normalization": [1.0, 0.5, 2.0], "attack_period": 10}},
    "GeometricOpponent": _LIMITS
    | {"opponent_attack_duration": 20, "opponent_attack_cooldown": 3, "kwargs_opponent": _ONE | _GEOMETRIC},
    "GeometricOpponentMultiArea": _LIMITS
    | {"opponent_attack_duration": 20, "opponent_attack_cooldown": 0, "opponent_budget_per_ts": 1.5}
    | {"kwargs_opponent": _GEOMETRIC | {"lines_attacked": [[LINES[1], LINES[4], LINES[5]], [LINES[0], LINES[6]]]}},
}


def status(step: int, attacked: np.ndarray) -> np.ndarray:
    """Lines in service (L,) before a step, by those under attack (L,) in the last one."""
    on = ~attacked
    on[OUT] &= step % PERIOD >= STEPS_OUT
    return on


def areas(config: dict) -> list[np.ndarray]:
    """Lines (L,) bool of each area of a config."""
    given = config["kwargs_opponent"]["lines_attacked"]
    given = given if isinstance(given[0], list) else [given]
    return [np.isin(LINES, area) for area in given]


def count(attacks: np.ndarray, config: dict) -> dict[str, list[int]]:
    """Counts of waits, durations and first lines of the attacks (N, T, L) bool, in each area by itself."""
    waits, durations, lines = [], [], np.zeros(len(LINES), int)
    for area in areas(config):
        active = np.pad((attacks & area).any(axis=2), ((0, 0), (1, 1))).astype(int)
        for episode, row in zip(attacks, active, strict=True):
            first, after = (np.flatnonzero(np.diff(row) == sign) for sign in (1, -1))
            lines += (episode[first] & area).sum(axis=0)
            waits += (first - np.concatenate([[0], after])[: len(first)]).tolist()
            durations += (after - first)[after < len(episode)].tolist()  # of those that ended
    return {
        "waits": np.histogram(waits, WAITS)[0].tolist(),
        "durations": np.histogram(durations, DURATIONS)[0].tolist(),
        "lines": lines.tolist(),
    }


def play(kind: str, episodes: int = EPISODES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attacks (N, T, L) bool of Grid2Op's opponent, the steps that they go on (N, T) and its budget (N, T)."""
    import grid2op
    from grid2op import Opponent
    from grid2op.Action import PowerlineSetAction

    config = CONFIGS[kind]
    classes = {key: getattr(Opponent, config[key]) for key in ("opponent_budget_class",)}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = write_world(Path(folder) / "five")
        own = {"opponent_class": getattr(Opponent, kind), "opponent_action_class": PowerlineSetAction}
        env = grid2op.make(str(world), **(config | classes | own))
        space = env._oppSpace
        env.max_episode_duration = lambda: STEPS
        env.seed(0)
        found = np.zeros((episodes, STEPS, len(LINES)), bool)
        left, budget = np.zeros((episodes, STEPS), int), np.zeros((episodes, STEPS))
        for k in range(episodes):
            space.reset()
            attacked = np.zeros(len(LINES), bool)
            for t in range(STEPS):
                seen = SimpleNamespace(line_status=status(t, attacked), rho=RHO)
                action, left[k, t] = space.attack(seen, None, None)
                attacked = np.zeros(len(LINES), bool) if action is None else action._set_line_status == -1
                found[k, t], budget[k, t] = attacked, space.budget
        env.close()
    return found, left, budget


if __name__ == "__main__":
    for name in CONFIGS:
        attacks, left, budget = play(name)
        print(name, "attacked steps", int(attacks.any(axis=2).sum()))
        pprint.pprint(count(attacks, CONFIGS[name]), width=120)
        if name == "RandomLineOpponent":
            print(left[0, :80].tolist(), budget[0, :80].tolist())
