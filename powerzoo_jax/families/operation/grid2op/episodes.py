"""Episodes of a world: which are played, and their series one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError, excerpt, listing, unknown
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.base.textfile import MAX_SETTINGS_MB, read_json
from powerzoo_jax.families.operation.grid2op.chronics import Chronics, Files, filled, load_chronics
from powerzoo_jax.families.operation.grid2op.maintenance import draw_maintenance, windows
from powerzoo_jax.families.operation.grid2op.world import DROPPED, World
from powerzoo_jax.families.operation.types import EpisodeRows, Forecast

SPLITS = {"train": range(8), "val": (8,), "test": (9,)}  # of ten episodes
AGREED_PU = 1e-6  # of set-points of the units of a substation
AHEAD = {"prod_p": "p_unit", "load_p": "p_load", "load_q": "q_load"}
ABSENT = {"out": False, "to_next": -1, "left": 0, "hazard_left": 0}  # where an episode has no such series


def choose_episodes(world: World, episodes: Any) -> tuple[str, ...]:
    """Names of episodes: None takes all, "train", "val" and "test" eight, one and one of ten, or names and slices."""
    known = world.episodes
    if episodes is None:
        return known
    if isinstance(episodes, slice):
        found = known[episodes]
    elif isinstance(episodes, str) and episodes in SPLITS:
        found = tuple(name for k, name in enumerate(known) if k % 10 in SPLITS[episodes])
    else:
        asked = list(episodes) if isinstance(episodes, Iterable) and not isinstance(episodes, str) else [episodes]
        positions = dict(zip(known, range(len(known)), strict=True)) | {k: k for k in range(-len(known), len(known))}
        for item in asked:
            if not isinstance(item, str | int | np.integer) or item not in positions:
                raise DataError(f"{world.name}: {unknown('episode', item, (*SPLITS, *known))}")
        found = tuple(known[positions[item]] for item in asked)
    if not found:
        raise DataError(f"{world.name} has {len(known)} episodes, none of them in {episodes!r}. Name those.")
    return found


def read_episodes(world: World, names: Sequence[str], seeds: Sequence[int] = (0,)) -> tuple[EpisodeRows, np.ndarray]:
    """Series of episodes one after another, as NumPy arrays, and the number of rows of each copy (Q,).

    seeds:  of Grid2Op's `env.reset(seed=...)`; a world that draws its maintenance has a copy of each episode for each
    """
    parts = []
    for name in names:
        files = Files(world.files.root, world.files.folder / "chronics" / name)
        found = load_chronics(files, world.names, world.renamed, world.horizons)
        common = _series(world, files, found)
        for seed in seeds if world.draws else (None,):
            parts.append(common | _outages(world, files, found, seed))
    return _joined(parts, world.horizons), np.array([len(part["p_unit"]) for part in parts])


def _series(world: World, files: Files, found: Chronics) -> dict[str, Any]:
    """Rows and forecasts of an episode by the names of `EpisodeRows`, all known; forecasts as "ahead.p_unit"."""
    if (placed := files.find("init_state.json")) is not None:
        raise DataError(
            f"{placed} asks for another topology at the start than all on busbar 1. Remove it to play without."
        )
    case, rows = world.case, found.rows
    loads = slice(len(world.names.load))
    if "prod_p" not in rows or not np.isfinite(rows["prod_p"]).all():
        what = "has empty values" if "prod_p" in rows else "is missing"
        raise DataError(f"{files.folder}: prod_p {what}, and units would do what the last flow says. Give every value.")
    first = {"load_p": case.load.p_mw[loads], "load_q": case.load.q_mvar[loads], "prod_p": case.unit.p_mw}
    part: dict[str, Any] = {}
    for key, name in AHEAD.items():
        start = first[key].astype(FLOAT)
        part[name] = filled(rows[key], start) if key in rows else np.tile(start, (found.n, 1))
        if key in found.forecast:
            ahead = found.forecast[key]
            if key != "prod_p":  # what has no forecast is to stay as it is
                ahead = np.where(np.isfinite(ahead), ahead, np.repeat(part[name], world.horizons, axis=0))
            if not np.isfinite(ahead).all():
                raise DataError(f"{files.folder / key}_forecasted.csv has empty values. Give every value, or no file.")
            part[f"ahead.{name}"] = ahead
    part["v_set"] = _set_points(world, rows.get("prod_v"), files)
    if "prod_v" in found.forecast:
        part["ahead.v_set"] = _set_points(world, found.forecast["prod_v"], files)
    minutes = found.start.hour * 60 + found.start.minute + found.step_s / 60 * np.arange(1, found.n + 1)
    turn = 2 * np.pi * (minutes % 1440) / 1440
    part["clock"] = np.stack([np.sin(turn), np.cos(turn)], 1)
    return part


def _set_points(world: World, kv: np.ndarray | None, files: Files) -> np.ndarray:
    """Magnitudes (T, S) [pu] that the units of a substation hold, (1, S) where they stay; from kV by float32."""
    case, at = world.case, world.elements.unit_bus
    pu = case.unit.v_set_pu[None]
    if kv is not None:
        pu = filled((kv / case.bus.base_kv[at].astype(FLOAT)).astype(float), pu[0])
    v = np.ones((len(pu), case.n_bus))
    v[:, at] = pu
    apart = np.flatnonzero(np.any(np.abs(v[:, at] - pu) > AGREED_PU, axis=0))
    if apart.size:
        named = listing(world.names.unit[k] for k in apart)
        raise DataError(f"{files.folder}: {named} and other units of a substation hold different voltages. Give one.")
    return v[:1] if np.all(v == v[:1]) else v


def _outages(world: World, files: Files, found: Chronics, seed: int | None) -> dict[str, Any]:
    """Maintenance and hazards of an episode by the names of `EpisodeRows`; maintenance drawn where a seed is given."""
    planned, hazards = found.rows.get("maintenance"), found.rows.get("hazards")
    if seed is not None:
        meta = files.require("maintenance_meta.json")
        content = read_json(meta, DataError, "Restore the file.", max_mb=MAX_SETTINGS_MB)
        try:
            planned = draw_maintenance(content, world.names.line, found.start, found.step_s, found.n, seed)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as err:
            raise DataError(f"{meta} cannot be drawn from ({excerpt(repr(err))}). Restore the file.") from err
    elif world.series.endswith(DROPPED):
        planned = None
    part: dict[str, Any] = {}
    out = [x for x in (planned, hazards) if x is not None]
    if out:
        part["out"] = np.any(out, axis=0)
    if planned is not None:
        part["to_next"], part["left"] = windows(planned)
    if hazards is not None:
        now, rest = windows(hazards)
        part["hazard_left"] = np.where(now == 0, rest, 0)
    return part


def _joined(parts: Sequence[dict[str, Any]], horizons: int) -> EpisodeRows:
    """Episodes one after another; what none of them has is None, and what some have not is as without it."""
    rows = [len(part["p_unit"]) for part in parts]
    joined: dict[str, Any] = {}
    for key in ("p_unit", "p_load", "q_load", "clock"):
        joined[key] = np.concatenate([part[key] for part in parts])
    joined["v_set"] = _voltages([part["v_set"] for part in parts], rows)
    for key, none in ABSENT.items():
        known = [part[key] for part in parts if key in part]
        if any(np.any(x != none) for x in known):
            like = known[0]
            filler = [np.full((n, like.shape[1]), none, like.dtype) for n in rows]
            joined[key] = np.concatenate([part.get(key, x) for part, x in zip(parts, filler, strict=True)])
    ahead: dict[str, Any] = {}
    for key in dict.fromkeys(key for part in parts for key in part if key.startswith("ahead.")):
        if not all(key in part for part in parts):
            raise DataError("Some episodes have forecasts that others have not. Play them apart, by episodes=.")
        name, values = key.removeprefix("ahead."), [part[key] for part in parts]
        ahead[name] = _voltages(values, [horizons * n for n in rows]) if name == "v_set" else np.concatenate(values)
    if "v_set" in ahead and np.array_equal(ahead["v_set"], joined["v_set"][:1]) and len(joined["v_set"]) == 1:
        del ahead["v_set"]
    known_ahead = any(key.startswith("ahead.") for part in parts for key in part)
    joined["load_left"] = np.zeros(0)  # of the steps that are played, which whoever plays them says
    return EpisodeRows(**joined, forecast=Forecast(**ahead) if known_ahead else None)


def _voltages(found: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
    """Set-points (R, S) of parts of some rows each, (1, S) where all are the same."""
    if all(len(v) == 1 and np.array_equal(v, found[0]) for v in found):
        return found[0]
    return np.concatenate([np.broadcast_to(v, (n, v.shape[1])) for v, n in zip(found, rows, strict=True)])
