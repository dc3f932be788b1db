"""The reader of OpenDSS feeders: hand numbers on small scripts, refusals by name, and the shipped feeders' totals."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, DataMissing
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.cases.readers.opendss import read_opendss, script
from powerzoo_jax.cases.threephase.case import ThreePhaseCase, from_arrays, stripped, to_arrays
from powerzoo_jax.cases.threephase.library import list_feeders, load_feeder
from powerzoo_jax.cases.threephase.validate import validate_threephase

EXACT = dict(rtol=1e-12, atol=0.0)  # own arithmetic in float64, a few operations
DATA = Path(__file__).resolve().parents[2] / "recorded"
SHIPPED = {"case13": "ieee13", "case34": "ieee34", "case123": "ieee123"}

MASTER = """Clear
New object=circuit.small   ! a comment
~ basekv=12.47 Bus1=head pu=1.02 Angle=10 R1=0.1 X1=0.4 R0=0.4 X0=1.0
redirect Codes.dss
/* New Line.ghost bus1=head bus2=nowhere
*/
New Line.a Bus1=head Bus2=mid LineCode=three Length=2000 units=ft
New Line.b Bus1=mid.3.2 Bus2=end.3.2 LineCode=two Length=(3 2 *) units=mi
New Line.sw Bus1=mid Bus2=far r1=1e-4 x1=0 r0=1e-4 x0=0 c1=0 c0=0 Switch=y
New Line.tie phases=1 Bus1=far.1 Bus2=low.1 switch=yes r1=0.5 x1=0 r0=0.5 x0=0 c1=0 c0=0
New Transformer.step Phases=3 XHL=(8 4 /) windings=2
~ wdg=1 bus=mid conn=delta kv=12.47 kva=600 %r=.5
~ wdg=2 bus=low conn=wye kv=0.48 kva=600 %r=.25 tap=1.05
New Transformer.rega phases=1 XHL=1 kVAs=[500 500] Buses=[far.1 reg.1] kVs=[7.2 7.2] taps=[1.0 1.0125] %LoadLoss=0.2
New Regcontrol.c transformer=rega winding=2 vreg=122 band=2 ptratio=60 ctprim=700 R=3 X=9
New Capacitor.c1 Bus1=far phases=3 kvar=300 kv=12.47
New Load.s Bus1=low phases=3 conn=wye model=5 kV=0.48 kW=90 kvar=30
New Load.d Bus1=mid.2.3 phases=1 conn=Delta model=2 kV=12.47 kW=40 kvar=20
New Load.t Bus1=reg.1 phases=1 kV=7.2 kW=10 kvar=5 model=1
New Load.u like=t kW=11 Bus1=far.2
New Load.v Bus1=far phases=3 conn=Delta kV=12.47 kW=60 kvar=30 model=4
Load.t.vminpu=.85
Open Line.tie
Set VoltageBases=[12.47, .48]
CalcVoltageBases
Solve
"""
CODES = """New linecode.three nphases=3 BaseFreq=60
~ rmatrix = (0.3 | 0.1 0.4 | 0.15 0.12 0.5)
~ xmatrix = [1.0 | 0.5 1.1 | 0.4 0.3 1.2]
~ units=mi
New linecode.two nphases=2 units=mi
~ rmatrix=(1 | .2 1) xmatrix=(1 | .2 1) cmatrix=(10 | -2 12)
"""
FILES = {"master.dss": MASTER, "Codes.dss": CODES}


def read(**changes: str) -> ThreePhaseCase:
    """The small feeder with pieces of its scripts replaced: read(old="...", new="...")."""
    old, new = changes.get("old", ""), changes.get("new", "")
    assert old in MASTER + CODES
    return read_opendss("master.dss", read=lambda name: FILES[name].replace(old, new))


def row(table: object, name: str) -> int:
    return int(np.flatnonzero(table.name == name)[0])  # type: ignore[attr-defined]


def test_lengths_are_converted_to_the_unit_of_the_line_code():
    case = read()
    line = row(case.line, "a")
    r = np.array([[0.3, 0.1, 0.15], [0.1, 0.4, 0.12], [0.15, 0.12, 0.5]])
    np.testing.assert_allclose(case.line.r_ohm[line], r * 2000 / 5280, **EXACT)
    # three.C is left out: OpenDSS then keeps its defaults of 3.4 and 1.6 nF per unit of length
    c = ((2 * 3.4 + 1.6) / 3, (1.6 - 3.4) / 3)
    per_nf = 2e-3 * np.pi * 60 * 2000 / 5280
    np.testing.assert_allclose(case.line.b_us[line, 0, :2], np.array(c) * per_nf, **EXACT)


def test_conductors_keep_the_order_of_the_terminal():
    case = read()
    line = row(case.line, "b")
    assert [case.node_names[k] for k in case.line.from_node[line, :2]] == ["mid.3", "mid.2"]
    assert case.line.from_node[line, 2] == -1
    np.testing.assert_allclose(
        np.diag(case.line.b_us[line])[:2], [10 * 6 * 0.12 * np.pi, 12 * 6 * 0.12 * np.pi], **EXACT
    )
    assert not case.line.r_ohm[line, 2].any()


def test_a_switch_named_last_takes_the_values_of_a_switch():
    case = read()
    late, early = row(case.line, "sw"), row(case.line, "tie")
    np.testing.assert_allclose(np.diag(case.line.r_ohm[late]), 1e-3, **EXACT)
    np.testing.assert_allclose(case.line.r_ohm[early, 0, 0], 0.5e-3, **EXACT)
    assert case.line.switch[[late, early]].all()
    assert case.line.in_service[late] and not case.line.in_service[early]


def test_a_delta_on_the_high_side_leads_the_wye():
    case = read()
    units = np.flatnonzero(case.transformer.name == "step")
    t = case.transformer
    ends = [(case.node_names[t.from_node[k]], case.node_names[t.from_end[k]]) for k in units]
    assert ends == [("mid.1", "mid.3"), ("mid.2", "mid.1"), ("mid.3", "mid.2")]
    assert (t.to_end[units] == -1).all()
    np.testing.assert_allclose(t.from_kv[units], 12.47, **EXACT)
    np.testing.assert_allclose(t.to_kv[units], 0.48 / np.sqrt(3), **EXACT)
    np.testing.assert_allclose(
        (t.rating_kva[units], t.r_pu[units], t.x_pu[units]), [[200] * 3, [0.0075] * 3, [0.02] * 3]
    )
    np.testing.assert_allclose(t.to_tap[units], 1.05, **EXACT)


def test_a_regulated_ratio_is_a_tap_position():
    case = read()
    assert case.regulator.tap.tolist() == [2]
    assert case.transformer.to_tap[case.regulator.unit[0, 0]] == 1.0
    np.testing.assert_allclose(case.taps, [1.0125], **EXACT)
    assert case.regulator.unit[0].tolist() == [3, -1, -1]


def test_base_voltages_follow_the_transformers():
    case = read()
    base = dict(zip(case.node.bus.tolist(), case.node.base_kv * np.sqrt(3), strict=True))
    assert base == pytest.approx({"head": 12.47, "mid": 12.47, "end": 12.47, "far": 12.47, "reg": 12.47, "low": 0.48})


def test_loads_are_split_into_phases_with_their_law():
    case = read()
    d = case.load
    wye, delta, cvr = (np.flatnonzero(d.name == name) for name in ("s", "d", "v"))
    np.testing.assert_allclose(d.kv[wye], 0.48 / np.sqrt(3), **EXACT)
    assert (d.p_kw[wye].tolist(), d.q_kvar[wye].tolist()) == ([30, 30, 30], [10, 10, 10])
    assert (d.i_p[wye] == 1).all() and (d.end[wye] == -1).all()
    assert [case.node_names[k] for k in (d.node[delta[0]], d.end[delta[0]])] == ["mid.2", "mid.3"]
    assert d.z_p[delta] == 1 and d.kv[delta] == 12.47
    assert [case.node_names[k] for k in d.end[cvr]] == ["far.2", "far.3", "far.1"]
    assert case.exponent.load.tolist() == cvr.tolist() and not d.z_q[cvr].any()
    assert (case.exponent.p_exponent == 1).all() and (case.exponent.q_exponent == 2).all()


def test_like_copies_and_edits_change_what_was_defined_before():
    case = read()
    t, u = row(case.load, "t"), row(case.load, "u")
    assert (case.load.p_kw[t], case.load.p_kw[u], case.load.q_kvar[u]) == (10, 11, 5.5)  # the power factor is kept
    assert (case.load.v_min_pu[t], case.load.v_min_pu[u]) == (0.85, 0.95)


def test_a_capacitor_bank_is_three_rows():
    case = read()
    np.testing.assert_allclose(case.capacitor.q_kvar, [100] * 3, **EXACT)
    np.testing.assert_allclose(case.capacitor.kv, 12.47 / np.sqrt(3), **EXACT)


def test_the_source_impedance_comes_from_sequence_values_or_short_circuit_powers():
    z = (0.4 + 1.0j - 0.1 - 0.4j) / 3
    source = read().source
    np.testing.assert_allclose(source.r_ohm + 1j * source.x_ohm, np.full((3, 3), z) + np.eye(3) * (0.1 + 0.4j), **EXACT)
    source = read(old="R1=0.1 X1=0.4 R0=0.4 X0=1.0", new="mvasc3=100 mvasc1=90").source
    full = source.r_ohm + 1j * source.x_ohm
    z1, z0 = full[0, 0] - full[0, 1], full[0, 0] + 2 * full[0, 1]
    assert abs(z1) == pytest.approx(12.47**2 / 100) and z1.imag / z1.real == pytest.approx(4)
    assert abs(2 * z1 + z0) == pytest.approx(3 * 12.47**2 / 90) and z0.imag / z0.real == pytest.approx(3)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("model=5", "model=7", "load.s: model=7"),
        ("conn=wye model=5", "conn=wye kwh=20", "load.s: kwh=20"),
        ("LineCode=three", "LineCode=four", "linecode four is not defined"),
        ("LineCode=three", "geometry=g", "linegeometry g is not defined"),
        ("windings=2", "windings=3", "three windings need xhl, xht and xlt"),
        ("windings=2", "windings=4", "windings=4: give one of 2, 3"),
        ("taps=[1.0 1.0125]", "taps=[1.0 1.011]", "transformer.rega: the tap 1.76 is no position"),
        ("transformer=rega", "transformer=regb", "'regb', which is not defined"),
        ("Open Line.tie", "Open Line.tied", "line.tied is to be opened"),
        ("New Capacitor.c1", "New Fault.c1", "defines fault"),
        ("Solve", "Relocate x", "command 'Relocate'"),
        ("like=t", "like=w", "like=w names no load"),
        ("Load.t.vminpu", "Load.w.vminpu", "edits an element that is not defined"),
        ("Bus1=reg.1 phases=1", "Bus1=moon.1 phases=1", "does not reach bus moon"),
        ("New Load.s Bus1=low", "New Load.s low", "load.s: phases=low: 'low' is not a number"),
    ],
)
def test_what_the_subset_does_not_hold_is_refused_by_name(old: str, new: str, words: str):
    with pytest.raises(CaseError) as caught:
        read(old=old, new=new)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "below", "words"),
    [
        # names and numbers
        ("Length=2000", "Length=2_000", 0, "line.a: length=2_000: '2_000' is not a number."),
        ("Length=2000", "Length=abc", 0, "line.a: length=abc: 'abc' is not a number."),
        ("Length=2000", "Length=inf", 0, "'inf' is not a finite number"),
        ("Length=2000", "Length=1e-200", 0, "1e-200 is beyond the numbers of a network, 1e-50 to 1e+50"),
        ("Length=2000", "Length=(1e30 1e30 *)", 0, "1e+30 1e+30 * is beyond the numbers of a network"),
        ("Length=2000", "Length=-1", 0, "give a number > 0"),
        ("Length=(3 2 *)", "Length=(3 0 /)", 0, "length=(3 0 /): 3 0 / has no value"),
        ("Length=(3 2 *)", "Length=(3 +)", 0, "'+' is not a number"),
        ("units=ft", "units=foot", 0, "Unknown unit of length 'foot'. Did you mean 'ft'? Valid: cm, ft"),
        ("Bus2=far r1=1e-4", "Bus2=far r1=-0.1", 0, "line.sw: r1=-0.1: give a number >= 0"),
        ("basekv=12.47", "basekv=0", 0, "vsource.source: basekv=0: give a number > 0"),
        ("pu=1.02", "pu=0", 0, "pu=0: give a number > 0"),
        ("~ wdg=1 bus=mid", "~ wdg=0 bus=mid", 0, "transformer.step: wdg=0: give one of 1, 2, 3."),
        ("conn=delta kv=12.47 kva", "conn=star kv=12.47 kva", 0, "conn=star: give wye or delta"),
        ("XHL=(8 4 /)", "XHL=0", 0, "xhl=0: give a number > 0"),  # the engine takes 700 % for none
        ("kVAs=[500 500]", "kVAs=[500 500 500]", 0, "it has 3 values for 2 windings. Give windings first"),
        ("Switch=y", "Switch=perhaps", 0, "switch=perhaps: give yes or no"),
        ("phases=1 Bus1=far.1", "phases=99 Bus1=far.1", 0, "phases=99: give a whole number from 1 to 24"),
        # nodes
        ("Bus2=far r1", "Bus2=far.1.2.400 r1", 0, "a node is beyond 99"),
        ("Bus2=far r1", "Bus2=far.x r1", 0, "give a bus as name or name.node.node"),
        ("Bus2=far r1", "Bus2=far.2 r1", 0, "bus2 names 1 node(s) of bus far for 3 phases"),
        ("Bus2=far r1", "Bus2=far.1.1.2 r1", 0, "two to one node of bus far"),
        ("Bus1=low phases=3", "phases=3", 0, "load.s: bus1 is not given"),
        # elements
        ("New Line.sw", "New Line.a", 0, "line.a is defined a second time, the first time in master.dss, line 7"),
        ("New Load.u like=t", "New Load.u kW=3 like=t", 0, "load.u: like=t: it undoes what is given before it"),
        ("New Load.u like=t kW=11", "New Load.u like=t bus1=far.2\n~ kW=11", 1, "or one with like="),
        ("New Load.u like=t", "New Load.u like=v conn=delta kv=12.47", 0, "like=v names no load"),
        ("winding=2 vreg", "vreg", 0, "it regulates winding 1, the default. Give winding=2"),
        ("model=4", "model=8", 0, "load.v: model=8 without zipv"),
        ("model=4", "model=8 zipv=(1 0 0)", 0, "it has 3 numbers"),
        ("model=4", "model=8 zipv=(1 1 0 1 0 0 0)", 0, "do not add up to 1"),
        ("kW=60 kvar=30", "kvar=30 pf=0 kW=60", 0, "a power factor of 0"),
        ("kW=60 kvar=30", "kw=60 pf=2", 0, "pf=2: give a number >= -1 and <= 1"),
        ("R0=0.4 X0=1.0", "R0=0.4 mvasc3=10", 0, "by ohm and by short-circuit powers"),
        ("R1=0.1 X1=0.4 R0=0.4 X0=1.0", "mvasc3=100", -1, "mvasc1=2100 asks for a negative zero-sequence"),
        ("New Capacitor.c1", "New Vsource.c1 bus1=far\nNew Capacitor.c1", 0, "vsource.c1 is a second source"),
        # switching
        ("Open Line.tie", "Open Line.tie 1 2", 0, "one conductor, 2, is not switched alone"),
        ("Open Line.tie", "Open Line.tie 3", 0, "the terminals 1 and 2, not 3"),
        ("Open Line.tie", "Close Line.tied", 0, "line.tied is to be closed and not defined"),
        ("Open Line.tie", "Open Load.t", 0, "only lines are switched"),
        ("Open Line.tie", "Open Line.tie phase=2", 0, "open has no phase"),
        # options and commands
        ("Set VoltageBases=[12.47, .48]", "Set DefaultBaseFrequency=50", 0, "Put Set DefaultBaseFrequency before"),
        ("Set VoltageBases=[12.47, .48]", "Set LoadMult=-1", 0, "loadmult=-1: give a number >= 0"),
        ("Set VoltageBases=[12.47, .48]", "Set Loadfactor=2", 0, "Unknown option of Set 'loadfactor'"),
        ("Set VoltageBases=[12.47, .48]", "Set 3", 0, "the value '3' has no name"),
        ("Clear", "~ kv=3", 0, "a continuation (~) follows no element of this file"),
        ("redirect Codes.dss", "redirect ./master.dss", 0, "circular: master.dss -> master.dss. Remove one"),
        ("redirect Codes.dss", "redirect Codes.dss\n~ r1=3", 1, "follows no element of this file"),
        ("New Line.sw", "New Line", 0, "does not begin with Class.name"),
        ("\nSolve", "\nNew", 1, "'New ' does not begin with Class.name"),
    ],
)
def test_a_refusal_names_file_line_element_and_remedy(old: str, new: str, below: int, words: str):
    line = MASTER[: MASTER.index(old)].count("\n") + 1 + below
    with pytest.raises(CaseError) as caught:
        read(old=old, new=new)
    assert f"master.dss, line {line}: " in str(caught.value) and words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0.3 | 0.1 0.4 |", "0.3 | 0.1 |", "rmatrix=(0.3 | 0.1 | 0.15 0.12 0.5): its rows have 1, 1, 3 entries"),
        ("0.3 | 0.1 0.4 | 0.15 0.12 0.5", "0.3 | 0.1 0.4", "line 2: linecode.three: rmatrix=(0.3 | 0.1 0.4): it has 2"),
        ("0.3 | 0.1 0.4 |", "-0.3 | 0.1 0.4 |", "a number on its diagonal is negative"),
        ("(1 | .2 1) cm", "(1 .3 | .2 1) cm", "line 6: linecode.two: xmatrix=(1 .3 | .2 1): it is not symmetric"),
        ("rmatrix=(1 | .2 1) xm", "r1=1 rmatrix=(1 | .2 1) xm", "sequence values or switch=yes stand beside it"),
        ("cmatrix=(10 | -2 12)", "c1=3", "linecode.two: c1=3: matrices stand before it"),
        ("BaseFreq=60", "BaseFreq=0", "Codes.dss, line 1: linecode.three: basefreq=0: give a number >= 1 and <= 1000"),
        ("New linecode.three", "~ r1=1\nNew linecode.three", "Codes.dss, line 1: a continuation (~) follows no"),
        ("New linecode.three", "redirect master.dss\nNew linecode.three", "Codes.dss, line 1: Redirect is circular: "
         "master.dss -> Codes.dss -> master.dss."),
    ],
)  # fmt: skip
def test_refusals_in_a_redirected_file_name_that_file(old: str, new: str, words: str):
    with pytest.raises(CaseError) as caught:
        read(old=old, new=new)
    assert words in str(caught.value)


def test_a_line_open_at_one_end_that_charges_is_refused_and_one_open_at_both_is_out():
    charging = "c1=0 c0=0\nNew Transformer.step"
    with pytest.raises(
        CaseError, match=r"line 23: line\.tie is open at terminal 1 alone.* Open both \(Open line\.tie 2\)"
    ):
        read(old=charging, new="c1=3e9 c0=0\nNew Transformer.step")
    case = read_opendss(
        "master.dss",
        read=lambda name: (
            FILES[name].replace(charging, charging.replace("c1=0", "c1=3e9"))
            + "Open Line.tie 2\n" * (name == "master.dss")
        ),
    )
    assert not case.line.in_service[row(case.line, "tie")]
    closed = read(old="Open Line.tie", new="Open Line.tie\nClose Line.tie")
    assert closed.line.in_service[row(closed.line, "tie")]


def test_redirects_are_resolved_beside_the_file_that_holds_them():
    files = {
        "master.dss": MASTER.replace("Codes.dss", r"parts\Codes.dss"),
        "parts/Codes.dss": "Redirect three.dss\n" + CODES[CODES.index("New linecode.two") :],
        "parts/three.dss": CODES[: CODES.index("New linecode.two")],
    }
    assert read_opendss("master.dss", read=files.__getitem__).node_names == read().node_names


def test_clear_forgets_what_is_defined_but_not_the_base_frequency():
    text = f"Set DefaultBaseFrequency=50\nNew Circuit.other\nNew Line.a bus1=x bus2=y\n{MASTER}"
    codes = CODES.replace("BaseFreq=60", "BaseFreq=50")
    case = read_opendss("master.dss", read=lambda name: text if name == "master.dss" else codes)
    np.testing.assert_allclose(case.line.b_us, read().line.b_us * 50 / 60, rtol=1e-12)
    assert case.name == "small" and case.line.name.tolist() == read().line.name.tolist()


WIRE = "New Wiredata.w Rac=0.3 Runits=mi GMRac=0.02 GMRunits=ft Diam=0.7 Radunits=in "
HUNG = (
    "New LineGeometry.g nconds=3 nphases=3 cond=1 wire={first} units=ft x=-4 h=28 cond=2 wire=w x=-1 h=28 "
    "cond=3 wire=w h=28 "
)
SPACED = "New LineSpacing.s nconds=3 nphases=3 units=ft x=[-4 -1 3] h=[28 28 28]\n"
# commands -> NormAmps of line l as the engine has it (dss_python 0.15.7), where the script gives one at all
AMPS = {
    "line": ("New Line.l {ends} normamps=250", 250),
    "none": ("New Line.l {ends} emergamps=250", 0),
    "code": ("New Linecode.k nphases=3 r1=0.3 normamps=300\nNew Line.l {ends} linecode=k", 300),
    "code behind": ("New Linecode.k nphases=3 r1=0.3 normamps=300\nNew Line.l {ends} normamps=111 linecode=k", 300),
    "code before": ("New Linecode.k nphases=3 r1=0.3 normamps=300\nNew Line.l {ends} linecode=k normamps=111", 111),
    "code, r1": ("New Linecode.k nphases=3 r1=0.3 normamps=300\nNew Line.l {ends} linecode=k r1=0.2", 300),
    "code edited": (
        "New Linecode.k nphases=3 r1=0.3 normamps=300\nNew Line.l {ends} linecode=k\nLinecode.k.normamps=222",
        300,
    ),
    "switch": ("New Line.l {ends} normamps=111 switch=yes", 111),
    "wire": (f"{WIRE} normamps=500\n{HUNG.format(first='w')}\nNew Line.l {{ends}} normamps=77 geometry=g", 500),
    "geometry": (f"{WIRE} normamps=500\n{HUNG.format(first='w')} normamps=450\nNew Line.l {{ends}} geometry=g", 450),
    "first wire": (
        f"{WIRE} normamps=500\n{WIRE.replace('.w', '.v')} normamps=700\n{HUNG.format(first='v')}\n"
        "New Line.l {ends} geometry=g",
        700,
    ),
    "spacing": (
        f"{WIRE} normamps=500\n{WIRE.replace('.w', '.v')} normamps=700\n{SPACED}"
        "New Line.l {ends} spacing=s wires=[v w w]",
        700,
    ),
}


@pytest.mark.parametrize("name", AMPS)
def test_the_rating_of_a_line_is_that_of_the_engine(name: str):
    commands, amps = AMPS[name]
    text = f"New Circuit.c bus1=a basekv=12.47\n{commands.format(ends='bus1=a bus2=b length=1')}\n"
    case = read_opendss("c.dss", read=lambda _: f"{text}New Load.x bus1=b phases=3 kv=12.47 kw=10\n")
    assert case.line.rating_amp.tolist() == [amps]


def test_lines_without_a_rating_beside_others_are_named():
    text = "New Circuit.c bus1=a basekv=12.47\nNew Line.l bus1=a bus2=b normamps=90\nNew Line.m bus1=b bus2=c\n"
    case = read_opendss("c.dss", read=lambda _: f"{text}New Load.x bus1=c phases=3 kv=12.47 kw=10\n")
    assert case.notes == ("lines without normamps have no rating, where OpenDSS takes 400 A (line m)",)
    assert from_arrays(to_arrays(case)).line.rating_amp.tolist() == [90, 0]


def test_what_is_left_out_is_in_the_notes_and_validation_repeats_them():
    case = read(old="LineCode=three", new="emergamps=300 faultrate=0.2 LineCode=three")
    assert "emergency ratings are not represented (line.emergamps)" in case.notes
    assert "failure rates are not represented (line.faultrate)" in case.notes
    found = [str(p) for p in validate_threephase(case) if p.field == "notes"]
    assert len(found) == len(case.notes) and "line.emergamps" in " ".join(found)
    assert from_arrays(to_arrays(case)).notes == case.notes
    assert not load_feeder(13).notes


def test_all_problems_of_a_script_come_together_with_their_lines():
    broken = {
        "master.dss": MASTER.replace("kW=90", "kW=ninety")
        .replace("XHL=1 ", "XHL=0 colour=red ")
        .replace("Solve", "Sing"),
        "Codes.dss": CODES.replace("New linecode.two", "New gadget.g\nNew linecode.two kron=yes"),
    }
    with pytest.raises(CaseError) as caught:
        read_opendss("master.dss", read=broken.__getitem__)
    found = str(caught.value).splitlines()
    assert found[0] == "6 problems:"
    places = ["Codes.dss, line 5", *(f"master.dss, line {k}" for k in (14, 26, 14, 17))]
    for place, words in zip(
        [*places, "Codes.dss, line 6"],
        ["gadget.g", "colour", "'Sing'", "xhl=0", "kw=ninety", "kron=yes"],
        strict=True,
    ):
        assert sum(line.startswith(f"{place}: ") and words in line for line in found) == 1, (place, words, found)


def test_what_refers_to_a_lost_element_is_no_problem_of_its_own():
    for old, new in (("New linecode.three", "New linecode.three kron=("), ("New Load.t ", "New Load.t kW=( ")):
        with pytest.raises(CaseError) as caught:
            read(old=old, new=new)
        assert "is never closed" in str(caught.value) and "problems:" not in str(caught.value)


def test_a_file_of_another_kind_lists_so_many_problems_and_no_more():
    with pytest.raises(CaseError) as caught:
        read_opendss("letter.txt", read=lambda _: "Dear engineer,\n" * 100_000)
    assert len(str(caught.value).splitlines()) == script.MOST_PROBLEMS + 1


def test_a_fuse_that_is_open_is_refused_and_a_closed_one_noted():
    for text in ("action=open", "normal=closed state=(open open open)", "nor=[closed, o, closed]"):
        with pytest.raises(CaseError, match=r"fuse\.f: it opens line\.a.* Open line\.a 1"):
            read(old="\nSolve", new=f"\nNew Fuse.f line.a 1 {text}")
    case = read(old="\nSolve", new="\nNew Fuse.f line.a 1 state=closed")
    assert any("protection" in note for note in case.notes)


def test_a_load_of_a_shape_that_holds_kw_is_refused_because_the_engine_takes_its_maximum():
    shape = "New Loadshape.s npts=2 interval=1 mult=(3 5) UseActual=yes\n"
    for change in ("", "Loadshape.s.useactual=y\n"):
        with pytest.raises(CaseError, match=r"load\.s: daily=s: OpenDSS gives the load the maximum of the shape"):
            read(old="New Load.s ", new=f"{shape}{change}New Load.s daily=s ")
    for change in ("BatchEdit LoadShape..* useactual=no\n", "Edit Loadshape.s useactual=no\n"):
        assert read(old="New Load.s ", new=f"{shape}{change}New Load.s daily=s ").load.p_kw[0] == 30


def test_a_nul_in_a_script_is_no_part_of_a_value():
    assert read(old="units=ft", new="units=ft\0").line.r_ohm.tolist() == read().line.r_ohm.tolist()


def test_coordinates_go_into_the_case_and_a_wrong_row_names_its_line():
    files = FILES | {
        "master.dss": MASTER + "BusCoords xy.csv\n",
        "xy.csv": "Head, 1, 2.5\n! none\n\nmid\t3 4\nmoon 5 6\n",
    }
    place = read_opendss("master.dss", read=files.__getitem__).place
    assert (place.bus.tolist(), place.x.tolist(), place.y.tolist()) == (["head", "mid"], [1, 3], [2.5, 4])
    case = read_opendss("master.dss", read=files.__getitem__)
    assert from_arrays(to_arrays(case)).place.x.tolist() == [1, 3]
    for row_, words in (("head 1", "line 1: 'head 1' is no row"), ("head x 1", "line 1: 'head x 1' is no row")):
        with pytest.raises(CaseError, match=words):
            read_opendss("master.dss", read=(files | {"xy.csv": row_}).__getitem__)


def test_a_missing_script_is_named(tmp_path: Path):
    with pytest.raises(DataMissing, match=r"nothing\.dss"):
        read_opendss(tmp_path / "nothing.dss")
    (tmp_path / "master.dss").write_text(MASTER)
    with pytest.raises(DataMissing, match=r"Codes\.dss"):
        load_feeder(tmp_path / "master.dss")
    (tmp_path / "Codes.dss").write_text(CODES)
    assert load_feeder(tmp_path / "master.dss").node_names == read().node_names


@pytest.mark.parametrize("name", SHIPPED)
def test_nodes_and_load_totals_are_those_of_opendss(name: str):
    case, expected = load_feeder(name), read_npz(DATA / SHIPPED[name] / "expected.npz")
    assert set(case.node_names) == set(expected["nodes"].tolist()) and case.n_node == expected["nodes"].size
    totals = (case.load.p_kw.sum(), case.load.q_kvar.sum())
    np.testing.assert_allclose(totals, expected["load_total"], **EXACT)


def test_the_loads_of_case123_are_the_published_ones():
    case = load_feeder(123)
    load = case.load
    assert len(set(load.name)) == 91
    phase = case.node.phase[load.node]
    totals = [(load.p_kw[phase == k].sum(), load.q_kvar[phase == k].sum()) for k in (1, 2, 3)]
    # delta loads count for their first phase, as in the published table
    np.testing.assert_allclose(totals, [(1420, 775), (915, 515), (1155, 630)], rtol=1e-12)
    kinds = [
        {n for n, z, i in zip(load.name, load.z_p, load.i_p, strict=True) if (z, i) == k}
        for k in ((0, 0), (1, 0), (0, 1))
    ]
    assert [len(kind) for kind in kinds] == [59, 17, 15]
    assert len(set(load.name[load.end >= 0])) == 7


def test_case123_has_its_ties_open_and_its_published_taps():
    case = load_feeder("ieee123")
    assert set(case.line.name[~case.line.in_service]) == {"sw7", "sw8"}
    assert dict(zip(case.regulator.name.tolist(), case.regulator.tap.tolist(), strict=True)) == {
        **{"reg1a": 7, "reg2a": -1, "reg3a": 0, "reg3c": -1, "reg4a": 8, "reg4b": 1, "reg4c": 5}
    }
    assert case.regulator.unit[0].min() >= 0  # the head regulator moves three phases together


def test_a_stripped_feeder_has_plain_loads_and_nothing_that_regulates():
    case = stripped(load_feeder(123))
    assert len(case.capacitor) == 0
    assert (case.taps == 1).all() and (case.source.v_pu == 1.05).all()
    assert not case.load.z_p.any() and not case.load.i_q.any()


def test_feeders_survive_arrays_and_pickles_and_stay_read_only():
    case = load_feeder(13)
    for other in (from_arrays(to_arrays(case)), pickle.loads(pickle.dumps(case))):
        for key, value in to_arrays(case).items():
            np.testing.assert_array_equal(to_arrays(other)[key], value)
        with pytest.raises(ValueError, match="read-only"):
            other.load.p_kw[0] = 1.0


def test_load_case_sends_the_user_of_a_feeder_to_load_feeder():
    with pytest.raises(CaseError, match=r"123 is a three-phase feeder.* load_feeder reads it"):
        load_case(123)


def test_an_unknown_feeder_or_node_names_the_nearest():
    assert list_feeders() == ("case13", "case34", "case123")
    with pytest.raises(ValueError, match="case123"):
        load_feeder("case124")
    with pytest.raises(CaseError, match=r"Did you mean '611\.3'"):
        load_feeder(13).position("611.33")
