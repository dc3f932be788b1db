"""Pages of episodes: whole in themselves, small, and with the numbers of their traces."""

from __future__ import annotations

import base64
import dataclasses
import json
import re

import numpy as np
import pytest

from powerzoo_jax.envs.trace.types import Trace, TracedNetwork, TraceTable
from powerzoo_jax.plot import episode_html
from powerzoo_jax.plot.layout import locate_parts
from powerzoo_jax.plot.page import NOTHING

OUTSIDE = re.compile(r"https?:|\bsrc=|\bhref=|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|\bimport\(")


def table(values, ids, unit="-"):
    return TraceTable(np.asarray(values, float), tuple(ids), (unit,) * len(ids))


def made_up(policy="rule", *, steps=48, n_bus=33, scale=1.0, **changes):
    """A day on a chain of buses with one battery at its end."""
    numbers = np.random.default_rng(0)
    chain = TracedNetwork(
        bus_ids=tuple(str(k + 1) for k in range(n_bus)),
        from_bus=np.arange(n_bus - 1),
        to_bus=np.arange(1, n_bus),
        in_service=np.ones(n_bus - 1, bool),
        v_min_pu=np.full(n_bus, 0.95),
        v_max_pu=np.full(n_bus, 1.05),
        rate_mva=np.where(np.arange(n_bus - 1) == 0, 0.0, 2.0),
        root=0,
        device_ids=("battery_0",),
        device_bus=np.array([n_bus - 1]),
    )
    buses, branches = chain.bus_ids, tuple(f"branch {k}" for k in range(n_bus - 1))
    loading = numbers.uniform(0, 120, (steps, n_bus - 1))
    loading[:, 0] = np.nan  # without a rating
    tables = {
        "action": table(scale * numbers.uniform(-1, 1, (steps, 1)), ("battery_0",)),
        "reward": table(scale * numbers.uniform(-1, 1, (steps, 1)), ("battery_0",), "USD"),
        "reward_term": table(numbers.uniform(-1, 1, (steps, 1)), ("battery_0.sales",)),
        "cost": table(scale * numbers.uniform(0, 0.02, (steps, 2)), ("voltage_violation", "resource"), "MW"),
        "info": table(numbers.uniform(0, 1, (steps, 1)), ("p_loss_mw",), "MW"),
        "price_per_mwh": table(numbers.uniform(20, 60, (steps, 1)), ("price",), "USD/MWh"),
        "device_power_mw": table(numbers.uniform(-1, 1, (steps, 1)), ("battery_0",), "MW"),
        "soc": table(numbers.uniform(0, 1, (steps, 1)), ("battery_0",)),
        "bus_voltage_pu": table(numbers.uniform(0.93, 1.0, (steps, n_bus)), buses, "pu"),
        "bus_injection_mw": table(numbers.uniform(-1, 1, (steps, n_bus)), buses, "MW"),
        "branch_flow_mw": table(numbers.uniform(-1, 1, (steps, n_bus - 1)), branches, "MW"),
        "branch_loading_percent": table(loading, branches, "%"),
    }
    told = {"task": "made_up", "version": 0, "family": "feeder", "split": "test", "episode": 0, "dt_hours": 0.5}
    told |= {"agents": ("battery_0",), "budgets": (np.inf, 0.3), "money": True, "networks": {"": chain}}
    told |= {"day": "2016-02-28", "soc_min": (0.1,), "soc_max": (0.9,)} | changes
    return Trace(policy=policy, tables=tables, **told)


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(packed):
    words = np.frombuffer(base64.b64decode(packed["d"]), "<u2").reshape(packed["rows"], packed["cols"])
    return np.where(words == NOTHING, np.nan, packed["lo"] + (packed["hi"] - packed["lo"]) * words / (NOTHING - 1))


def test_a_page_asks_for_nothing_from_elsewhere():
    page = episode_html([made_up("rule"), made_up("oracle", scale=0.5)])
    assert OUTSIDE.findall(page) == []
    assert page.startswith("<!DOCTYPE html>") and "{{" not in page
    assert re.findall(r"<(?:link|img|iframe|script) [^>]*>", page) == ['<script id="data" type="application/json">']


def test_a_day_of_the_largest_network_under_four_policies_is_small():
    four = [made_up(name, n_bus=187) for name in ("no_control", "rule", "ppo", "oracle")]
    assert len(episode_html(four).encode()) < 1_000_000


def test_the_numbers_of_the_trace_are_in_the_page():
    trace = made_up()
    found = data_of(episode_html(trace))
    state = found["policies"][0]["maps"][0]
    volts = trace["bus_voltage_pu"].values
    assert np.abs(unpacked(state["bus"]) - volts).max() <= np.ptp(volts) / 60_000
    loading = unpacked(state["loading"])
    assert np.isnan(loading[:, 0]).all() and np.nanmax(loading) == pytest.approx(120, abs=1)
    charts = {chart["label"]: chart for chart in found["charts"]}
    assert charts["price of energy"]["series"][0] == pytest.approx(trace["price_per_mwh"].values[:, 0], rel=1e-4)
    spent = charts["resource so far"]
    assert spent["series"][0][-1] == pytest.approx(trace["cost"]["resource"].sum(), rel=1e-4)
    assert spent["marks"] == [{"y": 0.3, "word": "budget"}]
    assert charts["reward so far"]["series"][0][0] == 0 and len(charts["reward so far"]["series"][0]) == 49


