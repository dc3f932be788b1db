"""Episodes of a Grid2Op world, recorded with Grid2Op, and their comparison with a replay of its rules.

`python -m tools.record_grid2op record WORLD OUT.npz` plays a world (its folder, or the name of one that the wheel of
grid2op brings) on LightSimBackend and keeps every action, observation, flag and reward as arrays in one npz, which
nothing executes. It runs where grid2op and lightsim2grid are installed (`pip install .[bench]`); Grid2Op executes the
config.py of a world, so record worlds of authors you trust.

`python -m tools.record_grid2op compare RECORDING...` replays recordings by the package, without Grid2Op, in float64 or
with --float32, and prints one row each: episodes, steps, ends that are equal, largest differences; it exits with 1
where one parts.
An end is equal in the same step and class (data, divergence, island, redispatch); a row parts where an integer or a
flag differs, or rho by more than 1e-4, and the rest of its episode is left out.

| mode | actions |
|---|---|
| nothing | none |
| random | with the chance of --chance a legal unitary action on a line or a substation |
| dispatch | alike, on dispatch, curtailment, storages, sometimes lines and substations |
| attack | none, against the world's own opponent, which is silent otherwise |
| sampled | Grid2Op's own sampling |
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from powerzoo_jax.base.errors import DataError, DataMissing, excerpt
from powerzoo_jax.base.npz import read_npz, require_array, write_npz
from tools.replay_grid2op import DATA, DIVERGENCE, FLAGS, ISLAND, REDISPATCH, REWARDS, PackageReplay

MODES = ("nothing", "random", "dispatch", "attack", "sampled")
CUT = "cut"  # the end of an episode that was not played on
INTEGERS = (
    *("line_status", "topo_vect", "time_before_cooldown_line", "time_before_cooldown_sub", "timestep_overflow"),
    *("time_next_maintenance", "duration_next_maintenance"),
)
POWERS = ("p_or", "q_or", "p_ex", "q_ex", "gen_p", "gen_q", "load_p", "load_q")
VOLTAGES = ("v_or", "v_ex", "gen_v", "load_v")
DISPATCH = ("target_dispatch", "actual_dispatch", "storage_charge", "storage_power")
OBSERVED = ("rho", *POWERS, *VOLTAGES, *DISPATCH, *INTEGERS)
SIMULATED = ("rho", "line_status", "topo_vect", "gen_p", "actual_dispatch")
# field of an action -> the attribute of Grid2Op's
ORDERS = {
    "set_line": "set_line_status",
    "switch_line": "switch_line_status",
    "set_bus": "set_topo_vect",
    "change_bus": "change_bus_vect",
    "redispatch": "redispatch",
    "curtail": "curtail",
    "storage": "storage_power",
}
TRIES = 20  # draws of an action until one is legal
EPISODES = ("episode", "seed", "rows", "end", "reason")
COLUMNS = (
    *("world", "mode", "episodes", "steps", "equal_ends", "parted_rows", "rho", "pq_mw", "v_kv", "dispatch_mw"),
    *("rewards", "simulations", "equal_simulations", "simulated_rho", "exceptions"),
)
PARTED = 1e-4  # of rho: from here on two episodes are not the same
Arrays = dict[str, np.ndarray]


def bundled() -> Path | None:
    """Folder of the worlds that the installed wheel of grid2op brings, found without importing it."""
    found = importlib.util.find_spec("grid2op")
    return Path(found.origin).parent / "data" if found and found.origin else None


def folder_of(world: str, worlds: Path | None = None) -> Path:
    """Folder of a world that is named by its path or by its name among `worlds`, else those of the wheel."""
    places = [Path(world), *(base / world for base in (worlds, bundled()) if base is not None)]
    for place in places:
        if (place / "grid.json").is_file():
            return place
    raise DataMissing(
        f"no world {world!r}: no grid.json in {', '.join(map(str, places))}. Give the path of its folder."
    )


class _Player:
    """A world in Grid2Op, with draws of actions."""

    def __init__(self, folder: Path, mode: str, seed: int, chance: float, playable: bool) -> None:
        import grid2op
        from grid2op.Action import DontAct, PlayableAction
        from grid2op.Opponent import BaseOpponent, NeverAttackBudget
        from grid2op.Reward import EpisodeDurationReward, L2RPNReward, LinesCapacityReward, RedispReward
        from lightsim2grid import LightSimBackend

        rewards = {"l2rpn": L2RPNReward, "lines": LinesCapacityReward, "duration": EpisodeDurationReward}
        if (folder / "prods_charac.csv").exists():
            rewards["redisp"] = RedispReward
        options: dict[str, Any] = {"action_class": PlayableAction} if playable else {}
        if mode != "attack":
            options |= {"opponent_class": BaseOpponent, "opponent_action_class": DontAct, "kwargs_opponent": {}}
            options |= {"opponent_budget_class": NeverAttackBudget, "opponent_attack_duration": 0}
            options |= {"opponent_init_budget": 0.0, "opponent_budget_per_ts": 0.0, "opponent_attack_cooldown": 99999}
        self.env = grid2op.make(str(folder), backend=LightSimBackend(), other_rewards=rewards, **options)
        self.kind, self.mode, self.chance, self.rng = type(self.env), mode, chance, np.random.default_rng(seed)
        self.env.action_space.seed(seed)

    def act(self) -> Any:
        """Next action of the mode."""
        if self.mode == "sampled":
            return self.env.action_space.sample()
        if self.mode in ("random", "dispatch") and self.rng.random() < self.chance:
            for _ in range(TRIES):
                action = self.draw()
                if action is not None and self.env._game_rules(action, self.env)[0] and not action.is_ambiguous()[0]:
                    action.reset_cache_topological_impact()
                    return action
        return self.env.action_space({})

    def draw(self) -> Any:
        """One unitary action of the mode, None where the world's class of actions has no such."""
        kinds = [self._line, self._busbars]
        if self.mode == "dispatch":
            kinds = [self._redispatch, self._redispatch, self._curtail, self._store, *kinds]
        order = kinds[self.rng.integers(len(kinds))]()
        try:
            action = self.env.action_space(order)
        except Exception:  # every class of actions refuses in its own way
            return None
        return action if order and action.can_affect_something() else None

    def _line(self) -> dict:
        status = self.env.current_obs.line_status
        out = np.flatnonzero(~status)
        line = int(self.rng.choice(out) if len(out) and self.rng.random() < 0.6 else self.rng.integers(len(status)))
        draw = self.rng.random()
        if draw < 0.4:
            return {"change_line_status": [line]}
        if status[line] or draw < 0.8:
            return {"set_line_status": [(line, -1 if status[line] else 1)]}
        ends = {f"lines_{end}_id": [(line, int(self.rng.integers(1, 3)))] for end in ("or", "ex")}
        return {"set_line_status": [(line, 1)], "set_bus": ends}

    def _busbars(self) -> dict:
        sizes = self.kind.sub_info
        first = np.concatenate([[0], np.cumsum(sizes)])
        topology = self.env.current_obs.topo_vect
        split = [s for s, size in enumerate(sizes) if (topology[first[s] : first[s] + size] == 2).any()]
        if split and self.rng.random() < 0.5:
            sub = int(self.rng.choice(split))
            return {"set_bus": {"substations_id": [(sub, np.ones(sizes[sub], int))]}}
        sub = int(self.rng.choice(np.flatnonzero(sizes >= 3)))
        moved, draw = self.rng.random(sizes[sub]) < 0.4, self.rng.random()
        if draw < 0.5:
            return {"set_bus": {"substations_id": [(sub, 1 + moved.astype(int))]}}
        if draw < 0.8:
            return {"change_bus": {"substations_id": [(sub, moved)]}}
        one = np.zeros(sizes[sub], int)
        one[self.rng.integers(len(one))] = self.rng.integers(1, 3)
        return {"set_bus": {"substations_id": [(sub, one)]}}

    def _unit(self, which: str) -> int | None:
        """A unit that can be dispatched or curtailed, None without characteristics of units."""
        if not self.kind.redispatching_unit_commitment_availble:
            return None
        units = np.flatnonzero(getattr(self.kind, which))
        return int(self.rng.choice(units)) if len(units) else None

    def _redispatch(self) -> dict:
        k = self._unit("gen_redispatchable")
        if k is None:
            return {}
        return {"redispatch": [(k, self._uniform(-self.kind.gen_max_ramp_down[k], self.kind.gen_max_ramp_up[k]))]}

    def _curtail(self) -> dict:
        k = self._unit("gen_renewable")
        return {} if k is None else {"curtail": [(k, float(self.rng.choice((0, 0.2, 0.5, 0.8, 1.0))))]}

    def _store(self) -> dict:
        if not self.kind.n_storage:
            return {}
        k = int(self.rng.integers(self.kind.n_storage))
        produced, absorbed = self.kind.storage_max_p_prod[k], self.kind.storage_max_p_absorb[k]
        return {"set_storage": [(k, self._uniform(-produced, absorbed))]}

    def _uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))


