"""Episode as a page: one HTML file with the network, its quantities over time and the actions, that needs no network.

The page is a template of our own (`page.html`) with the data in it; nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import DataError, listing
from powerzoo_jax.envs.family import get_family
from powerzoo_jax.envs.trace.types import Trace, TracedNetwork, TraceTable
from powerzoo_jax.oracle.baselines import ORACLE, RULE
from powerzoo_jax.plot.layout import locate_parts
from powerzoo_jax.tasks.score import gain

TEMPLATE = Path(__file__).with_name("page.html")
WIDE, MARGIN = 640.0, 30.0  # of a map, in units of its drawing
FLATTEST, TALLEST = 0.25, 0.75  # height of a map over its width
NARROWEST_PU = 0.03  # colours of voltages reach at least that far from 1 pu, or a calm grid would look wild
INNER = 0.98  # share of the injections within the scale of their colours
LABELLED = 45  # buses that still have room for their numbers
NOTHING = 65535  # a packed value that is no number
LARGE = 1e4  # returns from there on are shown in whole numbers
NEVER = 1e-4  # a scalar that stays below it is a rounding of zero
ROUNDING = 1e-6  # of float32: a channel that never exceeds it has seen no violation
NO_COSTS = TraceTable(np.zeros((1, 0)), (), ())
KEPT = (1.001, 1e-6)  # of a budget, relative and absolute, as scores have it
KINDS = {
    "bat": "battery",
    "storage": "battery",
    "ev": "vehicle",
    "fl": "flexible load",
    "flexload": "flexible load",
    "pv": "solar plant",
    "datacenter": "data centre",
    "genco": "company",
}  # device in the name of an agent -> its word
SHOWN = {
    "load_mw": "load",
    "p_load_mw": "load",
    "p_slack_mw": "from the substation",
    "p_loss_mw": "network losses",
    "p_pv_used_mw": "sun used",
    "p_batt_mw": "battery, + = discharge",
    "realized_p_mw": "battery, + = discharge",
    "p_dg_mw": "diesel",
    "power_deficit_mw": "load not served",
    "unserved_mw": "load not served",
    "surplus_mw": "surplus",
    "reserve_shortfall_mw": "reserve shortfall",
    "gen_cost_usd": "cost of generation, a step",
    "t_zone": "temperature of the room",
    "pue": "power usage effectiveness",
    "gpu_util": "GPUs in use",
    "backlog_gpu_h": "work waiting",
    "carbon_kg": "carbon, a step",
}  # scalars of info that have a chart, where they are not 0 all the time


def episode_html(traces: Trace | Sequence[Trace], *, title: str = "") -> str:
    """Page of one episode under one policy or several, as HTML text that stands for itself.

    traces:  of the same task and episode, one a policy, from `envs.trace_episode`; several are shown side by side
    title:   heading; "" takes the id of the task
    Raises ValueError without a trace, or for traces of different tasks or networks.

    Example:
        from pathlib import Path
        from powerzoo_jax.base.tree import take
        from powerzoo_jax.envs import trace_episode
        from powerzoo_jax.oracle import idle_act
        from powerzoo_jax.tasks.score import all_starts
        trace = trace_episode(sim, idle_act(sim), key, take(all_starts(sim), 0), policy="idle")
        Path("day.html").write_text(episode_html(trace), encoding="utf-8")
    """
    group = [traces] if isinstance(traces, Trace) else list(traces)
    _require_one_episode(group)
    data = _embedded(page_data(group, title))
    heading = escape(title or group[0].task.replace("_", " "))
    head, tail = TEMPLATE.read_text(encoding="utf-8").split("{{DATA}}")
    return f"{head.replace('{{TITLE}}', heading)}{data}{tail}"


def _embedded(content: Any) -> str:
    """JSON that may stand in an element of HTML: no name in it ends or opens anything there."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)  # in ASCII: other signs are escapes
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