def test_limits_are_drawn_where_nothing_comes_near_them():
    trace = made_up()
    calm = {"bus_voltage_pu": np.full((48, 33), 1.0), "branch_loading_percent": np.full((48, 32), 3.0)}
    tables = trace.tables | {name: table(values, trace[name].ids) for name, values in calm.items()}
    charts = {c["label"]: c for c in data_of(episode_html(dataclasses.replace(trace, tables=tables)))["charts"]}
    marks = {label: [mark["y"] for mark in chart["marks"]] for label, chart in charts.items() if chart["marks"]}
    assert marks == {
        "state of charge": [pytest.approx(10), pytest.approx(90)],
        "lowest voltage": [0.95],
        "highest voltage": [1.05],
        "fullest branch": [100],
        "resource so far": [0.3],
    }


def test_the_date_of_the_data_is_told_where_it_has_one():
    found = data_of(episode_html(made_up()))
    assert found["day"] == "2016-02-28" and "from Sunday, 28 February 2016" in found["sub"]
    found = data_of(episode_html(made_up(day="")))
    assert found["day"] == "" and found["sub"].endswith("30 minutes")


def paid(policy, total, **changes):
    """An episode that earns `total` [$] in equal steps, within its budgets."""
    trace = made_up(policy, scale=0.1, **changes)
    reward = table(np.full((len(trace), 1), total / len(trace)), ("battery_0",), "USD")
    return dataclasses.replace(trace, tables=trace.tables | {"reward": reward})


def test_policies_tell_their_gain_and_what_they_earn_beside_the_first():
    """(5 - 2) / (8 - 2) = 0.5 by hand."""
    group = [paid("rule", 2.0), paid("mine", 5.0), paid("oracle", 8.0), paid("worse", -1.0)]
    found = data_of(episode_html(group))
    heads = {policy["name"]: (policy["gain"], policy["beside"]) for policy in found["policies"]}
    assert heads == {
        "rule": ("gain 0.00", ""),
        "mine": ("gain 0.50", "+3 $ to rule"),
        "oracle": ("gain 1.00", "+6 $ to rule"),
        "worse": ("gain \N{MINUS SIGN}0.50", "\N{MINUS SIGN}3 $ to rule"),
    }
    less = next(c for c in found["charts"] if c["label"] == "reward so far, less that of rule")
    assert less["unit"] == "$" and less["series"][1] == pytest.approx(3.0 * np.arange(49) / 48, rel=1e-4)
    assert less["series"][0] == [0.0] * 49


def test_without_both_ends_or_over_a_budget_there_is_no_gain():
    for group in ([paid("rule", 2.0), paid("mine", 5.0)], [paid("rule", 2.0), paid("oracle", 2.0)]):
        assert [policy["gain"] for policy in data_of(episode_html(group))["policies"]] == ["", ""]
    over = dataclasses.replace(made_up("mine"), tables=made_up("mine").tables | {"reward": paid("mine", 5.0)["reward"]})
    heads = data_of(episode_html([paid("rule", 2.0), over, paid("oracle", 8.0)]))["policies"]
    assert [head["gain"] for head in heads] == ["gain 0.00", "", "gain 1.00"] and not heads[1]["kept"]


def test_rows_of_actions_say_what_acts_and_where():
    trace = made_up()
    chain = dataclasses.replace(
        trace.networks[""],
        device_ids=("battery_0", "flexload_0", "flexload_1", "unit_7"),
        device_bus=np.array([32, 4, 4, 0]),
    )
    ids = ("battery_0", "flexload_0.curtail", "flexload_1.curtail", "unit_7.on", "cooling")
    tables = trace.tables | {"action": table(np.zeros((48, 5)), ids)}
    found = data_of(episode_html(dataclasses.replace(trace, networks={"": chain}, tables=tables)))["actions"]
    assert found["names"] == [
        "battery at bus 33",
        "flexible load 0 at bus 5: curtail",
        "flexible load 1 at bus 5: curtail",
        "unit at bus 1: on",
        "cooling",
    ]


def test_a_policy_over_its_budget_is_told_so():
    kept, over = data_of(episode_html([made_up("safe", scale=0.1), made_up("wild")]))["policies"]
    assert kept["kept"] and kept["verdict"] == "within its budgets"
    assert not over["kept"] and over["verdict"] == "over the budget of resource"


def test_a_task_without_a_network_has_no_map_and_an_episode_that_ended_early_is_filled_up():
    short = made_up("short", steps=20)
    whole = made_up("whole")
    lone = [dataclasses.replace(t, networks={}) for t in (whole, short)]
    found = data_of(episode_html(lone))
    assert found["networks"] == [] and found["policies"][1]["steps"] == 20
    price = found["charts"][0]["series"]
    assert len(price[0]) == len(price[1]) == 48 and price[1][20:] == [None] * 28


def test_text_of_a_task_cannot_leave_its_place():
    trace = dataclasses.replace(made_up("</script><b>{{DATA}}"), task="<i>&")
    page = episode_html(trace)
    assert "<i>&" not in page.split('<script id="data"')[0]
    assert data_of(page)["policies"][0]["name"] == "</script><b>{{DATA}}"


def test_traces_of_different_episodes_are_refused():
    with pytest.raises(ValueError, match="made_up v0 episode 0, made_up v0 episode 3"):
        episode_html([made_up(), made_up(episode=3)])
    with pytest.raises(ValueError, match="no trace was given"):
        episode_html([])


def test_parts_of_a_network_stand_below_each_other():
    f, t = np.array([0, 1, 3, 4, 5]), np.array([1, 2, 4, 5, 3])  # a chain and a ring
    xy = locate_parts(6, f, t, np.ones(5, bool), root=2)
    assert xy[[2, 1, 0], 0].tolist() == [0, 1, 2]
    assert xy[3:, 1].max() < xy[:3, 1].min()