def orders_of(action: Any) -> Arrays:
    """Arrays of an action of Grid2Op's by the fields of ours."""
    return {f"action.{key}": np.array(getattr(action, f"_{name}")) for key, name in ORDERS.items()}


def end_of(done: bool, seen: Any, errors: Sequence[Exception]) -> str:
    """Class of the end of an episode: an observation of a grid that failed has no line in service."""
    if not done:
        return CUT
    if seen.line_status.any():
        return DATA
    text = " ".join(f"{type(error).__name__}: {error}" for error in errors)
    if "Redispatching" in text:
        return REDISPATCH
    return ISLAND if "non connected" in text or "is disconnected" in text or "out of the grid" in text else DIVERGENCE


def record(
    folder: Path,
    mode: str = "nothing",
    episodes: int = 3,
    steps: int = 300,
    seed: int = 0,
    chance: float = 0.1,
    simulations: int = 0,
    playable: bool = False,
    script: Sequence[dict] | None = None,
) -> Arrays:
    """Arrays of recorded episodes; every array of rows holds the first observation and one row a step, in a row.

    simulations:  a step, with random actions
    playable:     take all actions, whatever the world's class
    script:       actions as Grid2Op's dicts, instead of the mode's, one a step

    | array | shape | |
    |---|---|---|
    | world, mode, versions | () | |
    | episode, seed, rows, end, reason | (E,) | name, seed of reset, rows, class of the end, Grid2Op's words |
    | observations by Grid2Op's names, tripped | (R, ...) | |
    | action.*, illegal, ambiguous, refused_dispatch | (R, ...) | nothing in first rows |
    | attacked, attack_steps | (R, L), (R,) | lines opened by the opponent, steps it lasts |
    | rewards | (R, 4) | in the order of REWARDS, NaN where a world has none |
    | sim.row, sim.horizon, sim.action.*, sim.* | (S, ...) | simulations from a row |
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        player = _Player(folder, mode, seed, chance, playable)
        rows: list[Arrays] = []
        simulated: list[Arrays] = []
        about: list[tuple[str, int, int, str, str]] = []
        n = len(player.env.chronics_handler.real_data.subpaths)
        for k in range(episodes):
            first = len(rows)
            seen = player.env.reset(seed=seed + k, options={"time serie id": k % n})
            name = Path(player.env.chronics_handler.get_id()).name
            rows.append(_row(player, seen, player.env.action_space({}), {}))
            done, info = False, dict[str, Any]()
            for step in range(min(steps, len(script)) if script is not None else steps):
                simulated += [_simulation(player, seen, len(rows) - 1) for _ in range(simulations)]
                action = player.act() if script is None else player.env.action_space(script[step])
                kept = orders_of(action)
                seen, _, done, info = player.env.step(action)
                rows.append(_row(player, seen, action, info) | kept)
                if done:
                    break
            errors = info["exception"] if done else []
            end = end_of(done, seen, errors)
            about.append((name, seed + k, len(rows) - first, end, " ".join(map(str, errors))[:200]))
        player.env.close()
    arrays = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    if simulated:
        arrays |= {f"sim.{key}": np.stack([row[key] for row in simulated]) for key in simulated[0]}
    arrays |= {key: np.array(column) for key, column in zip(EPISODES, zip(*about, strict=True), strict=True)}
    versions = " ".join(f"{name} {metadata.version(name)}" for name in ("grid2op", "lightsim2grid"))
    base = bundled()
    wheel = base is not None and folder.is_relative_to(base)
    name = folder.relative_to(base).as_posix() if base is not None and wheel else folder.resolve().name
    mode = mode if script is None else "script"
    return arrays | {"world": np.array(name), "mode": np.array(mode), "versions": np.array(versions)}


def _row(player: _Player, seen: Any, action: Any, info: dict) -> Arrays:
    """One row of a recording; without `info` that of a reset."""
    lines = player.kind.n_line
    attacked, rewards = info.get("opponent_attack_line"), info.get("rewards", {})
    return {
        **{key: np.array(getattr(seen, key)) for key in OBSERVED},
        **orders_of(action),
        "tripped": np.array(info["disc_lines"] if info else np.full(lines, -1)).astype(np.int32),
        "illegal": np.array(info.get("is_illegal", False)),
        "ambiguous": np.array(info.get("is_ambiguous", False)),
        "refused_dispatch": np.array(info.get("failed_redispatching", False)),
        "attacked": np.zeros(lines, bool) if attacked is None else np.array(attacked, bool),
        "attack_steps": np.array(info.get("opponent_attack_duration") or 0),
        "rewards": np.array([rewards.get(key, np.nan) for key in REWARDS], np.float64),
    }


def _simulation(player: _Player, seen: Any, row: int) -> Arrays:
    """A random action, legal or not, simulated on the next row or, in a third of the draws, on any of the forecast."""
    action = player.draw() or player.env.action_space({})
    far = len(seen._forecasted_inj) - 1
    horizon = int(player.rng.integers(0, far + 1)) if player.rng.random() < 1 / 3 else min(1, far)
    kept = orders_of(action)
    found, _, done, info = seen.simulate(action, time_step=horizon)
    return {
        "row": np.array(row),
        "horizon": np.array(horizon),
        "failed": np.array(done),
        "illegal": np.array(info["is_illegal"]),
        "ambiguous": np.array(info["is_ambiguous"]),
        **kept,
        **{key: np.array(getattr(found, key)) for key in SIMULATED},
    }


def read_recording(path: str | Path) -> Arrays:
    """Arrays of a recording. Raises DataMissing without the file, DataError for one that is none; nothing executes."""
    arrays = read_npz(path)
    try:
        for key in ("world", "mode", "versions"):
            require_array(arrays, key, "U", ())
        names = require_array(arrays, "episode", "U", (None,))
        for key, kinds in (("seed", "iu"), ("rows", "iu"), ("end", "U"), ("reason", "U")):
            require_array(arrays, key, kinds, names.shape)
        total = int(arrays["rows"].sum())
        if (arrays["rows"] < 1).any():
            raise ValueError("an episode has no row")
        for key in (*OBSERVED, *(f"action.{key}" for key in ORDERS), "attacked", "tripped"):
            require_array(arrays, key, "fiub", (total, None))
        for key in (*FLAGS, "attack_steps"):
            require_array(arrays, key, "iub", (total,))
        require_array(arrays, "rewards", "f", (total, len(REWARDS)))
        if "sim.row" in arrays:
            _check_simulations(arrays, total)
    except ValueError as err:
        raise DataError(f"{path} is no recording of a Grid2Op world ({excerpt(err)}). Record it again.") from err
    return arrays


def _check_simulations(arrays: Arrays, total: int) -> None:
    rows = require_array(arrays, "sim.row", "iu", (None,))
    if len(rows) and not (rows.min() >= 0 and rows.max() < total):
        raise ValueError("a simulation starts from a row that is not there")
    for key in ("horizon", "failed", "illegal", "ambiguous"):
        require_array(arrays, f"sim.{key}", "iub", rows.shape)
    for key in (*SIMULATED, *(f"action.{key}" for key in ORDERS)):
        require_array(arrays, f"sim.{key}", "fiub", (len(rows), None))


def action_at(arrays: Arrays, row: int, prefix: str = "") -> Arrays:
    """Entries of the action of a row, or with the prefix `sim.` of a simulation."""
    return {key: arrays[f"{prefix}action.{key}"][row] for key in ORDERS}


class Replayed(Protocol):
    """A world that a recording is compared with; `observation` by Grid2Op's names, None after a game over.

    sizes:     columns of some arrays of a recording     outcome: flags, `end` and `reason` of the last step
    """

    folder: Path
    sizes: dict[str, int]
    episodes: Sequence[str]
    observation: dict[str, Any] | None
    outcome: Any

    def reset(self, name: str, seed: int) -> Any: ...

    def step(self, action: Arrays, attacked: np.ndarray, duration: int) -> tuple[Any, bool]: ...

    def simulate(self, action: Arrays, horizon: int) -> tuple[dict[str, Any] | None, bool, Any]: ...

    def rewards(self) -> dict[str, float]: ...


class Comparison(NamedTuple):
    """Counts and largest differences of a recording and its replay; `exceptions` names every one that parts."""

    episodes: int
    steps: int
    equal_ends: int
    parted_rows: int
    largest: dict[str, float]
    simulations: int
    equal_simulations: int
    exceptions: list[str]


def compare(arrays: Arrays, replay: Replayed) -> Comparison:
    """Replay of a recording, each episode up to where it parts. Raises DataError where it is not of this world."""
    _check_world(arrays, replay)
    largest = dict.fromkeys(("rho", "pq", "v", "dispatch", "rewards", "simulated_rho"), 0.0)
    exceptions: list[str] = []
    first = steps = ends = parted_rows = simulations = equal = 0
    for name, seed, count, end in zip(*(arrays[key] for key in ("episode", "seed", "rows", "end")), strict=True):
        replay.reset(str(name), int(seed))
        parted: list[str] = []
        for row in range(first, first + int(count)):
            over = False
            if row > first:
                steps += 1
                _, over = replay.step(action_at(arrays, row), arrays["attacked"][row], int(arrays["attack_steps"][row]))
            parted = list(_parted(replay, arrays, row, row > first, largest))
            if parted:
                parted_rows += 1
                exceptions += [f"{name} step {row - first}: {text}" for text in parted]
                break
            if over:
                break
            here = np.flatnonzero(arrays["sim.row"] == row) if "sim.row" in arrays else ()
            for k in here:
                simulations += 1
                wrong = list(_simulation_parted(replay, arrays, int(k), largest))
                equal += not wrong
                exceptions += [f"{name} step {row - first}, simulation {k}: {text}" for text in wrong]
        same = not parted and (replay.outcome.end or CUT) == end and row == first + int(count) - 1
        if not parted and not same:
            reason = f"{replay.outcome.end or CUT} ({replay.outcome.reason})"
            exceptions.append(f"{name} step {row - first}: ends by {reason}, recorded {end} at {int(count) - 1}")
        ends += same
        first += int(count)
    return Comparison(len(arrays["episode"]), steps, ends, parted_rows, largest, simulations, equal, exceptions)


def _check_world(arrays: Arrays, replay: Replayed) -> None:
    wrong = [f"{key} ({arrays[key].shape[1]}, not {n})" for key, n in replay.sizes.items() if arrays[key].shape[1] != n]
    wrong += [f"episode {name}" for name in sorted({*map(str, arrays["episode"])} - {*replay.episodes})]
    if wrong:
        raise DataError(f"the recording of {arrays['world']} does not fit {replay.folder}: {', '.join(wrong[:5])}.")


def _differences(found: dict, arrays: Arrays, keys: Sequence[str], row: int, prefix: str = "") -> float:
    known = [key for key in keys if key in found and np.size(found[key])]
    return max((float(np.abs(found[key] - arrays[prefix + key][row]).max()) for key in known), default=0.0)


def _unequal(found: dict, arrays: Arrays, keys: Sequence[str], row: int, prefix: str = "") -> Iterator[str]:
    for key in keys:
        if key in found and not np.array_equal(found[key], arrays[prefix + key][row]):
            here = np.flatnonzero(np.asarray(found[key]) != arrays[prefix + key][row])[:5]
            yield f"{key} at {here.tolist()}: {np.asarray(found[key])[here].tolist()}, recorded " + str(
                arrays[prefix + key][row][here].tolist()
            )


def _parted(replay: Replayed, arrays: Arrays, row: int, stepped: bool, largest: dict[str, float]) -> Iterator[str]:
    """Differences of one row that are none of rounding; `largest` is kept up to date."""
    if stepped:
        for flag in FLAGS:
            if getattr(replay.outcome, flag) != arrays[flag][row]:
                yield f"{flag} {getattr(replay.outcome, flag)}, recorded {arrays[flag][row]}"
        for key, recorded in zip(REWARDS, arrays["rewards"][row], strict=True):
            found = replay.rewards().get(key, np.nan)
            if np.isfinite(found) and np.isfinite(recorded):
                largest["rewards"] = max(largest["rewards"], abs(found - recorded) / max(1.0, abs(recorded)))
    seen = replay.observation
    if seen is None:
        return
    if not arrays["line_status"][row].any():
        yield "the recorded episode fails here, the replay does not"
        return
    groups = {"rho": ("rho",), "pq": POWERS, "v": VOLTAGES, "dispatch": DISPATCH}
    for key, names in groups.items():
        off = _differences(seen, arrays, names, row)
        largest[key] = max(largest[key], off)
        if key == "rho" and off > PARTED:
            yield f"rho is off by {off:.2g}"
    yield from _unequal(seen, arrays, INTEGERS, row)


def _simulation_parted(replay: Replayed, arrays: Arrays, k: int, largest: dict[str, float]) -> Iterator[str]:
    found, failed, outcome = replay.simulate(action_at(arrays, k, "sim."), int(arrays["sim.horizon"][k]))
    flags: dict[str, Any] = {"failed": failed, "illegal": outcome.illegal, "ambiguous": outcome.ambiguous}
    wrong = [key for key, value in flags.items() if value != arrays[f"sim.{key}"][k]]
    if wrong:
        yield f"{', '.join(wrong)} (horizon {arrays['sim.horizon'][k]}, {outcome.reason or 'no failure'})"
    elif found is not None:
        off = _differences(found, arrays, ("rho",), k, "sim.")
        largest["simulated_rho"] = max(largest["simulated_rho"], off)
        if off > PARTED:
            yield f"rho is off by {off:.2g}"
        yield from _unequal(found, arrays, ("line_status", "topo_vect"), k, "sim.")


def table_row(world: str, mode: str, found: Comparison) -> tuple[str, ...]:
    """Texts of COLUMNS."""
    size = {key: f"{value:.1e}" if value else "0" for key, value in found.largest.items()}
    few = "; ".join(found.exceptions[:5]) + (f"; and {len(found.exceptions) - 5} more" * (len(found.exceptions) > 5))
    return (
        *(world, mode, str(found.episodes), str(found.steps)),
        *(str(found.equal_ends), str(found.parted_rows), size["rho"], size["pq"], size["v"], size["dispatch"]),
        *(size["rewards"], str(found.simulations), str(found.equal_simulations), size["simulated_rho"], few or "-"),
    )


def _compare_all(paths: Sequence[Path], worlds: Path | None, out: Path | None, dtype: str) -> int:
    lines, every = ["\t".join(COLUMNS)], list[Comparison]()
    print(lines[0])
    for path in paths:
        arrays = read_recording(path)
        with jax.enable_x64(dtype == "float64"):
            every.append(compare(arrays, PackageReplay(folder_of(str(arrays["world"]), worlds), arrays, dtype)))
        lines.append("\t".join(table_row(str(arrays["world"]), str(arrays["mode"]), every[-1])))
        print(lines[-1], flush=True)
    if len(every) > 1:
        lines.append("\t".join(table_row("all", "-", _together(every))))
        print(lines[-1])
    if out is not None:
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(any(found.exceptions for found in every))


def _together(every: Sequence[Comparison]) -> Comparison:
    columns = dict(zip(Comparison._fields, zip(*every, strict=True), strict=True))
    largest = {key: max(one.largest[key] for one in every) for key in columns.pop("largest")[0]}
    parted = sum(map(len, columns.pop("exceptions")))
    exceptions = [f"{parted} above"] if parted else []
    return Comparison(largest=largest, exceptions=exceptions, **{key: sum(counts) for key, counts in columns.items()})


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status of the command: 0, or 1 where a comparison parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("record", help="play a world with Grid2Op and keep what happens")
    ask.add_argument("world", help="folder, or name among the worlds of the wheel")
    ask.add_argument("out", type=Path)
    ask.add_argument("--mode", choices=MODES, default="nothing")
    for option, kind, default in (("episodes", int, 3), ("steps", int, 300), ("seed", int, 0), ("simulations", int, 0)):
        ask.add_argument(f"--{option}", type=kind, default=default, metavar="N")
    ask.add_argument("--chance", type=float, default=0.1, metavar="P", help="of an action in a step")
    ask.add_argument("--playable", action="store_true", help="all actions, whatever the world's own class")
    check = commands.add_parser("compare", help="replay recordings and print a table")
    check.add_argument("recordings", type=Path, nargs="+")
    check.add_argument("--worlds", type=Path, help="folder of the worlds' folders, else those of the wheel of grid2op")
    check.add_argument("--float32", action="store_true", help="flows in float32")
    check.add_argument("--out", type=Path, help="file of the table")
    args = parser.parse_args(argv)
    if args.command == "compare":
        return _compare_all(args.recordings, args.worlds, args.out, "float32" if args.float32 else "float64")
    options = {key: getattr(args, key) for key in ("mode", "episodes", "steps", "seed", "chance", "simulations")}
    arrays = record(folder_of(args.world), playable=args.playable, **options)
    write_npz(args.out, arrays)
    about = zip(*(arrays[key] for key in ("episode", "rows", "end")), strict=True)
    ends = ", ".join(f"{name} {rows - 1} {end}" for name, rows, end in about)
    print(f"{args.out}: {arrays['world']} {args.mode}: {ends}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