def _require_one_episode(group: Sequence[Trace]) -> None:
    if not group:
        raise ValueError("no trace was given. Make one with envs.trace_episode.")
    first = group[0]
    for other in group[1:]:
        same = (other.task, other.version, other.episode, other.dt_hours) == (
            first.task,
            first.version,
            first.episode,
            first.dt_hours,
        )
        if not same or _labels(other) != _labels(first):
            named = listing([f"{t.task} v{t.version} episode {t.episode}" for t in (first, other)])
            raise DataError(f"one page shows one episode of one task, got {named}. Make a page for each.")


def _labels(trace: Trace) -> dict[str, Any]:
    """Ids of every table, and buses of every network, by name."""
    tables = {name: table.ids for name, table in trace.tables.items()}
    return tables | {f"network {name}": network.bus_ids for name, network in trace.networks.items()}


def page_data(group: Sequence[Trace], title: str = "") -> dict[str, Any]:
    """Content of a page, in plain numbers, lists and text."""
    first = group[0]
    steps = max(map(len, group))
    minutes = f"{60 * first.dt_hours:g} minutes"
    used = [k for k, name in enumerate(first["action"].ids) if ".unused" not in name]
    actions = [trace["action"].values[:, used] for trace in group]
    devices, words = _devices(group), _device_words(first)
    ids = [first["action"].ids[k] for k in used]
    return {
        "title": title or first.task,
        "sub": f"{first.split} split, episode {first.episode + 1}: {steps} steps of {minutes}{_since(first)}",
        "day": first.day,
        "note": f"Task {first.task}, version {first.version}. Power is positive where it enters the network.",
        "deviceWord": "bus with a unit or device",
        "steps": steps,
        "dt": first.dt_hours,
        "policies": _policies(group),
        "networks": [_network_data(name, network, group) for name, network in first.networks.items()],
        "charts": _charts(group, steps),
        "actions": {
            "ids": ids,
            "names": [_action_word(id_, words) for id_ in ids],
            "tables": [pack(np.clip(values, -1, 1), -1, 1) for values in actions],
        },
        "devices": devices,
        "deviceWords": words,
        "stores": _table_data(group, "soc"),
    }


def _since(trace: Trace) -> str:
    """Words for the first day of an episode, where the data has dates."""
    if not trace.day:
        return ""
    first = date.fromisoformat(trace.day)
    return f" from {first:%A}, {first.day} {first:%B %Y}, standard time of the data"


def _device_words(trace: Trace) -> dict[str, str]:
    """Kind and place of each device or unit, by its id: "battery at bus 18", numbered where two would agree.

    A feeder among several networks is named.
    """
    kinds: dict[str, str] = {}
    places: dict[str, str] = {}
    for name, network in trace.networks.items():
        below = f" of {name.replace('_', ' ')}" if sum(bool(n.device_ids) for n in trace.networks.values()) > 1 else ""
        for id_, bus in zip(network.device_ids, network.device_bus, strict=True):
            stem = re.sub(r"_\d+$", "", id_)
            kinds[id_] = KINDS.get(stem, stem.replace("_", " "))
            places[id_] = f" at bus {network.bus_ids[bus]}{below}"
    often = Counter(kinds[id_] + places[id_] for id_ in kinds)
    several = {id_: re.search(r"_(\d+)$", id_) for id_ in kinds if often[kinds[id_] + places[id_]] > 1}
    numbers = {id_: f" {match[1]}" for id_, match in several.items() if match}
    return {id_: kinds[id_] + numbers.get(id_, "") + places[id_] for id_ in kinds}


def _action_word(id_: str, words: Mapping[str, str]) -> str:
    """Name of a row of actions: the device, where it stands, and which of its entries it is."""
    device, _, entry = id_.partition(".")
    named = words.get(device, device.replace("_", " "))
    return f"{named}: {entry.replace('_', ' ')}" if entry else named


