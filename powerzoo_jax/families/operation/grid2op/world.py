"""A world of Grid2Op: its grid, rules, fleet and settings, and the series of its episodes."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, DataError, DataMissing, excerpt, unknown
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.base.textfile import MAX_SETTINGS_MB, MAX_TABLE_MB, decimal, read_text
from powerzoo_jax.cases.case import Case
from powerzoo_jax.cases.validate import assert_valid
from powerzoo_jax.families.operation.actions import ElementNames, keys_of
from powerzoo_jax.families.operation.grid2op.chronics import MOST, Files
from powerzoo_jax.families.operation.grid2op.config import Called, Named, read_config, read_parameters
from powerzoo_jax.families.operation.grid2op.grid import Elements, read_elements
from powerzoo_jax.families.operation.names import TERMS
from powerzoo_jax.families.operation.types import Fleet

REFUSED = {
    "blank": "it has no series",
    "l2rpn_2019": "its files are of a format of their own, which Grid2Op itself does not read any more",
}
RENEWABLE = ("wind", "solar")
DRAWN, DROPPED, FORECASTS = "WithMaintenance", "WithoutMaintenance", "Forecasts"
SERIES_CLASSES = tuple(f"GridStateFromFile{x}" for x in ("", *(f"With{FORECASTS}{y}" for y in ("", DRAWN, DROPPED))))
# reward of Grid2Op -> term of `operation.names`
REWARDS = dict(zip(("RedispReward", "L2RPNReward", "LinesCapacityReward", "EpisodeDurationReward"), TERMS, strict=True))
READ = {
    *("action_class", "reward_class", "gamerules_class", "grid_value_class", "data_feeding_kwargs", "thermal_limits"),
    *("names_chronics_to_grid", "kwargs_opponent", "opponent_class", "opponent_budget_class", "opponent_init_budget"),
    *("opponent_attack_cooldown", "opponent_attack_duration", "opponent_budget_per_ts", "opponent_action_class"),
}
L2RPN = "L2RPNReward"
ALARMS = ("has_attention_budget", "attention_budget_class", "kwargs_attention_budget", "other_rewards")
IDLE_TIMES = {"None", "", "0", "0.0"}
PASSED = ("backend", "observation_class", "chronics_class")  # of what plays the world, not of the world
CREDITS = ("LICEN", "COPYRIGHT", "COPYING", "AUTHOR", "SPDX", "CITATION")
RULES = ("DefaultRules", "AlwaysLegal", "RulesByArea")


@dataclass(frozen=True, eq=False)
class World:
    """A world on the host.

    elements:   of its grid         foreseen: those of the grid of forecasts, None where that is the same
    limit_a:    (L,) [A] float32    fleet: `Fleet` of NumPy arrays
    parameters: by Grid2Op's names  area: (A, S) bool     unchecked: every action is legal
    config:     content of config.py
    episodes:   names               horizons: rows of forecasts for each row
    series:     class of the series, which says what is drawn
    keys:       of actions that its class of actions takes
    renamed:    names_chronics_to_grid of config.py
    notes:      what the world has and is played without; licence and authors as the folder names them
    """

    name: str
    files: Files
    elements: Elements
    foreseen: Elements | None
    limit_a: np.ndarray
    fleet: Fleet
    parameters: dict[str, Any]
    area: np.ndarray
    unchecked: bool
    config: dict[str, Any]
    episodes: tuple[str, ...]
    horizons: int
    series: str
    keys: tuple[str, ...]
    renamed: dict[str, dict[str, str]]
    notes: tuple[str, ...]

    @property
    def case(self) -> Case:
        """Network of the world."""
        return self.elements.case

    @property
    def names(self) -> ElementNames:
        """Names of the elements and their substations."""
        return self.elements.names

    @property
    def reward(self) -> str:
        """Reward term of the world: that of L2RPNReward where its own is not offered."""
        named = self.config.get("reward_class")
        return REWARDS.get(named.name if isinstance(named, Named) else "", REWARDS[L2RPN])

    @property
    def draws(self) -> bool:
        """Whether maintenance is drawn at reset."""
        return self.series.endswith(DRAWN)


def read_world(folder: str | Path, difficulty: str | int | None = None) -> World:
    """World of an environment folder.

    difficulty:  key of difficulty_levels.json; None takes `competition`, else the largest number
    Raises DataMissing for a folder or file that is not there, CaseError and DataError for what cannot be played, each
    naming it.
    """
    root = Path(folder)
    files, name = Files(root, root), root.resolve().name
    _refuse_folder(root, name)
    elements = read_elements(files.require("grid.json"), name)
    config = read_config(files.require("config.py"))
    other = files.find("grid_forecast.json")
    foreseen = None if other is None else read_elements(other, f"{name} (forecast)")
    if foreseen is not None and not _same(foreseen.names, elements.names):
        raise CaseError(f"{other} has other elements than grid.json. Give it the same rows in the same order.")
    levels, own = (files.find(f"{x}.json") for x in ("difficulty_levels", "parameters"))
    rule = config.get("gamerules_class") or Named(RULES[0])
    named = rule.name if isinstance(rule, Named | Called) else str(rule)
    if named not in RULES:
        raise DataError(f"{root / 'config.py'}: {unknown('gamerules_class', named, RULES)}")
    feeding = _mapping(config, "data_feeding_kwargs", root)
    series = feeding.get("gridvalueClass") or config.get("grid_value_class")
    series_name = series.name if isinstance(series, Named) else str(series)
    if series_name not in SERIES_CLASSES:
        raise DataError(f"{root / 'config.py'}: {unknown('grid_value_class', series_name, SERIES_CLASSES)}")
    ahead = feeding.get("h_forecast", [5])
    if not isinstance(ahead, list) or not all(type(minutes) in (int, float) for minutes in ahead):
        raise DataError(f"{root / 'config.py'}: h_forecast = {excerpt(repr(ahead))} is no list of minutes. Write one.")
    renamed = _mapping(config, "names_chronics_to_grid", root)
    limit = _limits(config.get("thermal_limits"), elements, root)
    fleet = _fleet(files, elements)
    case = _with_fleet(elements.case, fleet, limit)
    assert_valid(case)
    return World(
        name=name,
        files=files,
        elements=replace(elements, case=case),
        foreseen=foreseen,
        limit_a=limit,
        fleet=fleet,
        parameters=read_parameters(root, levels, own, difficulty),
        area=_areas(rule, elements.case.n_bus, root),
        unchecked=named == "AlwaysLegal",
        config=config,
        episodes=_episodes(files),
        horizons=len(ahead) if FORECASTS in series_name else 0,
        series=series_name,
        keys=_keys(config, files),
        renamed={key: _mapping(renamed, key, root) for key in renamed},
        notes=(*_notes(config, files, elements), *credited(files)),
    )


def _keys(config: dict[str, Any], files: Files) -> tuple[str, ...]:
    named = config.get("action_class") or Named("TopologyAction")
    try:
        return keys_of(named.name if isinstance(named, Named) else str(named))
    except ValueError as err:
        raise DataError(f"{files.folder / 'config.py'}: {err}") from err


def _mapping(values: dict[str, Any], key: str, root: Path) -> dict[str, Any]:
    found = values.get(key) or {}
    if not isinstance(found, dict):
        raise DataError(f"{root / 'config.py'}: {key} = {excerpt(repr(found))} is no dict. Write one, or None.")
    return found


def _notes(config: dict[str, Any], files: Files, elements: Elements) -> list[str]:
    """Parts of a world that it is played without, one by one."""
    found = [f"config.py: {key} is not read" for key, x in config.items() if key not in (*READ, *PASSED, *ALARMS) and x]
    reward = config.get("reward_class")
    if isinstance(reward, Named) and reward.name not in REWARDS:
        found.append(f"{reward.name} is not offered: the reward is {L2RPN}")
    if any(config.get(key) for key in ALARMS) or files.find("alerts_info.json") is not None:
        found.append("alarms, alerts and attention of the operator are not played")
    if set(_Characteristics(files, "prods_charac.csv", elements.names.unit).text("min_up_time")) - IDLE_TIMES:
        found.append("minimum times up and down of units are not kept, as Grid2Op does not by default")
    return found


def credited(files: Files) -> list[str]:
    """Lines of a folder about its licence and authors: of files named after them, and comments of its Python files."""
    found = []
    for path in sorted(files.folder.iterdir()):
        says = path.name.upper().startswith(CREDITS)
        if not (says or path.suffix == ".py") or not path.is_file():
            continue
        with contextlib.suppress(DataError):  # a picture, or a link out of the folder, names nobody
            files.find(path.name)
            lines = read_text(path, DataError, legacy="cp1252", max_mb=MAX_SETTINGS_MB).splitlines()
            if says:
                lines = [line for line in lines if line.strip()][:1]
            else:
                lines = [line for line in lines if line.startswith("#") and any(x in line.upper() for x in CREDITS)]
            found += [f"{path.name}: {excerpt(line.strip('# '))}" for line in lines]
    return found or ["the folder names neither a licence nor authors"]


def _same(one: ElementNames, other: ElementNames) -> bool:
    return one[:-1] == other[:-1] and np.array_equal(one.sub, other.sub)


def _refuse_folder(root: Path, name: str) -> None:
    if not root.is_dir():
        raise DataMissing(
            f"There is no folder {excerpt(repr(str(root)))}. Give the folder of an environment of Grid2Op."
        )
    if name in REFUSED:
        raise DataError(f"The environment {name} cannot be played: {REFUSED[name]}. Take another one.")
    if not (root / "grid.json").exists():
        worlds = sorted(path.parent.name for path in root.glob("*/grid.json"))
        if worlds:
            raise DataError(f"{root} holds several environments: {', '.join(worlds)}. Give the folder of one of them.")


def _episodes(files: Files) -> tuple[str, ...]:
    folder = files.require("chronics")
    if not folder.is_dir():
        raise DataMissing(f"{folder} is no folder. It holds a folder for each episode.")
    found = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not found:
        raise DataMissing(f"{folder} holds no folder of an episode.")
    return tuple(found)


def _limits(given: Any, elements: Elements, root: Path) -> np.ndarray:
    """Limits (L,) [A] float32 of config.py, in the order of the lines or by their names, else those of the grid."""
    lines = elements.names.line
    if given is None:
        limit = elements.limit_a
    elif isinstance(given, dict) and set(lines) <= given.keys():
        limit = _floats([given[name] for name in lines])
    else:
        limit = _floats(given) if isinstance(given, list) else np.zeros(0, FLOAT)
    if limit.shape != (len(lines),) or not (limit > 0).all():
        raise DataError(
            f"{root / 'config.py'}: thermal_limits must give each of the {len(lines)} lines a current in A."
        )
    return limit


def _floats(values: Iterable[Any]) -> np.ndarray:
    """Numbers as float32, NaN for what is none."""
    return np.array([x if isinstance(x, int | float) and abs(x) < MOST else np.nan for x in values], FLOAT)


def _areas(rule: Any, n_sub: int, root: Path) -> np.ndarray:
    """Substations of each area, (A, S) bool: one of all where the rules name none."""
    if rule.name != "RulesByArea":
        return np.ones((1, n_sub), bool)
    lists = rule.arguments[0] if isinstance(rule, Called) and rule.arguments else None
    areas = lists if isinstance(lists, list) and all(isinstance(area, list) for area in lists) else []
    members = [k for area in areas for k in area]
    if any(type(k) is not int for k in members) or sorted(members) != list(range(n_sub)):
        raise DataError(f"{root / 'config.py'}: RulesByArea must name each of the substations 0 to {n_sub - 1} once.")
    return np.array([np.isin(np.arange(n_sub), area) for area in areas])


class _Characteristics:
    """A table of characteristics by the names of elements; false where there is none, or not of all elements."""

    def __init__(self, files: Files, name: str, elements: Sequence[str]) -> None:
        self.path, rows = files.find(name), {}
        if self.path is not None:
            text = read_text(self.path, DataError, max_mb=MAX_TABLE_MB)
            try:
                rows = {row.get("name"): row for row in csv.DictReader(io.StringIO(text))}
            except csv.Error as err:
                raise DataError(f"{self.path} is no table of comma-separated values ({excerpt(err)}).") from err
        self.known, self.rows = rows.keys() >= set(elements), [rows.get(element, {}) for element in elements]

    def text(self, key: str) -> list[str]:
        """A column as it is written."""
        return [str(row.get(key)) for row in self.rows]

    def numbers(self, key: str, absent: float | None = None, empty: float | None = None) -> np.ndarray:
        """A column as float32: `absent` without it, `empty` where a field is; 0 in a table that is not known."""
        found = np.zeros(len(self.rows), FLOAT)
        for k, row in enumerate(self.rows if self.known else ()):
            text = row.get(key)
            value = absent if text is None else empty
            if isinstance(text, str) and text.strip():
                try:
                    value = decimal(text)
                except ValueError:
                    value = None
            if value is None or not abs(value) < MOST:
                raise DataError(f"{self.path}: {key} of {row.get('name')} is {excerpt(repr(text))}. Give a number.")
            found[k] = value
        return found


def _fleet(files: Files, elements: Elements) -> Fleet:
    units = _Characteristics(files, "prods_charac.csv", elements.names.unit)
    storages = _Characteristics(files, "storage_units_charac.csv", elements.names.storage)
    if not storages.known:
        raise DataMissing(f"{files.folder} has no storage_units_charac.csv that names every storage of grid.json.")
    renewable = np.isin(units.text("type"), RENEWABLE)
    known: dict[str, Any] = {
        "p_max_mw": units.numbers("Pmax"),
        "p_min_mw": units.numbers("Pmin"),
        "ramp_up_mw": units.numbers("max_ramp_up", empty=0.0),
        "ramp_down_mw": units.numbers("max_ramp_down", empty=0.0),
        "cost": units.numbers("marginal_cost"),
        "redispatchable": ~renewable & units.known,
        "renewable": renewable & units.known,
        "known": np.asarray(units.known),
        "e_max_mwh": storages.numbers("Emax"),
        "e_min_mwh": storages.numbers("Emin"),
        "produced_mw": storages.numbers("max_p_prod"),
        "absorbed_mw": storages.numbers("max_p_absorb"),
        "loss_mw": storages.numbers("power_loss", absent=0.0),
        "charging": storages.numbers("charging_efficiency", absent=1.0),
        "discharging": storages.numbers("discharging_efficiency", absent=1.0),
    }
    return Fleet(**known)


def _with_fleet(case: Case, fleet: Fleet, limit_a: np.ndarray) -> Case:
    """The case with ratings [MVA] of its limits, and with ranges and costs of its units where they are known."""
    kv = case.bus.base_kv[case.positions(case.branch.from_id)]
    branch = replace(case.branch, rate_a_mva=np.sqrt(3) * kv * limit_a / 1000)
    if not fleet.known:
        return replace(case, branch=branch)
    unit = replace(
        case.unit,
        p_max_mw=np.maximum(fleet.p_max_mw, case.unit.p_mw),
        p_min_mw=np.minimum(fleet.p_min_mw, case.unit.p_mw),
        cost_model=np.full(case.n_unit, 2),
        cost_terms=np.full(case.n_unit, 2),
        cost=np.stack([fleet.cost, np.zeros(case.n_unit)], 1),
    )
    return replace(case, branch=branch, unit=unit)
