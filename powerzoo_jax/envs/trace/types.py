"""Trace of an episode: tables by step and id, the networks they belong to, and their file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError, excerpt, missing_extra, unknown
from powerzoo_jax.base.files.forms import OPTIONAL, require_form
from powerzoo_jax.base.npz import read_npz, require_array, write_npz
from powerzoo_jax.base.struct import brief
from powerzoo_jax.base.textfile import parse_json
from powerzoo_jax.envs.family import family_name


@dataclass(frozen=True, eq=False)
class TraceTable:
    """Values of one quantity by step and id.

    values:  (T, n)  in the unit of the column
    ids:     (n,)    bus, branch, agent, channel, ...
    units:   (n,)    unit of each column, "-" without one
    """

    values: np.ndarray
    ids: tuple[str, ...]
    units: tuple[str, ...]

    __repr__ = brief

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.ids:
            raise KeyError(unknown("column", name, self.ids))
        column: np.ndarray = self.values[:, self.ids.index(name)]
        return column


@dataclass(frozen=True, eq=False)
class TracedNetwork:
    """Network of a trace; the positions of buses are the columns of its tables.

    bus_ids:           (N,)         of the case, or 1 to N where the case cannot be read
    from_bus, to_bus:  (L,)  int    positions
    in_service:        (L,)  bool
    v_min_pu, v_max_pu: (N,) [pu]   voltage band
    rate_mva:          (L,)  [MVA]  0 = unlimited
    root:              ()    int    position of the reference bus
    device_ids, device_bus: (G,)    what the policy or the market commands, and the position of its bus
    """

    bus_ids: tuple[str, ...]
    from_bus: np.ndarray
    to_bus: np.ndarray
    in_service: np.ndarray
    v_min_pu: np.ndarray
    v_max_pu: np.ndarray
    rate_mva: np.ndarray
    root: int
    device_ids: tuple[str, ...]
    device_bus: np.ndarray

    __repr__ = brief


ORDER = "traces"  # array of a file that lists its traces
BUS_TABLES = ("bus_voltage_pu", "bus_price_per_mwh", "bus_injection_mw", "bus_second_voltage_pu")
BRANCH_TABLES = ("branch_flow_mw", "branch_loading_percent", "branch_from_busbar", "branch_to_busbar")
FORM = {
    **dict.fromkeys(("task", "family", "split", "policy"), str),
    **{"version": int, "episode": int, "dt_hours": float, "agents": [str], "budgets": [float], "money": bool},
    **{"day?": str, "soc_min?": [float], "soc_max?": [float]},
    "networks": {str: {"bus_ids": [str], "root": int, "device_ids": [str]}},
}  # of the description of a trace
LISTS = ("agents", "budgets", "soc_min", "soc_max")
NETWORK_ARRAYS = ("from_bus", "to_bus", "in_service", "v_min_pu", "v_max_pu", "rate_mva", "device_bus")


@dataclass(frozen=True, eq=False)
class Trace:
    """One episode of a policy, step by step.

    tables:    by name, see `TraceTable`: action, reward, reward_term, cost and info of every task; of networks
               bus_voltage_pu, bus_price_per_mwh, bus_injection_mw (on a feeder loads and devices, what the substation
               gives is p_slack_mw of info), branch_flow_mw (entering at the from end), branch_loading_percent (NaN
               without a rating), and where buses are split branch_from_busbar, branch_to_busbar (1 or 2, 0 = open) and
               bus_second_voltage_pu (of busbar 2, NaN where nothing stands there); unit_power_mw, device_power_mw, soc
               (after the step), price_per_mwh
    networks:  by name; "" where the task has one, whose tables have no prefix, else tables are "name.table"
    budgets:   (C,) of the cost channels of an episode, inf = reported only
    money:     the reward of a step is in dollars
    day:       ISO date of the first step, which begins at midnight of the local standard clock of the data; "" = none
    soc_min, soc_max: (S,) [-] feasible range of what stores energy; () = not known

    Example:
        from powerzoo_jax.base.tree import take
        from powerzoo_jax.envs import trace_episode
        from powerzoo_jax.oracle import idle_act
        from powerzoo_jax.tasks.score import all_starts
        trace = trace_episode(sim, idle_act(sim), key, take(all_starts(sim), 0), policy="idle")
        lowest = trace["bus_voltage_pu"].values.min(axis=1)
    """

    task: str
    version: int
    family: str
    split: str
    policy: str
    episode: int
    dt_hours: float
    agents: tuple[str, ...]
    budgets: tuple[float, ...]
    money: bool
    tables: Mapping[str, TraceTable]
    networks: Mapping[str, TracedNetwork]
    day: str = ""
    soc_min: tuple[float, ...] = ()
    soc_max: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.tables["reward"].values)

    def __getitem__(self, name: str) -> TraceTable:
        if name not in self.tables:
            raise KeyError(unknown("table", name, self.tables))
        return self.tables[name]

    @property
    def time_h(self) -> np.ndarray:
        """Beginning of every step since that of the episode, (T,) [h]."""
        return self.dt_hours * np.arange(len(self))

    def to_frame(self, table: str | None = None) -> Any:
        """Data frame of one table, a row a step, with a column for the time and for each id; or of all, a row a value.

        Raises KeyError for an unknown table, ImportError, naming the extra, without pandas.
        """
        try:
            import pandas
        except ImportError as err:
            raise ImportError(missing_extra("A data frame", "pandas", "frames")) from err
        if table is not None:
            one = self[table]
            return pandas.DataFrame({"time_h": self.time_h, **dict(zip(one.ids, one.values.T, strict=True))})
        tables, count = self.tables.values(), len(self)
        width = [len(one.ids) for one in tables]
        step = np.concatenate([np.repeat(np.arange(count), n) for n in width])
        columns = {
            "step": step,
            "time_h": self.time_h[step],
            "table": np.repeat(np.array(list(self.tables), object), [count * n for n in width]),
            "id": np.concatenate([np.tile(np.array(one.ids, object), count) for one in tables]),
            "unit": np.concatenate([np.tile(np.array(one.units, object), count) for one in tables]),
            "value": np.concatenate([one.values.ravel() for one in tables]),
        }
        return pandas.DataFrame(columns)


def save_traces(path: str | Path, traces: Mapping[str, Trace]) -> Path:
    """Write traces as one compressed npz file, and return its path.

    "traces" lists their names. Arrays of a trace called NAME: "NAME/table/TABLE" (T, n), beside it the texts ".ids" and
    ".units"; networks at "NAME/network/...", and the rest as JSON text at "NAME/about".
    """
    arrays = {ORDER: np.array(list(traces))}
    for name, trace in traces.items():
        for table, one in trace.tables.items():
            at = f"{name}/table/{table}"
            arrays |= {at: one.values, f"{at}.ids": np.array(one.ids)}
            arrays[f"{at}.units"] = np.array(one.units)
        for label, network in trace.networks.items():
            arrays |= {f"{name}/network/{label}/{part}": getattr(network, part) for part in NETWORK_ARRAYS}
        plain = {f.name: getattr(trace, f.name) for f in dataclasses.fields(trace)}
        del plain["tables"], plain["networks"]
        labels = {
            label: {"bus_ids": network.bus_ids, "root": network.root, "device_ids": network.device_ids}
            for label, network in trace.networks.items()
        }
        arrays[f"{name}/about"] = np.array(json.dumps({**plain, "networks": labels}))
    target = Path(path)
    write_npz(target, arrays)
    return target


def load_traces(path: str | Path) -> dict[str, Trace]:
    """Read the traces of a file that `save_traces` wrote, by name.

    Raises DataError for a file that holds none.
    """
    arrays = read_npz(path)
    if ORDER not in arrays:
        raise DataError(f"{path} holds no trace. Write one: powerzoo-jax evaluate TASK --trace {path}")
    try:
        names = _texts(arrays, ORDER)
        if not names:
            raise ValueError("it lists none")
        return {name: _read_trace(name, arrays) for name in names}
    except ValueError as err:
        reason = excerpt(str(err).rstrip("."))
        raise DataError(f"{path} does not hold whole traces: {reason}. Write it again with save_traces.") from err


def _read_trace(name: str, arrays: Mapping[str, np.ndarray]) -> Trace:
    """A trace out of arrays that anybody may have written. Raises ValueError for what `save_traces` never writes."""
    text = require_array(arrays, f"{name}/about", "U", ())
    about = parse_json(str(text), "its description", DataError, "")
    require_form(about, FORM, "its description", DataError, "")
    about = {key: about[key] for key in (name.removesuffix(OPTIONAL) for name in FORM) if key in about}
    if not (0 < about["dt_hours"] < np.inf and about["episode"] >= 0):
        raise ValueError(f"steps of {about['dt_hours']} h, episode {about['episode']}")
    networks = {
        label: _read_network(f"{name}/network/{label}", told, arrays) for label, told in about["networks"].items()
    }
    start = f"{name}/table/"
    tables = {
        key.removeprefix(start): TraceTable(
            require_array(arrays, key, "fiu", (None, None)),
            _texts(arrays, f"{key}.ids"),
            _texts(arrays, f"{key}.units"),
        )
        for key in arrays
        if key.startswith(start) and not key.endswith((".ids", ".units"))
    }
    about |= {part: tuple(about[part]) for part in LISTS if part in about} | {"family": family_name(about["family"])}
    trace = Trace(**{**about, "tables": tables, "networks": networks})
    _require_whole(trace)
    return trace


def _texts(arrays: Mapping[str, np.ndarray], key: str) -> tuple[str, ...]:
    return tuple(require_array(arrays, key, "U", (None,)).tolist())


def _read_network(at: str, told: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TracedNetwork:
    bus_ids, device_ids = tuple(told["bus_ids"]), tuple(told["device_ids"])
    ends = {part: require_array(arrays, f"{at}/{part}", "iu", (None,)) for part in ("from_bus", "to_bus")}
    n_bus, n_branch = len(bus_ids), len(ends["from_bus"])
    lengths = {"from_bus": n_branch, "to_bus": n_branch, "in_service": n_branch, "rate_mva": n_branch}
    lengths |= {"v_min_pu": n_bus, "v_max_pu": n_bus, "device_bus": len(device_ids)}
    kinds = {"in_service": "b", "from_bus": "iu", "to_bus": "iu", "device_bus": "iu"}
    parts = {
        part: require_array(arrays, f"{at}/{part}", kinds.get(part, "fiu"), (lengths[part],)) for part in NETWORK_ARRAYS
    }
    for part in ("from_bus", "to_bus", "device_bus"):
        if parts[part].size and not (parts[part].min() >= 0 and parts[part].max() < n_bus):
            raise ValueError(f"{at}/{part} names a bus beyond the {n_bus} that there are")
    if not 0 <= told["root"] < n_bus:
        raise ValueError(f"{at}: root {told['root']} is none of {n_bus} buses")
    for part in ("v_min_pu", "v_max_pu", "rate_mva"):
        if not np.isfinite(parts[part]).all():
            raise ValueError(f"{at}/{part} holds what is no number")
    return TracedNetwork(bus_ids=bus_ids, device_ids=device_ids, root=told["root"], **parts)


def _require_whole(trace: Trace) -> None:
    """Tables that belong together: of one length, as wide as their ids and as the network that they are of."""
    lacking = [name for name in ("action", "reward") if name not in trace.tables]
    if lacking:
        raise ValueError(f"table {lacking[0]!r} is missing")
    widths = {"cost": len(trace.budgets)}
    for label, network in trace.networks.items():
        prefix = f"{label}." if label else ""
        widths |= {f"{prefix}{name}": len(network.bus_ids) for name in BUS_TABLES}
        widths |= {f"{prefix}{name}": len(network.from_bus) for name in BRANCH_TABLES}
        needed = (BUS_TABLES, BRANCH_TABLES[:1] if len(network.from_bus) else BUS_TABLES)
        if not all(any(f"{prefix}{name}" in trace.tables for name in names) for names in needed):
            raise ValueError(f"network {label!r} has no table of its buses, or of its branches")
    steps = len(trace)
    for name, table in trace.tables.items():
        count, width = table.values.shape
        if (
            count != steps
            or not count
            or not width
            or not width == len(table.ids) == len(table.units) == widths.get(name, width)
        ):
            raise ValueError(f"table {name!r} of shape {table.values.shape} does not fit the others, or its ids")
    if trace.day:
        date.fromisoformat(trace.day)
    stored = len(trace.tables["soc"].ids) if "soc" in trace.tables else 0
    for bounds in (trace.soc_min, trace.soc_max):
        if len(bounds) not in (0, stored) or not np.isfinite(bounds).all():
            raise ValueError(f"bounds {bounds} are not of the {stored} states of charge")
    if len(trace.budgets) != len(trace.tables["cost"].ids if "cost" in trace.tables else ()):
        raise ValueError(f"{len(trace.budgets)} budgets are not of the cost channels")