def pack(values: np.ndarray, lo: float | None = None, hi: float | None = None) -> dict[str, Any]:
    """A table (T, n) in any unit as 16-bit numbers between its extremes, in base64: 3 bytes a value of the page."""
    values = values if values.dtype.kind == "f" else values.astype(float)
    finite = np.isfinite(values)
    known = values[finite]
    lo = float(known.min(initial=np.inf)) if lo is None else lo
    hi = float(known.max(initial=-np.inf)) if hi is None else hi
    if not known.size:
        lo, hi = 0.0, 1.0
    share = np.where(finite, (values - lo) / (hi - lo if hi > lo else 1), 0)
    words = np.where(finite, np.round(65534 * share), NOTHING).astype("<u2")
    rows, cols = values.shape
    return {"lo": lo, "hi": hi, "rows": rows, "cols": cols, "d": base64.b64encode(words.tobytes()).decode()}


def _devices(group: Sequence[Trace]) -> dict[str, Any]:
    """Power of the units and devices by id."""
    parts = [name for name in ("unit_power_mw", "device_power_mw") if name in group[0].tables]
    ids = [id_ for name in parts for id_ in group[0][name].ids]
    tables = [np.hstack([trace[name].values for name in parts]) if parts else None for trace in group]
    return {"ids": ids, "tables": [None if values is None else pack(values) for values in tables]}


def _table_data(group: Sequence[Trace], name: str) -> dict[str, Any]:
    if name not in group[0].tables:
        return {"ids": [], "tables": [None] * len(group)}
    return {"ids": list(group[0][name].ids), "tables": [pack(trace[name].values) for trace in group]}


# ---- policies


def _policies(group: Sequence[Trace]) -> list[dict[str, Any]]:
    """Head of each policy: return, budgets, difference to the first one, and gain between rule and oracle.

    A gain is that of this episode; a policy that is over a budget in it has none.
    """
    first, *others = policies = [_policy(trace) for trace in group]
    totals = [float(_team_reward(trace).sum()) for trace in group]
    at = {trace.policy: k for k, trace in enumerate(group)}
    if {RULE, ORACLE} <= at.keys() and (rule := totals[at[RULE]]) < (best := totals[at[ORACLE]]):
        for policy, total in zip(policies, totals, strict=True):
            share = gain(total, rule, best, feasible=policy["kept"])
            policy["gain"] = "" if share is None else f"gain {_signed(share, '.2f')}"
    for policy, total in zip(others, totals[1:], strict=True):
        policy["beside"] = f"{_number(total - totals[0], '+')}{_money(group[0])} to {first['name'].replace('_', ' ')}"
    return policies


def _number(value: float, sign: str = "") -> str:
    return _signed(value, f"{sign},.0f" if abs(value) >= LARGE else f"{sign}.4g")


def _signed(value: float, form: str) -> str:
    return f"{value:{form}}".replace("-", "\N{MINUS SIGN}")


def _money(trace: Trace) -> str:
    return " $" if trace.money else ""


def _policy(trace: Trace) -> dict[str, Any]:
    total = float(_team_reward(trace).sum())
    costs = trace.tables.get("cost", NO_COSTS)
    spent = costs.values.sum(axis=0)
    budget = np.asarray(trace.budgets, float)
    chosen = np.isfinite(budget)
    over = chosen & (spent > KEPT[0] * budget + KEPT[1])
    names = [name.replace("_", " ") for name, beyond in zip(costs.ids, over, strict=True) if beyond]
    verdict = (f"over the budget of {', '.join(names)}" if names else "within its budgets") if chosen.any() else ""
    return {
        "name": trace.policy or "policy",
        "steps": len(trace),
        "total": f"{_earned(trace)} {_number(total)}{_money(trace)}",
        "beside": "",
        "gain": "",
        "verdict": verdict,
        "kept": not names,
        "notes": _notes(trace),
        "maps": [_map_data(trace, name) for name in trace.networks],
    }


def _rivals(trace: Trace) -> bool:
    return get_family(trace.family).rivals and len(trace.agents) > 1


def _earned(trace: Trace) -> str:
    return "profits" if _rivals(trace) else "return"


