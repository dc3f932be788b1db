"""Rules of the OpenDSS reader for every property, option and command: apply it, note it, or refuse it by name.

One table for each class lists the properties in the order in which OpenDSS lists them, because a script may abbreviate
a name, and the first that begins with the letters given is then meant. A name that is in no table is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.cases.readers.opendss import values as v

APPLIED, NOTED, FIXED, REFUSED, IDLE = "applied", "noted", "fixed", "refused", "idle"


@dataclass(frozen=True)
class Rule:
    """Treatment of one property by the reader.

    effect:  "applied" to the case; "noted": read, left out and listed in the notes of the case; "fixed": read at its
             default and refused at any other value; "refused"; "idle": a command or option that asks for a solution
             or for output, on which the network does not depend
    parse:   from text to the value
    text:    reason of a note, or what to do about a refusal
    """

    effect: str
    parse: Callable[[str], Any] = v.unquote
    text: str = ""


Rules = dict[str, Rule]


def table(*runs: tuple[Rule, str]) -> Rules:
    """Rules by name from runs of names that share one."""
    return {name: rule for rule, names in runs for name in names.split()}


def resolve(kind: str, name: str, rules: Rules) -> str:
    """The full name of a possibly abbreviated one; raises ValueError for an unknown one."""
    if name in rules:
        return name
    for full in rules:
        if full.startswith(name):
            return full
    raise ValueError(unknown(kind, name, rules))


def applied(parse: Callable[[str], Any]) -> Rule:
    return Rule(APPLIED, parse)


def noted(reason: str, parse: Callable[[str], Any] = v.unquote) -> Rule:
    return Rule(NOTED, parse, reason)


def fixed(*defaults: str, remedy: str) -> Rule:
    return Rule(FIXED, _default(defaults), remedy)


def refused(remedy: str) -> Rule:
    return Rule(REFUSED, text=remedy)


def _default(defaults: tuple[str, ...]) -> Callable[[str], bool]:
    """Test whether a text is one of the values, as a number or as a word."""

    def same(text: str) -> bool:
        value = v.word(text)
        try:
            return v.number(value) in [v.number(d) for d in defaults]
        except ValueError:
            return value in defaults

    return same


RATING = noted("ratings are not represented")
EMERGENCY = noted("emergency ratings are not represented")
RELIABILITY = noted("failure rates are not represented")
CONTROLS = "controls are not represented, devices stay as the script sets them"
HARMONIC = noted("what acts beyond the base frequency is not represented")
SERIES = noted("time series and growth are not represented, the case is the snapshot")
CUSTOMERS = noted("classes, statistics and weights of customers are not represented")
THERMAL = noted("thermal and magnetic models of transformers are not represented")
MACHINE = noted("dynamics of machines and inverters are not represented")
USER_MODEL = refused("Remove it: the power is constant.")
LABEL = noted("labels are not represented")
TIMING = noted("delays and logs of controls are not represented")
MOST_WINDINGS = 3
MOST_CONDUCTORS = 24
MOST_EXPONENT = 20.0  # of a voltage: loads have exponents up to 7, and any file must solve in finite numbers
LIKE = applied(v.word)  # the parser of scripts replaces it by what it copies
ON = fixed("y", "yes", "t", "true", remedy="Remove the element from the script.")
NO = ("n", "no", "f", "false")
ZERO = fixed("0", remedy="Remove the property: it is not represented.")
SHIELD = refused("Tape shields are not represented: give the matrices that the cable amounts to.")
UNBALANCED = "Remove it: every phase follows its own voltage."
REVERSE = "Remove it: the control of reverse power is not represented."
ANY = applied(v.number)
POSITIVE, NONNEGATIVE = applied(v.positive), applied(v.nonnegative)
CONDUCTORS = applied(v.count(MOST_CONDUCTORS))
NAMES = applied(v.names)
PHASES = applied(v.one_of(1, 2, 3))
SINGLE_OR_THREE = applied(v.one_of(1, 3))
BASEFREQ = applied(v.hertz)
BUS, WORD, TRUTH, DELTA, UNIT = (applied(p) for p in (v.bus, v.word, v.truth, v.is_delta, v.unit))
MATRICES = ((applied(v.resistances), "rmatrix"), (applied(v.matrix), "xmatrix cmatrix"))
SEQUENCES = ((NONNEGATIVE, "r1"), (ANY, "x1"), (NONNEGATIVE, "r0"), (ANY, "x0"), (NONNEGATIVE, "c1 c0"))
SUSCEPTANCE = refused("Give c1 and c0 [nF].")
AMPS = ((ANY, "normamps"), (EMERGENCY, "emergamps"))
PD_TAIL = ((RATING, "normamps emergamps"), (RELIABILITY, "faultrate pctperm repair"), (BASEFREQ, "basefreq"))
SOURCE_OHM = refused("Give r1, x1, r0 and x0 [ohm], or mvasc3 and mvasc1.")


def array(parse: Callable[[str], object]) -> Rule:
    return applied(v.array(parse, MOST_WINDINGS))


WINDINGS = ((applied(v.one_of(2, 3)), "windings"), (applied(v.one_of(1, 2, 3)), "wdg"))
WINDING = (
    (DELTA, "conn"),
    (POSITIVE, "kv kva tap"),
    (NONNEGATIVE, "%r"),
    (applied(v.open_or_ohm), "rneut"),
    (ANY, "xneut"),
)
ARRAYS = ((array(v.is_delta), "conns"), (array(v.positive), "kvs kvas taps"))
REACTANCES = ((POSITIVE, "xhl xht xlt"), (refused("Give xhl, xht and xlt."), "xscarray"))
TAPS = (
    (fixed("1.1", remedy="Remove it: taps reach from 0.9 to 1.1."), "maxtap"),
    (fixed("0.9", remedy="Remove it: taps reach from 0.9 to 1.1."), "mintap"),
    (fixed("32", remedy="Remove it: 32 steps are represented."), "numtaps"),
)
CONDUCTOR = (
    (POSITIVE, "rdc rac"),
    (UNIT, "runits"),
    (POSITIVE, "gmrac"),
    (UNIT, "gmrunits"),
    (POSITIVE, "radius"),
    (UNIT, "radunits"),
    *AMPS,
    (POSITIVE, "diam"),
    (RATING, "seasons ratings"),
    (POSITIVE, "capradius"),
    (refused("Write the conductor out."), "like"),
)

PROPERTIES: dict[str, Rules] = {
    "vsource": table(
        (BUS, "bus1"),
        (POSITIVE, "basekv pu"),
        (ANY, "angle"),
        (BASEFREQ, "frequency"),
        (fixed("3", remedy="Model a three-phase source."), "phases"),
        (POSITIVE, "mvasc3 mvasc1"),
        (POSITIVE, "x1r1 x0r0 isc3 isc1"),
        *SEQUENCES[:4],
        (HARMONIC, "scantype"),
        (fixed("pos", "positive", remedy="Exchange the nodes of bus1."), "sequence"),
        (refused("A source lies between its bus and the ground."), "bus2"),
        (SOURCE_OHM, "z1 z0 z2 puz1 puz0 puz2 basemva"),
        (SERIES, "yearly daily duty"),
        (fixed("thevenin", remedy="Give r1, x1, r0 and x0 [ohm]."), "model"),
        (SOURCE_OHM, "puzideal"),
        (HARMONIC, "spectrum"),
        (BASEFREQ, "basefreq"),
        (ON, "enabled"),
        (refused("Write the source out."), "like"),
    ),
    "line": table(
        (BUS, "bus1 bus2"),
        (WORD, "linecode"),
        (POSITIVE, "length"),
        (CONDUCTORS, "phases"),
        *SEQUENCES,
        *MATRICES,
        (TRUTH, "switch"),
        (ANY, "rg xg"),
        (fixed("100", remedy="Remove it: the earth has 100 ohm m."), "rho"),
        (WORD, "geometry"),
        (UNIT, "units"),
        (WORD, "spacing"),
        (NAMES, "wires"),
        (applied(v.earth_model), "earthmodel"),
        (NAMES, "cncables"),
        (SHIELD, "tscables"),
        (SUSCEPTANCE, "b1 b0"),
        (RATING, "seasons ratings"),
        (LABEL, "linetype"),
        *AMPS,
        *PD_TAIL[1:],
        (TRUTH, "enabled"),
        (refused("OpenDSS copies neither unit nor sequence values: write the line out, or use a linecode."), "like"),
    ),
    "linecode": table(
        (CONDUCTORS, "nphases"),
        *SEQUENCES,
        (UNIT, "units"),
        *MATRICES,
        (BASEFREQ, "basefreq"),
        *AMPS,
        (RELIABILITY, "faultrate pctperm repair"),
        (fixed(*NO, remedy="Give the matrices after the reduction."), "kron"),
        (ANY, "rg xg"),
        (applied(v.within(0.01)), "rho"),
        (noted("the neutral of a line code serves its reduction alone"), "neutral"),
        (SUSCEPTANCE, "b1 b0"),
        (RATING, "seasons ratings"),
        (LABEL, "linetype"),
        (refused("Write the line code out."), "like"),
    ),
    "load": table(
        (PHASES, "phases"),
        (BUS, "bus1"),
        (POSITIVE, "kv"),
        (ANY, "kw"),
        (applied(v.within(-1.0, 1.0)), "pf"),
        (applied(v.one_of(1, 2, 4, 5, 8)), "model"),
        (SERIES, "yearly daily duty growth"),
        (DELTA, "conn"),
        (ANY, "kvar"),
        (fixed("-1", remedy="Remove it: the neutral of a load is grounded at its node."), "rneut"),
        (ZERO, "xneut"),
        (applied(v.load_status), "status"),
        (CUSTOMERS, "class"),
        (POSITIVE, "vminpu vmaxpu"),
        (RATING, "vminnorm vminemerg"),
        (POSITIVE, "xfkva allocationfactor kva"),
        (CUSTOMERS, "%mean %stddev"),
        (applied(v.within(-MOST_EXPONENT, MOST_EXPONENT)), "cvrwatts cvrvars"),
        (refused("Give kW and kvar."), "kwh kwhdays cfactor"),
        (SERIES, "cvrcurve"),
        (CUSTOMERS, "numcust"),
        (applied(v.zip_shares), "zipv"),
        (HARMONIC, "%seriesrl"),
        (CUSTOMERS, "relweight"),
        (NONNEGATIVE, "vlowpu"),
        (HARMONIC, "puxharm xrharm spectrum"),
        (noted("loads are the same at every base frequency"), "basefreq"),
        (ON, "enabled"),
        (LIKE, "like"),
    ),
    "transformer": table(
        (SINGLE_OR_THREE, "phases"),
        *WINDINGS,
        (BUS, "bus"),
        *WINDING,
        (array(v.bus), "buses"),
        *ARRAYS,
        *REACTANCES,
        (THERMAL, "thermal n m flrise hsrise"),
        (NONNEGATIVE, "%loadloss %noloadloss"),
        (RATING, "normhkva emerghkva"),
        (LABEL, "sub"),
        *TAPS,
        (LABEL, "subname"),
        (NONNEGATIVE, "%imag ppm_antifloat"),
        (array(v.nonnegative), "%rs"),
        (LABEL, "bank"),
        (WORD, "xfmrcode"),
        (TRUTH, "xrconst"),
        (POSITIVE, "x12 x13 x23"),
        (fixed("lag", "ansi", remedy="Exchange the nodes of the delta winding."), "leadlag"),
        (refused("It is a result: remove it."), "wdgcurrents"),
        (THERMAL, "core rdcohms"),
        (RATING, "seasons ratings"),
        *PD_TAIL,
        (ON, "enabled"),
        (LIKE, "like"),
    ),
    "xfmrcode": table(
        (SINGLE_OR_THREE, "phases"),
        *WINDINGS,
        *WINDING,
        *ARRAYS,
        *REACTANCES,
        (THERMAL, "thermal n m flrise hsrise"),
        (NONNEGATIVE, "%loadloss %noloadloss"),
        (RATING, "normhkva emerghkva"),
        *TAPS,
        (NONNEGATIVE, "%imag ppm_antifloat"),
        (array(v.nonnegative), "%rs"),
        (POSITIVE, "x12 x13 x23"),
        (THERMAL, "rdcohms"),
        (RATING, "seasons ratings"),
        (refused("Write the transformer code out."), "like"),
    ),
    "wiredata": table(*CONDUCTOR),
    "cndata": table(
        (applied(v.number), "k"),
        (POSITIVE, "diastrand gmrstrand rstrand epsr inslayer diains diacable"),
        *CONDUCTOR,
    ),
    "linegeometry": table(
        (CONDUCTORS, "nconds nphases cond"),
        (WORD, "wire"),
        (ANY, "x h"),
        (UNIT, "units"),
        *AMPS,
        (TRUTH, "reduce"),
        (WORD, "spacing"),
        (NAMES, "wires"),
        (WORD, "cncable"),
        (SHIELD, "tscable"),
        (NAMES, "cncables"),
        (SHIELD, "tscables"),
        (RATING, "seasons ratings"),
        (LABEL, "linetype"),
        (refused("Write the geometry out."), "like"),
    ),
    "linespacing": table(
        (CONDUCTORS, "nconds nphases"),
        (applied(v.numbers), "x h"),
        (UNIT, "units"),
        (refused("Write the spacing out."), "like"),
    ),
    "reactor": table(
        (BUS, "bus1 bus2"),
        (PHASES, "phases"),
        (POSITIVE, "kvar kv"),
        (DELTA, "conn"),
        (refused("Give r and x."), "rmatrix xmatrix"),
        (fixed(*NO, remedy="Give r, x and rp."), "parallel"),
        (NONNEGATIVE, "r"),
        (ANY, "x"),
        (POSITIVE, "rp"),
        (refused("Give r and x."), "z1 z2 z0 z"),
        (refused("Remove it: resistance and inductance are those of the base frequency."), "rcurve lcurve"),
        (refused("Give x."), "lmh"),
        *PD_TAIL,
        (ON, "enabled"),
        (refused("Write the reactor out."), "like"),
    ),
    "regcontrol": table(
        (WORD, "transformer"),
        (applied(v.one_of(2)), "winding"),
        (POSITIVE, "vreg band ptratio ctprim"),
        (ANY, "r x"),
        (refused("Remove it: the voltage at the regulator is controlled."), "bus"),
        (TIMING, "delay"),
        (fixed(*NO, remedy=REVERSE), "reversible"),
        (noted("settings for reverse power are not represented"), "revvreg revband revr revx"),
        (TIMING, "tapdelay debugtrace"),
        (noted("the largest change of taps in one control action is not represented", v.positive), "maxtapchange"),
        (TIMING, "inversetime"),
        (fixed("2", remedy="Regulate the second winding."), "tapwinding"),
        (ZERO, "vlimit"),
        (fixed("1", remedy="Remove it: the first phase is measured."), "ptphase"),
        (noted("settings for reverse power are not represented"), "revthreshold revdelay"),
        (fixed(*NO, remedy=REVERSE), "revneutral"),
        (TIMING, "eventlog"),
        (noted("it serves a remote bus alone"), "remoteptratio"),
        (refused("Give the tap of the transformer: taps=[1.0 1.0125]."), "tapnum"),
        (fixed(*NO, remedy="Remove it."), "reset"),
        (ZERO, "ldc_z rev_z"),
        (fixed(*NO, remedy=REVERSE), "cogen"),
        (noted("controls are the same at every base frequency"), "basefreq"),
        (ON, "enabled"),
        (LIKE, "like"),
    ),
    "generator": table(
        (PHASES, "phases"),
        (BUS, "bus1"),
        (POSITIVE, "kv"),
        (ANY, "kw"),
        (applied(v.within(-1.0, 1.0)), "pf"),
        (ANY, "kvar"),
        (fixed("1", remedy="Give model=1: constant power."), "model"),
        (POSITIVE, "vminpu vmaxpu"),
        (SERIES, "yearly daily duty"),
        (fixed("default", remedy="Remove it: the generator runs. Remove the generator where it does not."), "dispmode"),
        (noted("a generator in its default mode of dispatch runs"), "dispvalue"),
        (DELTA, "conn"),
        (applied(v.fixed_or_variable), "status"),
        (CUSTOMERS, "class"),
        (noted("generators of constant power control no voltage"), "vpu maxkvar minkvar pvfactor"),
        (noted("a generator in its default mode of dispatch runs"), "forceon"),
        (MACHINE, "kva mva xd xdp xdpp h d"),
        (USER_MODEL, "usermodel userdata shaftmodel shaftdata"),
        (SERIES, "dutystart"),
        (TIMING, "debugtrace"),
        (fixed(*NO, remedy=UNBALANCED), "balanced"),
        (MACHINE, "xrdp"),
        (fixed(*NO, remedy="Remove it: fuel is not represented."), "usefuel"),
        (noted("fuel is not represented"), "fuelkwh %fuel %reserve refuel"),
        (USER_MODEL, "dynamiceq dynout"),
        (HARMONIC, "spectrum"),
        (noted("constant power is the same at every base frequency"), "basefreq"),
        (ON, "enabled"),
        (refused("Write the generator out."), "like"),
    ),
    "pvsystem": table(
        (PHASES, "phases"),
        (BUS, "bus1"),
        (POSITIVE, "kv"),
        (NONNEGATIVE, "irradiance"),
        (POSITIVE, "pmpp"),
        (NONNEGATIVE, "%pmpp"),
        (noted("the temperature serves a curve alone"), "temperature"),
        (applied(v.within(-1.0, 1.0)), "pf"),
        (DELTA, "conn"),
        (ANY, "kvar"),
        (POSITIVE, "kva"),
        (NONNEGATIVE, "%cutin %cutout"),
        (
            refused("Remove it, and give pmpp and irradiance so that their product is the power at the grid."),
            "effcurve",
        ),
        (refused("Remove it, and give pmpp at the temperature of the panels."), "p-tcurve"),
        (MACHINE, "%r %x"),
        (fixed("1", remedy="Give model=1: constant power."), "model"),
        (POSITIVE, "vminpu vmaxpu"),
        (fixed(*NO, remedy=UNBALANCED), "balanced"),
        (fixed(*NO, remedy="Remove it: currents are not limited."), "limitcurrent"),
        (SERIES, "yearly daily duty tyearly tdaily tduty"),
        (CUSTOMERS, "class"),
        (USER_MODEL, "usermodel userdata"),
        (TIMING, "debugtrace"),
        (TRUTH, "varfollowinverter"),
        (SERIES, "dutystart"),
        (TRUTH, "wattpriority"),
        (fixed(*NO, remedy="Remove it: give kvar, or wattpriority."), "pfpriority"),
        (fixed("0", remedy="Remove it: give the kvar of the snapshot."), "%pminnovars %pminkvarmax"),
        (refused("Remove it: give the kvar of the snapshot."), "kvarmax kvarmaxabs"),
        (MACHINE, "kvdc kp pitol safevoltage safemode"),
        (USER_MODEL, "dynamiceq dynout"),
        (fixed("gfl", remedy="Remove it: inverters follow the grid."), "controlmode"),
        (MACHINE, "amplimit amplimitgain"),
        (HARMONIC, "spectrum"),
        (noted("constant power is the same at every base frequency"), "basefreq"),
        (ON, "enabled"),
        (refused("Write the system out."), "like"),
    ),
    "storage": table(
        (PHASES, "phases"),
        (BUS, "bus1"),
        (POSITIVE, "kv"),
        (DELTA, "conn"),
        (ANY, "kw kvar"),
        (applied(v.within(-1.0, 1.0)), "pf"),
        (POSITIVE, "kva"),
        (NONNEGATIVE, "%cutin %cutout"),
        (refused("Remove it, and give the kW at the grid."), "effcurve"),
        (TRUTH, "varfollowinverter"),
        (refused("Remove it: give the kvar of the snapshot."), "kvarmax kvarmaxabs"),
        (TRUTH, "wattpriority"),
        (fixed(*NO, remedy="Remove it: give kvar, or wattpriority."), "pfpriority"),
        (fixed("0", remedy="Remove it: give the kvar of the snapshot."), "%pminnovars %pminkvarmax"),
        (POSITIVE, "kwrated %kwrated kwhrated"),
        (NONNEGATIVE, "kwhstored %stored %reserve"),
        (applied(v.storage_state), "state"),
        (NONNEGATIVE, "%discharge %charge"),
        (noted("efficiencies act on the energy stored, not on the snapshot"), "%effcharge %effdischarge"),
        (NONNEGATIVE, "%idlingkw"),
        (refused("Remove it: OpenDSS has not read it since 2020."), "%idlingkvar"),
        (MACHINE, "%r %x"),
        (fixed("1", remedy="Give model=1: constant power."), "model"),
        (POSITIVE, "vminpu vmaxpu"),
        (fixed(*NO, remedy=UNBALANCED), "balanced"),
        (fixed(*NO, remedy="Remove it: currents are not limited."), "limitcurrent"),
        (SERIES, "yearly daily duty"),
        (
            fixed("default", "external", remedy="Remove it, and give the kW of the snapshot: no dispatch acts on it."),
            "dispmode",
        ),
        (SERIES, "dischargetrigger chargetrigger timechargetrig"),
        (CUSTOMERS, "class"),
        (USER_MODEL, "dynadll dynadata usermodel userdata"),
        (TIMING, "debugtrace"),
        (MACHINE, "kvdc kp pitol safevoltage safemode"),
        (USER_MODEL, "dynamiceq dynout"),
        (fixed("gfl", remedy="Remove it: inverters follow the grid."), "controlmode"),
        (MACHINE, "amplimit amplimitgain"),
        (HARMONIC, "spectrum"),
        (noted("constant power is the same at every base frequency"), "basefreq"),
        (ON, "enabled"),
        (refused("Write the storage out."), "like"),
    ),
    "capacitor": table(
        (BUS, "bus1"),
        (refused("A capacitor lies between its nodes and the ground, or in delta."), "bus2"),
        (SINGLE_OR_THREE, "phases"),
        (NONNEGATIVE, "kvar"),
        (POSITIVE, "kv"),
        (DELTA, "conn"),
        (refused("Give kvar."), "cmatrix cuf"),
        (ZERO, "r xl harm"),
        (fixed("1", remedy="Define a capacitor for each step that is on."), "numsteps"),
        (fixed("1", remedy="Remove the capacitor."), "states"),
        *PD_TAIL,
        (ON, "enabled"),
        (LIKE, "like"),
    ),
}

MOST_POINTS = 1_000_000  # of a load shape
BINARY = refused("Save the numbers as text, one row each, and name the file in csvfile.")
NORMALIZED = refused("Write the multipliers as they are meant.")
TEXT = applied(v.unquote)
# load shapes are read as series, beside the case
LOADSHAPE: Rules = table(
    (applied(v.count(MOST_POINTS)), "npts"),
    (POSITIVE, "interval"),
    (TEXT, "mult"),
    (refused("Give interval, and one value for each."), "hour"),
    (noted("statistics of load shapes are not represented"), "mean stddev"),
    (TEXT, "csvfile"),
    (BINARY, "sngfile dblfile"),
    (applied(v.shape_action), "action"),
    (noted("reactive power follows the active power"), "qmult"),
    (TRUTH, "useactual"),
    (noted("statistics of load shapes are not represented"), "pmax qmax"),
    (POSITIVE, "sinterval minterval"),
    (NORMALIZED, "pbase qbase"),
    (TEXT, "pmult pqcsvfile"),
    (noted("how the engine holds a shape is not represented"), "memorymapping"),
    (applied(v.shape_edge), "interpolation"),
    (refused("Write the shape out."), "like"),
)
SWITCHING = ("fuse", "relay", "recloser", "swtcontrol")
# classes that are read and left out, all of their properties with them
CLASSES: dict[str, str] = {
    **dict.fromkeys(["energymeter", "monitor", "sensor"], "meters are not represented"),
    **dict.fromkeys(SWITCHING, "protection is not represented, switches stay as they are"),
    **dict.fromkeys(["capcontrol", "invcontrol", "expcontrol"], CONTROLS),
    **dict.fromkeys(["loadshape", "growthshape", "tshape"], SERIES.text),
    "xycurve": "curves of controls and inverters are not represented",
    "spectrum": HARMONIC.text,
    "tcc_curve": "protection is not represented",
}
# classes that are refused, with what to do beside removing them
REMEDIES: dict[str, str] = {
    "storagecontroller": "It sets %charge, %discharge and %reserve of its storage: give these, and remove it.",
    "fault": "Write it as a reactor of phases=1 with r and x=0.",
}
