"""The reader of OpenDSS against the engine: every property, command and option, and a feeder for every construct."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases.readers.opendss import read_opendss
from powerzoo_jax.cases.readers.opendss.commands import COMMANDS, OPTIONS
from powerzoo_jax.cases.readers.opendss.rules import (
    APPLIED,
    CLASSES,
    FIXED,
    IDLE,
    LOADSHAPE,
    NOTED,
    PROPERTIES,
    REFUSED,
)
from powerzoo_jax.cases.threephase.case import ThreePhaseCase, to_arrays
from tests.recorders.record_opendss_elements import DATA, recorded
from tests.references import opendss_feeders as feeders
from tests.references.opendss_solution import node_volts
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

NAMES = json.loads((DATA / "names.json").read_text())
FEEDERS = feeders.feeders()
ELEMENT = {kind: text.split()[1].lower() for kind, text in feeders.BASE.items() if text.startswith("New ")}
ELEMENT |= {"vsource": "vsource.source"} | {kind: name for kind, (name, _) in feeders.EXTRA.items()}


def read(text: str) -> ThreePhaseCase:
    return read_opendss("feeder.dss", read=lambda _: text)


@cache
def base(kind: str = "") -> ThreePhaseCase:
    """The base feeder, or the one that has an element of a class that is not in it."""
    return read(feeders.script(feeders.given(kind, "")) if kind in feeders.EXTRA else FEEDERS["base"])


@cache
def expected() -> dict[str, dict[str, complex]]:
    return recorded()


def same_tables(case: ThreePhaseCase, kind: str = "") -> bool:
    ours, other = to_arrays(case), to_arrays(base(kind))
    return ours.keys() == other.keys() and all(np.array_equal(ours[key], other[key]) for key in other if key != "notes")


def rules(effect: str) -> list[tuple[str, str]]:
    return [(kind, key) for kind, table in PROPERTIES.items() for key, rule in table.items() if rule.effect == effect]


def line_of(kind: str) -> int:
    """Line on which `given` puts more properties of a class."""
    text = feeders.script(feeders.given(kind, "HERE"))
    return 1 + text[: text.index("HERE")].count("\n")


def refusal(text: str) -> str:
    with pytest.raises(CaseError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize("name", FEEDERS)
def test_node_voltages_are_those_of_the_engine(name: str) -> None:
    case = read(FEEDERS[name])
    volts = expected()[name]
    # the star points of three windings are nodes of ours alone
    at = [k for k, node in enumerate(case.node_names) if not node.startswith("transformer.")]
    assert volts.keys() == {case.node_names[k] for k in at}
    difference = node_volts(case)[at] - [volts[case.node_names[k]] for k in at]
    error = np.abs(difference) / (1e3 * case.node.base_kv[at])
    assert error.max() <= tolerance("opendss_element_v_pu", "float64")


def test_the_tables_of_rules_hold_every_name_of_the_engine_in_its_order() -> None:
    tables = {**PROPERTIES, "loadshape": LOADSHAPE}
    assert {kind: list(table) for kind, table in tables.items()} == NAMES["properties"]
    assert list(COMMANDS) == NAMES["commands"] and list(OPTIONS) == NAMES["options"]
    assert CLASSES.keys() | PROPERTIES.keys() <= set(NAMES["classes"])


def test_every_applied_property_has_a_feeder_and_changes_the_case() -> None:
    walked = {(kind, key) for kind, keys in feeders.APPLIED.items() for key in keys}
    assert walked == set(rules(APPLIED)) - {("vsource", "frequency")}  # it is taken at that of the circuit alone
    swallowed = [f"{kind}.{key}" for kind, key in walked if same_tables(read(FEEDERS[f"{kind}.{key}"]))]
    assert not swallowed


def test_every_noted_property_is_named_and_changes_nothing() -> None:
    for kind, key in rules(NOTED):
        case = read(FEEDERS[f"{kind}.{key}"])
        assert same_tables(case, kind) and f"{kind}.{key}" in " ".join(case.notes), (kind, key)


@pytest.mark.parametrize("effect", [REFUSED, FIXED])
def test_every_refused_property_names_element_property_and_line(effect: str) -> None:
    assert rules(effect)
    for kind, key in rules(effect):
        message = refusal(feeders.script(feeders.given(kind, f"{key}=7.5")))
        assert f"line {line_of(kind)}: {ELEMENT[kind]}: {key}=7.5 is not in the subset" in message, message
        assert PROPERTIES[kind][key].text in message and PROPERTIES[kind][key].text


def test_every_fixed_property_is_read_at_the_default_of_the_engine() -> None:
    for kind, key in rules(FIXED):
        value = NAMES["defaults"][kind][key].strip("[] ")
        assert same_tables(read(feeders.script(feeders.given(kind, f"{key}={value}"))), kind), (kind, key, value)


@pytest.mark.parametrize("kind", PROPERTIES)
def test_the_base_frequency_of_the_circuit_changes_nothing(kind: str) -> None:
    if "basefreq" in PROPERTIES[kind]:
        assert same_tables(read(feeders.script(feeders.given(kind, "basefreq=60"))), kind)


def test_a_source_of_another_frequency_than_the_circuit_has_no_voltage_and_is_refused() -> None:
    assert same_tables(read(feeders.script({"vsource": "+frequency=60"})))
    message = refusal(feeders.script({"vsource": "+frequency=50"}))
    assert "frequency=50: the circuit has 60 Hz: the source would have no voltage" in message


@pytest.mark.parametrize("kind", PROPERTIES)
def test_an_unknown_property_is_refused(kind: str) -> None:
    message = refusal(feeders.script(feeders.given(kind, "enabeled=60")))
    assert f"line {line_of(kind)}: Unknown property of {ELEMENT[kind]} 'enabeled'" in message


def test_the_nearest_property_is_named() -> None:
    assert "'basefrek'. Did you mean 'basefreq'?" in refusal(feeders.script({"line": "+basefrek=60"}))


def test_every_class_is_read_left_out_with_a_note_or_refused() -> None:
    for kind in NAMES["classes"]:
        text = feeders.script(feeders.beside(f"New {kind}.other"))
        if kind in CLASSES:
            case = read(text)
            assert same_tables(case) and f"{CLASSES[kind]} ({kind})" in case.notes
        elif kind not in PROPERTIES:
            assert f"{kind}.other, and this reader does not know the class {kind}" in refusal(text)


def test_every_command_is_applied_idle_noted_or_refused_with_its_line() -> None:
    last = feeders.script({}).count("\n") + 1
    for command, rule in COMMANDS.items():
        text = feeders.script({}) + f"{command}\n"
        if rule.effect == REFUSED:
            assert f"line {last}: the command {command!r} is not in the subset" in refusal(text)
        elif rule.effect in (NOTED, IDLE):
            case = read(text)
            assert same_tables(case) and (command in " ".join(case.notes)) == (rule.effect == NOTED)
    applied = {command for command, rule in COMMANDS.items() if rule.effect == APPLIED}
    # each of them is in a feeder above or has a test of its own
    assert applied == {
        *("new", "edit", "batchedit", "more", "m", "~", "compile", "redirect", "set", "open", "close", "clear"),
        *("clearall", "buscoords", "latlongcoords"),
    }


def test_every_option_of_set_is_applied_idle_noted_or_refused_with_its_line() -> None:
    last = feeders.script({}).count("\n") + 1
    for option, rule in OPTIONS.items():
        text = feeders.script({}) + f"Set {option}=7.5\n"
        if rule.effect in (REFUSED, FIXED):
            assert f"line {last}: Set {option}=7.5 is not in the subset" in refusal(text)
        elif rule.effect in (NOTED, IDLE):
            case = read(text)
            assert same_tables(case) and (f"set {option}" in " ".join(case.notes)) == (rule.effect == NOTED)
    applied = {option for option, rule in OPTIONS.items() if rule.effect == APPLIED}
    assert applied == {
        *("loadmult", "genmult", "voltagebases", "frequency", "basefrequency", "defaultbasefrequency", "earthmodel"),
    }
    for option in ("frequency", "basefrequency", "defaultbasefrequency"):
        assert same_tables(read(feeders.script({}) + f"Set {option}=60\n"))
        assert f"line {last}: Set {option}=50: what is defined before has 60 Hz" in refusal(
            feeders.script({}) + f"Set {option}=50\n"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("New Generator.g bus1=end kw=5", "generator.g: kv is not given. Give it"),
        ("New Generator.g bus1=end.1 kv=7.2 phases=1", "generator.g: kv stands before phases"),
        ("New Generator.g bus1=end.1.2 phases=1 kv=12.47 conn=delta", "generator.g: OpenDSS takes a third of a delta"),
        ("New Generator.g bus1=end kv=12.47 pf=0", "generator.g: pf=0: kvar follows from a power factor of 0"),
        ("New Generator.g bus1=end kv=12.47 model=3", "generator.g: model=3 is not in the subset"),
        ("New PVSystem.p bus1=end kv=12.47 pf=0", "pvsystem.p: pf=0: kvar follows from a power factor of 0"),
        ("New PVSystem.p bus1=end kv=12.47 %cutin=5", "pvsystem.p: %cutin is below %cutout"),
        ("New Storage.s bus1=end kw=5", "storage.s: kv is not given. Give it"),
        ("New Storage.s bus1=end.1 kv=7.2 phases=1", "storage.s: kv stands before phases"),
        ("New Storage.s bus1=end kv=12.47 pf=0", "storage.s: pf=0: kvar follows from a power factor of 0"),
        ("New Storage.s bus1=end kv=12.47 %cutout=5", "storage.s: %cutin is below %cutout"),
        ("New Storage.s bus1=end kv=12.47 kwrated=900 pf=0.05", "its idling losses ask for more kvar than its rating"),
        (
            "New Storage.s bus1=end kv=12.47 kva=9 kwrated=80 kwhstored=5 kw=-50 wattpriority=y",
            "storage.s: OpenDSS has no power",
        ),
        ("New Storage.s bus1=end kv=12.47 dispmode=follow", "storage.s: dispmode=follow is not in the subset"),
        ("New StorageController.c", "does not know the class storagecontroller. It sets %charge, %discharge"),
        ("New Fault.f bus1=end", "does not know the class fault. Write it as a reactor"),
    ],
)
def test_generation_that_cannot_be_represented_is_refused_with_a_remedy(text: str, message: str) -> None:
    where = f"feeder.dss, line {line_of('load') + 3}: "
    assert refusal(feeders.script(feeders.beside(text))).startswith(where), refusal(
        feeders.script(feeders.beside(text))
    )
    assert message in refusal(feeders.script(feeders.beside(text)))


def test_generation_is_load_of_negative_power_that_the_multiplier_of_loads_leaves_alone() -> None:
    case = read(FEEDERS["generation multiplier"])
    rows = case.load.name == "generator.g"
    np.testing.assert_allclose(case.load.p_kw[rows], -50.0)
    assert "their power is that of a load, negative, and scales with the loads (generator)" in case.notes