def _team_reward(trace: Trace) -> np.ndarray:
    """Reward of every step, (T,): the mean over the agents of a team, the sum over rivals."""
    values = trace["reward"].values
    reward: np.ndarray = values.sum(axis=1) if _rivals(trace) else values.mean(axis=1)
    return reward


def _notes(trace: Trace) -> list[str]:
    """Line above the map in every step: the lowest voltage and the largest loading."""
    parts = []
    volts = _joined(trace, "bus_voltage_pu")
    if volts is not None:
        parts.append([f"lowest {x:.3f} pu" if np.isfinite(x) else "no voltage" for x in _lowest(volts)])
    loading = _joined(trace, "branch_loading_percent")
    if loading is not None and np.isfinite(loading).any():
        parts.append([f"fullest branch {x:.0f} %" for x in np.nanmax(loading, axis=1)])
    return [", ".join(words) for words in zip(*parts, strict=True)] if parts else []


def _lowest(values: np.ndarray) -> np.ndarray:
    """Lowest number of each row of a table (T, n), NaN where it has none, (T,)."""
    low = np.where(np.isnan(values), np.inf, values).min(axis=1)
    return np.where(np.isfinite(low), low, np.nan)


def _joined(trace: Trace, table: str) -> np.ndarray | None:
    """A table of all networks side by side, (T, n); None where no network has it."""
    found = [trace[name].values for name in (f"{net}.{table}" if net else table for net in trace.networks)
             if name in trace.tables]  # fmt: skip
    return np.hstack(found) if found else None


# ---- maps


def _of(trace: Trace, network: str, table: str) -> np.ndarray | None:
    name = f"{network}.{table}" if network else table
    return trace[name].values if name in trace.tables else None


def _map_data(trace: Trace, network: str) -> dict[str, Any]:
    """Tables of one network of a policy; `bus` is the one that colours its buses."""
    keys = {
        "voltage": "bus_voltage_pu",
        "price": "bus_price_per_mwh",
        "injection": "bus_injection_mw",
        "flow": "branch_flow_mw",
        "loading": "branch_loading_percent",
        "from": "branch_from_busbar",
        "to": "branch_to_busbar",
        "second": "bus_second_voltage_pu",
    }
    found = {key: _of(trace, network, table) for key, table in keys.items()}
    rated = found["loading"] is not None and np.isfinite(found["loading"]).any()
    packed = {key: None if values is None else pack(values) for key, values in found.items()}
    packed["loading"] = packed["loading"] if rated else None
    return {**packed, "bus": packed[_quantity(trace, network)]}


def _quantity(trace: Trace, network: str) -> str:
    """Quantity that colours the buses: the voltage, else the price, else what enters at them."""
    if _of(trace, network, "bus_voltage_pu") is not None:
        return "voltage"
    return "price" if _of(trace, network, "bus_price_per_mwh") is not None else "injection"


def _network_data(name: str, network: TracedNetwork, group: Sequence[Trace]) -> dict[str, Any]:
    quantity = _quantity(group[0], name)
    table = {"voltage": "bus_voltage_pu", "price": "bus_price_per_mwh", "injection": "bus_injection_mw"}[quantity]
    values = _finite(*(_of(trace, name, table) for trace in group))
    if quantity == "voltage":
        reach = max(NARROWEST_PU, float(np.abs(values - 1).max()))
        lo, hi, label = 1 - reach, 1 + reach, "bus: voltage [pu]"
    elif quantity == "price":
        lo, hi, label = float(values.min()), float(values.max()), "bus: price of energy [$/MWh]"
    else:
        reach = float(np.quantile(np.abs(values), INNER))  # one large unit would fade all the others
        lo, hi, label = -reach, reach, "bus: power into the network [MW], load negative"
    flows = _finite(*(_of(trace, name, "branch_flow_mw") for trace in group))
    touched = np.unique(np.concatenate([network.from_bus, network.to_bus]))
    drawn = np.isin(np.arange(len(network.bus_ids)), touched) | (not touched.size)
    x, y, height = _fitted(network, drawn)
    edges = zip(network.from_bus.tolist(), network.to_bus.tolist(), network.in_service.tolist(), strict=True)
    ids = network.bus_ids
    return {
        "name": name or "network",
        "ids": list(ids),
        "x": x,
        "y": y,
        "height": height,
        "radius": float(np.clip(40 / np.sqrt(len(ids)), 3.6, 9)),
        "labels": len(ids) <= LABELLED,
        "drawn": drawn.tolist(),
        "root": network.root,
        "edges": [list(edge) for edge in edges],
        "branches": [f"{ids[a]} to {ids[b]}" for a, b in zip(network.from_bus, network.to_bus, strict=True)],
        "rated": bool(np.any(network.rate_mva[network.in_service] > 0)),
        "devices": [[id_, int(bus)] for id_, bus in zip(network.device_ids, network.device_bus, strict=True)],
        "quantity": quantity,
        "label": label,
        "lo": lo,
        "hi": hi,
        "vmin": network.v_min_pu.tolist(),
        "vmax": network.v_max_pu.tolist(),
        "flow": float(np.abs(flows).max()),
    }


def _finite(*tables: np.ndarray | None) -> np.ndarray:
    """All numbers of some tables, (n,), n > 0: a 0 where there is none."""
    values = np.concatenate([np.zeros(0), *(table.ravel() for table in tables if table is not None)])
    found: np.ndarray = values[np.isfinite(values)]
    return found if found.size else np.zeros(1)


def _fitted(network: TracedNetwork, drawn: np.ndarray) -> tuple[list[float], list[float], float]:
    """Coordinates of the buses in the drawing of a map, and its height."""
    f, t, on = (np.asarray(part) for part in (network.from_bus, network.to_bus, network.in_service))
    place = locate_parts(len(network.bus_ids), f, t, on, network.root)
    low = place[drawn].min(axis=0)
    span = np.maximum(np.ptp(place[drawn], axis=0), 1e-9)
    inner = WIDE - 2 * MARGIN
    high = float(np.clip(inner * span[1] / span[0], FLATTEST * WIDE, TALLEST * WIDE))
    xy = (place - low) / span * [inner, -high] + [MARGIN, MARGIN + high]
    return np.round(xy[:, 0], 1).tolist(), np.round(xy[:, 1], 1).tolist(), round(high + 2 * MARGIN, 1)


# ---- charts


def _charts(group: Sequence[Trace], steps: int) -> list[dict[str, Any]]:
    """Charts from top to bottom: price, power, charge, voltage and loading, money, costs, and what else is told."""
    first = group[0]
    found = [
        _chart("price of energy" if "price_per_mwh" in first.tables else "mean bus price", "$/MWh", price)
        for price in [[_price(trace) for trace in group]]
        if price[0] is not None
    ]
    if "device_power_mw" in first.tables:
        power = [trace["device_power_mw"].values.sum(axis=1) for trace in group]
        found.append(_chart("devices, + = supply", "MW", power))
    if "unit_power_mw" in first.tables:
        found.append(_chart("generation", "MW", [trace["unit_power_mw"].values.sum(axis=1) for trace in group]))
    if "soc" in first.tables:
        charge = [100 * trace["soc"].values.mean(axis=1) for trace in group]
        bounds = [(first.soc_min, "lowest"), (first.soc_max, "highest")]
        marks = [(100 * float(np.mean(values)), word) for values, word in bounds if values]
        found.append(_chart("state of charge", "%", charge, held=False, marks=marks))
    found += _network_charts(group)
    unit = "$" if first.money else ""
    earned = "profits so far" if _rivals(first) else "reward so far"
    so_far = [_so_far(_team_reward(trace)) for trace in group]
    found.append(_chart(earned, unit, so_far, held=False, sum=True))
    if len(group) > 1:
        label = f"{earned}, less that of {(first.policy or 'the first').replace('_', ' ')}"
        common = [min(len(row), len(so_far[0])) for row in so_far]
        less = [row[:n] - so_far[0][:n] for row, n in zip(so_far, common, strict=True)]
        found.append(_chart(label, unit, less, held=False, sum=True))
    found += _cost_charts(group)
    told = first.tables["info"].ids if "info" in first.tables else ()
    for name, label in SHOWN.items():
        rows = [trace["info"][name] for trace in group] if name in told else []
        if rows and max(np.abs(row).max() for row in rows) > NEVER:
            unit = first["info"].units[told.index(name)]
            found.append(_chart(label, _short(unit), rows))
    for chart in found:
        chart["series"] = [_plain(row, steps + bool(chart["sum"])) for row in chart["series"]]
    return found


def _chart(
    label: str,
    unit: str,
    series: Sequence[np.ndarray | None],
    *,
    held: bool = True,
    sum: bool = False,
    marks: Sequence[tuple[float, str]] = (),
) -> dict[str, Any]:
    """One chart with a line a policy.

    held:   a value holds for its whole step, else it is that at the end of the step
    sum:    the first value is that before the first step
    marks:  (value, word) of dashed lines, which the axis always reaches
    """
    lines = [{"y": float(y), "word": word} for y, word in marks]
    return {"label": label, "unit": unit, "series": series, "held": held, "sum": sum, "marks": lines}


def _price(trace: Trace) -> np.ndarray | None:
    if "price_per_mwh" in trace.tables:
        return trace["price_per_mwh"].values[:, 0]
    prices = _joined(trace, "bus_price_per_mwh")
    return None if prices is None else prices.mean(axis=1)


def _so_far(values: np.ndarray) -> np.ndarray:
    """Running sum that begins with 0, (T + 1,)."""
    return np.append(0.0, np.cumsum(values, dtype=float))


def _network_charts(group: Sequence[Trace]) -> list[dict[str, Any]]:
    found = []
    volts = [_joined(trace, "bus_voltage_pu") for trace in group]
    if volts[0] is not None:
        nets = [n for name, n in group[0].networks.items() if _of(group[0], name, "bus_voltage_pu") is not None]
        known = [values for values in volts if values is not None]
        free = [(np.delete(net.v_min_pu, net.root), np.delete(net.v_max_pu, net.root)) for net in nets]
        low = max(float(v_min.max(initial=0)) for v_min, _ in free)
        high = min(float(v_max.min(initial=np.inf)) for _, v_max in free)
        for word, values, limit in (
            ("lowest", [_lowest(v) for v in known], low),
            ("highest", [-_lowest(-v) for v in known], high),
        ):
            marks = [(limit, "limit")] if 0 < limit < np.inf else []
            found.append(_chart(f"{word} voltage", "pu", values, marks=marks))
    loading = [_joined(trace, "branch_loading_percent") for trace in group]
    if loading[0] is not None and np.isfinite(loading[0]).any():
        fullest = [np.nanmax(values, axis=1) for values in loading if values is not None]
        found.append(_chart("fullest branch", "%", fullest, marks=[(100.0, "rating")]))
    return found


def _cost_charts(group: Sequence[Trace]) -> list[dict[str, Any]]:
    """Costs so far of the channels that have a budget or were ever violated."""
    found = []
    for k, name in enumerate(group[0].tables.get("cost", NO_COSTS).ids):
        rows = [_so_far(trace["cost"].values[:, k]) for trace in group]
        budget = group[0].budgets[k]
        if np.isfinite(budget) or max(row[-1] for row in rows) > ROUNDING:
            marks = [(budget, "budget")] if np.isfinite(budget) else []
            unit = group[0]["cost"].units[k]
            label = f"{name.replace('_', ' ')} so far"
            found.append(_chart(label, _short(unit), rows, held=False, sum=True, marks=marks))
    return found


def _short(unit: str) -> str:
    return "" if unit == "-" else unit.replace("USD", "$")


def _plain(values: np.ndarray, length: int) -> list[float | None]:
    """Five digits of each value, filled up with None to one length; None for what is no number."""
    plain = [float(f"{x:.5g}") if np.isfinite(x) else None for x in np.asarray(values, float)]
    return plain + [None] * (length - len(plain))
