"""Small feeders of our own making, one for every construct of OpenDSS that the reader takes, shared with the recorder.

Each is the base feeder with some of its commands replaced. `APPLIED` and `NOTED` have one for every property that the
reader applies or notes, so a walk over the properties of the engine finds a feeder for each.
"""

from __future__ import annotations

from collections.abc import Callable

from powerzoo_jax.cases.readers.opendss.rules import NOTED, PROPERTIES
from tests.references import opendss_generation
from tests.references.opendss_generation import generating, shining, storing
from tests.references.opendss_script import BASE, Change, beside, parallel, script

UNEQUAL = {"load": "New Load.d bus1=low.2.4 phases=1 kv=0.277 kw=60 kvar=20"}
SINGLE = "New Transformer.s phases=1 xhl=3 "
OWN_CODE = "New Linecode.k nphases=3 units=mi "
LOW = "New Load.d bus1=low phases=3 kv=0.48 "
TRIANGLE = "(0.4 | 0.1 0.5 | 0.12 0.15 0.6)"


def strung(geometry: str = "", wire: str = "", cable: str = "", spacing: str = "", line: str = "") -> Change:
    """A line on poles and a cable in the ground beside the base feeder, with more properties of their parts."""
    return beside(
        f"New Wiredata.w Rac=0.306 Runits=mi GMRac=0.0244 GMRunits=ft Diam=0.721 Radunits=in {wire}\n"
        "New Wiredata.n Rac=0.592 Runits=mi GMRac=0.00814 GMRunits=ft Diam=0.563 Radunits=in\n"
        "New CNData.c k=13 DiaStrand=0.0641 GmrStrand=0.00208 Rstrand=14.8722 EpsR=2.3 InsLayer=0.22 DiaIns=1.06\n"
        f"~ DiaCable=1.16 Rac=0.41 Runits=mi GMRac=0.0171 GMRunits=ft Diam=0.567 Radunits=in {cable}\n"
        f"New LineSpacing.s nconds=3 nphases=3 units=in x=[-6 0 6] h=[-48 -48 -48] {spacing}\n"
        "New LineGeometry.g nconds=4 nphases=3 reduce=yes\n~ cond=1 wire=w units=ft x=-4 h=28\n"
        f"~ cond=2 wire=w x=-1.5 h=28\n~ cond=3 wire=w x=3 h=28\n~ cond=4 wire=n x=0 h=24 {geometry}\n"
        "New LineGeometry.u nconds=3 nphases=3 spacing=s cncables=[c c c]\n"
        f"New Line.p bus1=mid bus2=pole geometry=g length=2000 units=ft {line}\n"
        "New Line.q bus1=pole bus2=deep geometry=u length=1 units=mi\n"
        "New Load.p bus1=deep.1 phases=1 kv=7.2 kw=200 kvar=90"
    )


CODE = (
    "New Transformer.x xfmrcode=k buses=[mid.1 split.1.0 split.0.2]\nNew Load.x bus1=split.1.2 phases=2 kv=0.208 kw=9"
)


def centred(code: str = "", transformer: str = CODE) -> Change:
    """A centre-tapped transformer of a code beside the base feeder."""
    return beside(
        "New XfmrCode.k phases=1 windings=3 kvs=[7.2 0.12 0.12] kvas=[25 25 25] %imag=0.5 %Rs=[0.6 1.2 1.2] "
        f"%noloadloss=0.2 xhl=2.04 xht=2.04 xlt=1.36 {code}\n{transformer}"
    )


def choked(text: str) -> Change:
    """A reactor beside the base feeder."""
    return beside(f"New Reactor.r bus1=end {text}")


# class -> property -> the feeder that gives it another value than the base does
APPLIED: dict[str, dict[str, Change]] = {
    "vsource": {
        "bus1": {"vsource": "+bus1=head.2.3.1"},
        "basekv": {"vsource": "+basekv=12.6"},
        "pu": {"vsource": "+pu=1.03"},
        "angle": {"vsource": "+angle=-25"},
        "mvasc3": {"vsource": "New Circuit.small basekv=12.47 bus1=head pu=1.02 mvasc3=3000"},
        "mvasc1": {"vsource": "New Circuit.small basekv=12.47 bus1=head pu=1.02 mvasc3=100 mvasc1=90"},
        "isc3": {"vsource": "New Circuit.small basekv=12.47 bus1=head isc3=9000"},
        "isc1": {"vsource": "New Circuit.small basekv=12.47 bus1=head isc3=9000 isc1=8000"},
        "x1r1": {"vsource": "New Circuit.small basekv=12.47 bus1=head mvasc3=100 mvasc1=90 x1r1=2"},
        "x0r0": {"vsource": "New Circuit.small basekv=12.47 bus1=head mvasc3=100 mvasc1=90 x0r0=1.5"},
        "r1": {"vsource": "+r1=0.3"},
        "x1": {"vsource": "+x1=0.8"},
        "r0": {"vsource": "+r0=0.5"},
        "x0": {"vsource": "+x0=1.9"},
        "basefreq": {"vsource": "+basefreq=50"},
    },
    "line": {
        "normamps": {"line": "+normamps=300"},
        "bus1": {"line": "+bus1=mid.2.3.1"},
        "bus2": {"line": "+bus2=end.3.1.2"},
        "linecode": {"line": "+linecode=k"},
        "length": {"line": "+length=3"},
        "phases": parallel("phases=2 bus1=mid.1.2 bus2=end.1.2 r1=0.3 x1=0.6 r0=0.8 x0=1.7"),
        "r1": {"line": "+r1=0.4"},
        "x1": {"line": "+x1=0.8"},
        "r0": {"line": "+r0=0.9"},
        "x0": {"line": "+x0=2.4"},
        "c1": {"line": "+c1=900"},
        "c0": {"line": "+c0=900"},
        "rmatrix": {"line": f"New Line.b bus1=mid bus2=end length=2 rmatrix={TRIANGLE}"},
        "xmatrix": {"line": f"New Line.b bus1=mid bus2=end length=2 xmatrix={TRIANGLE}"},
        "cmatrix": {"line": "New Line.b bus1=mid bus2=end length=2 cmatrix=(400 | -90 500 | -70 -60 450)"},
        "switch": {"line": "+switch=yes"},
        "units": {"line": "New Line.b bus1=mid bus2=end linecode=k length=2 units=kft"},
        "enabled": parallel("bus1=mid bus2=end enabled=no"),
        "geometry": strung(),
        "spacing": strung(line="\nNew Line.x bus1=pole bus2=deep spacing=s cncables=[c c c] length=900 units=ft"),
        "cncables": strung(line="\nNew Line.x bus1=pole bus2=deep spacing=s cncables=[c c c] length=900 units=m"),
        "wires": strung(line="\nNew LineSpacing.a nconds=4 nphases=3 units=ft x=[-4 0 3 0] h=[28 28 28 24]\n"
                        "New Line.x bus1=pole bus2=deep spacing=a wires=[w w w n] length=900 units=ft"),
        "earthmodel": strung(line="earthmodel=carson"),
        "basefreq": {"line": "+basefreq=50"},
        "rg": {"line": "+basefreq=50 rg=0.06"},
        "xg": {"line": "+basefreq=50 xg=0.4"},
    },
    "linegeometry": {
        "normamps": strung(geometry="normamps=300"),
        "nconds": strung(geometry="\n~ nconds=4 cond=1 wire=w units=m x=-1 h=9 cond=2 wire=w x=0 h=9 cond=3 "
                             "wire=w x=1 h=9 cond=4 wire=n x=0 h=8"),
        "nphases": strung(geometry="nphases=3"),
        "cond": strung(geometry="cond=2 x=-1"),
        "wire": strung(geometry="wire=w"),
        "x": strung(geometry="x=1"),
        "h": strung(geometry="h=23"),
        "units": strung(geometry="units=m x=0 h=8"),
        "reduce": strung(geometry="reduce=yes"),
        "spacing": strung(),
        "wires": strung(geometry="wires=[n n w n]"),
        "cncable": strung(line="\nNew LineGeometry.v nconds=1 nphases=1 cond=1 cncable=c units=in x=0 h=-40\n"
                          "New Line.x bus1=pole.1 bus2=deep.1 geometry=v length=900 units=ft"),
        "cncables": strung(cable="k=15"),
    },
    "linespacing": {
        "nconds": strung(spacing="nconds=3 x=[-7 0 7] h=[-50 -50 -50]"),
        "nphases": strung(spacing="nphases=3"),
        "x": strung(spacing="x=[-8 0 8]"),
        "h": strung(spacing="h=[-40 -40 -44]"),
        "units": strung(spacing="units=cm"),
    },
    "wiredata": {
        "rdc": strung(wire="rdc=0.31"),
        "rac": strung(wire="rac=0.4", line="earthmodel=carson"),
        "runits": strung(wire="runits=km"),
        "gmrac": strung(wire="gmrac=0.02"),
        "gmrunits": strung(wire="gmrac=0.7 gmrunits=cm"),
        "radius": strung(wire="radius=0.4"),
        "radunits": strung(wire="radunits=cm"),
        "diam": strung(wire="diam=0.9 capradius=0.45"),
        "capradius": strung(wire="capradius=4"),
        "normamps": strung(wire="normamps=300"),
    },
    "cndata": {
        "k": strung(cable="k=15"),
        "diastrand": strung(cable="diastrand=0.09"),
        "gmrstrand": strung(cable="gmrstrand=0.004"),
        "rstrand": strung(cable="rstrand=10"),
        "epsr": strung(cable="epsr=3.1"),
        "inslayer": strung(cable="inslayer=0.3"),
        "diains": strung(cable="diains=1.09"),
        "diacable": strung(cable="diacable=1.3"),
        "rdc": strung(cable="rdc=0.5"),
        "rac": strung(cable="rac=0.6 rdc=0.5"),
        "runits": strung(cable="runits=km"),
        "gmrac": strung(cable="gmrac=0.016"),
        "gmrunits": strung(cable="gmrac=0.4 gmrstrand=0.06 gmrunits=cm"),
        "radius": strung(cable="radius=0.3"),
        "radunits": strung(cable="diastrand=0.16 inslayer=0.6 diains=2.7 diacable=2.9 diam=1.4 radunits=cm"),
        "diam": strung(cable="diam=0.6"),
        "capradius": strung(cable="capradius=0.3"),
        "normamps": strung(cable="normamps=300"),
    },
    "reactor": {
        "bus1": choked("x=400 bus1=mid"),
        "bus2": choked("r=0.4 x=2 bus2=mid"),
        "phases": choked("phases=1 bus1=end.2 x=300"),
        "kvar": choked("kvar=150"),
        "kv": choked("kvar=150 kv=13"),
        "conn": choked("conn=delta kvar=200"),
        "r": choked("r=300 x=400"),
        "x": choked("x=400"),
        "rp": choked("x=400 rp=900"),
        "basefreq": choked("r=100 x=400 rp=900 basefreq=50"),
    },
    "xfmrcode": {
        "phases": centred(),
        "windings": centred("windings=3 kvs=[7.2 0.12 0.12] kvas=[25 25 25]"),
        "wdg": centred("wdg=2 tap=1.02"),
        "conn": centred("wdg=1 conn=delta", "New Transformer.x xfmrcode=k buses=[mid.1.2 split.1.0 split.0.2]\n"
                        "New Load.x bus1=split.1.2 phases=2 kv=0.208 kw=9"),
        "kv": centred("wdg=3 kv=0.125"),
        "kva": centred("wdg=1 kva=50"),
        "tap": centred("wdg=3 tap=0.97"),
        "%r": centred("wdg=2 %r=2"),
        "rneut": centred("wdg=1 rneut=5", "New Transformer.x xfmrcode=k buses=[mid.1.4 split.1.0 split.0.2]\n"
                         "New Load.x bus1=split.1.2 phases=2 kv=0.208 kw=9"),
        "xneut": centred("wdg=1 rneut=5 xneut=7", "New Transformer.x xfmrcode=k buses=[mid.1.4 split.1.0 split.0.2]\n"
                         "New Load.x bus1=split.1.2 phases=2 kv=0.208 kw=9"),
        "conns": centred("conns=[wye wye delta]", "New Transformer.x xfmrcode=k buses=[mid.1 split.1.0 split.0.2]\n"
                         "New Load.x bus1=split.1 phases=1 kv=0.12 kw=9"),
        "kvs": centred("kvs=[7.3 0.12 0.12]"),
        "kvas": centred("kvas=[20 25 25]"),
        "taps": centred("taps=[1 1.01 1.02]"),
        "xhl": centred("xhl=2.5"),
        "xht": centred("xht=2.5"),
        "xlt": centred("xlt=1.1"),
        "%loadloss": centred("%loadloss=3"),
        "%noloadloss": centred("%noloadloss=1.5"),
        "%imag": centred("%imag=4"),
        "ppm_antifloat": centred("ppm_antifloat=900"),
        "%rs": centred("%rs=[0.9 1 1.3]"),
        "x12": centred("x12=2.2"),
        "x13": centred("x13=2.2"),
        "x23": centred("x23=1.5"),
    },
    "linecode": {
        "normamps": {"linecode": "+normamps=300", "line": "+linecode=k"},
        "nphases": {
            **parallel("bus1=mid.2.3 bus2=end.2.3 linecode=k2 length=2 units=km"),
            "linecode": f"{BASE['linecode']}\nNew Linecode.k2 nphases=2 r1=0.2 x1=0.4 r0=0.5 x0=0.9",
        },
        "r1": {"linecode": "+r1=0.5"},
        "x1": {"linecode": "+x1=0.9"},
        "r0": {"linecode": "+r0=1.1"},
        "x0": {"linecode": "+x0=2.5"},
        "c1": {"linecode": "+c1=900"},
        "c0": {"linecode": "+c0=900"},
        "units": {"linecode": "+units=kft"},
        "rmatrix": {"linecode": f"{OWN_CODE}rmatrix={TRIANGLE}"},
        "xmatrix": {"linecode": f"{OWN_CODE}xmatrix={TRIANGLE}"},
        "cmatrix": {"linecode": f"{OWN_CODE}cmatrix=(400 | -90 500 | -70 -60 450)"},
        "basefreq": {"linecode": "+basefreq=50"},
        "rg": {"linecode": "+basefreq=50 rg=0.06"},
        "xg": {"linecode": "+basefreq=50 xg=0.4"},
        "rho": {"linecode": "+basefreq=50 rho=5"},
    },
    "load": {
        "phases": {"load": "New Load.d bus1=low.2 phases=1 kv=0.277 kw=60 kvar=20"},
        "bus1": {"load": "+bus1=mid kv=12.47"},
        "kv": {"load": "+kv=0.5 model=2"},
        "kw": {"load": "New Load.d bus1=low kv=0.48 kw=120"},
        "pf": {"load": "New Load.d bus1=low kv=0.48 kw=120 pf=-0.95"},
        "model": {"load": "+model=2"},
        "conn": {"load": "+conn=delta model=5"},
        "kvar": {"load": "+kvar=60"},
        "kva": {"load": "New Load.d bus1=low kv=0.48 kva=120 pf=0.9"},
        "xfkva": {"load": "New Load.d bus1=low kv=0.48 xfkva=200 pf=0.93"},
        "allocationfactor": {"load": "New Load.d bus1=low kv=0.48 xfkva=200 allocationfactor=0.7 pf=-0.93"},
        "status": {"load": "+status=fixed", "end": f"Set LoadMult=1.5\n{BASE['end']}"},
        "vminpu": {"load": "+kw=500 vminpu=1.1"},
        "vmaxpu": {"load": "+vminpu=0.5 vmaxpu=0.9"},
        "cvrwatts": {"load": "+model=4 cvrwatts=2"},
        "cvrvars": {"load": "+model=4 cvrvars=0.3"},
        "zipv": {"load": "+model=8 zipv=(0.2 0.3 0.5 0.1 0.6 0.3 0.5)"},
        "vlowpu": {"load": "+vminpu=1.2 vmaxpu=1.3 vlowpu=0.8"},
        "like": beside("New Load.g like=d bus1=low kw=40"),
    },
    "transformer": {
        "phases": beside(f"{SINGLE}wdg=1 bus=mid.3 kv=7.2 kva=50 wdg=2 bus=low2.3 kv=0.24\n"
                         "New Load.g bus1=low2.3 phases=1 kv=0.24 kw=20"),
        "windings": beside(f"{SINGLE}kvs=[7.2 0.24] windings=2 buses=[mid.3 low2.3]\n"
                           "New Load.g bus1=low2.3 phases=1 kv=12.47 kw=20"),
        "wdg": {"transformer": "+wdg=2\n~ tap=1.03"},
        "bus": {"transformer": "+wdg=1 bus=end"},
        "conn": {"transformer": "+wdg=1 conn=wye"},
        "kv": {"transformer": "+wdg=1 kv=12.1"},
        "kva": {"transformer": "+kva=400"},
        "tap": {"transformer": "+wdg=1 tap=0.97"},
        "%r": {"transformer": "+wdg=1 %r=1.5"},
        "buses": {"transformer": "+buses=[end low]"},
        "conns": {"transformer": "+conns=[wye wye]"},
        "kvs": {"transformer": "+kvs=[12.1 0.48]"},
        "kvas": {"transformer": "+kvas=[400 400]"},
        "taps": {"transformer": "+taps=[1.01 1.03]"},
        "xhl": {"transformer": "+xhl=8"},
        "%loadloss": {"transformer": "+%loadloss=3"},
        "%rs": {"transformer": "+%rs=[1 1.2]"},
        "x12": {"transformer": "+x12=8"},
        "rneut": {"transformer": "+wdg=2 bus=low.1.2.3.4 rneut=0.3", **UNEQUAL},
        "xneut": {"transformer": "+wdg=2 bus=low.1.2.3.4 rneut=0.3 xneut=0.2", **UNEQUAL},
        "%noloadloss": {"transformer": "+%noloadloss=2"},
        "%imag": {"transformer": "+%imag=3"},
        "ppm_antifloat": {"transformer": "+ppm_antifloat=500"},
        "xfmrcode": {"transformer": "New XfmrCode.k kvs=[12.47 0.48] conns=[delta wye] kvas=[500 500] xhl=5\n"
                     "New Transformer.t xfmrcode=k buses=[mid low]"},
        **{key: beside("New Transformer.y windings=3 phases=1 buses=[mid.2 y.1 z.1] kvs=[7.2 0.48 0.24] "
                       f"kvas=[50 50 50] xhl=3 xht=5 xlt=4 {key}=6\nNew Load.y bus1=y.1 phases=1 kv=0.48 kw=20\n"
                       "New Load.z bus1=z.1 phases=1 kv=0.24 kw=15") for key in ("xht", "xlt", "x13", "x23")},
        "like": beside("New Transformer.t2 like=t buses=[end low2] kva=300\nNew Load.g bus1=low2 kv=0.48 kw=100"),
        "basefreq": {"transformer": "+basefreq=50 %imag=3"},
        "xrconst": {"transformer": "+basefreq=50 xrconst=yes"},
    },
    "capacitor": {
        "bus1": {"capacitor": "+bus1=mid"},
        "phases": {"capacitor": "New Capacitor.c bus1=end.3 phases=1 kvar=100 kv=7.2"},
        "kvar": {"capacitor": "+kvar=900"},
        "kv": {"capacitor": "+kv=13.8"},
        "conn": {"capacitor": "New Capacitor.c bus1=end.1.2 phases=1 conn=delta kvar=100 kv=12.47"},
        "like": beside("New Capacitor.c2 like=c bus1=mid kvar=200"),
        "basefreq": {"capacitor": "+basefreq=50"},
    },
    "regcontrol": {  # they are off in the comparison: the tables of the case show them
        "transformer": beside("New Transformer.reg2 like=reg buses=[mid.2 far.2] taps=[1 1.025]\n"
                              "New Regcontrol.c2 transformer=reg2 winding=2"),
        "winding": beside("New Transformer.reg2 like=reg buses=[mid.2 far.2] taps=[1 1.0375]\n"
                          "New Regcontrol.c2 winding=2 transformer=reg2"),
        "vreg": {"regcontrol": "+vreg=121"},
        "band": {"regcontrol": "+band=3"},
        "ptratio": {"regcontrol": "+ptratio=63"},
        "ctprim": {"regcontrol": "+ctprim=200"},
        "r": {"regcontrol": "+r=3"},
        "x": {"regcontrol": "+x=9"},
        "like": beside("New Transformer.reg2 like=reg buses=[mid.2 far.2]\n"
                       "New Regcontrol.c2 like=c transformer=reg2"),
    },
}  # fmt: skip

APPLIED |= opendss_generation.APPLIED

# values of noted properties that are not the number 3
SAMPLE = {
    "yearly": "default", "daily": "default", "duty": "default", "growth": "default", "spectrum": "default",
    "scantype": "zero", "linetype": "ug", "earthmodel": "carson", "ratings": "[300]", "seasons": "1", "neutral": "2",
    "cvrcurve": "default", "sub": "yes", "subname": "s", "bank": "b", "core": "5-leg",
    "ppm_antifloat": "0.5", "debugtrace": "no", "inversetime": "yes", "eventlog": "yes", "rho": "90",
    "basefreq": "50", "pctperm": "50", "forceon": "yes", "refuel": "no", "safemode": "no",
    **dict.fromkeys(("tyearly", "tdaily", "tduty"), "warm"),
}  # fmt: skip


# classes that the base feeder has no element of: one of theirs, and a feeder in which it has more properties
EXTRA: dict[str, tuple[str, Callable[[str], Change]]] = {
    "xfmrcode": ("xfmrcode.k", centred),
    "wiredata": ("wiredata.w", lambda text: strung(wire=text)),
    "cndata": ("cndata.c", lambda text: strung(cable=text)),
    "linegeometry": ("linegeometry.g", lambda text: strung(geometry=text)),
    "linespacing": ("linespacing.s", lambda text: strung(spacing=text)),
    "generator": ("generator.g", generating),
    "pvsystem": ("pvsystem.p", shining),
    "storage": ("storage.s", storing),
    "reactor": ("reactor.r", lambda text: choked(f"x=400 {text}")),
}


def given(kind: str, text: str) -> Change:
    """The base feeder, or the one that has an element of the class, with more properties of that element."""
    return EXTRA[kind][1](text) if kind in EXTRA else {kind: f"+{text}"}


def noted(kind: str, key: str) -> Change:
    """A feeder with a property that the reader notes."""
    return given(kind, f"{key}={SAMPLE.get(key, '3')}")


# what goes beyond single properties: their order, what is not given, copies, edits, options, switching
CONSTRUCTS: dict[str, Change] = {
    "base": {},
    "load multiplier": {"end": f"Set LoadMult=1.4\n{BASE['end']}"},
    "load multiplier of the solution": {"end": f"{BASE['end']} loadmult=0.7"},
    "load multiplier outside of the range of the law": {
        "load": "+model=2 vminpu=1.1 vmaxpu=1.3",
        "end": f"Set LoadMult=1.4\n{BASE['end']}",
    },
    "exempt load": {"load": "+status=exempt", "end": f"Set LoadMult=1.4\n{BASE['end']}"},
    "50 Hz": {"options": "Clear\nSet DefaultBaseFrequency=50", "line": "+c1=500 c0=300"},
    "50 Hz written out": {
        "options": "Set DefaultBaseFrequency=50", "linecode": "+basefreq=50", "line": "+basefreq=50",
        "vsource": "+frequency=50 basefreq=50", "capacitor": "+basefreq=50",
    },
    "line code of another frequency, then the line's own": {
        "linecode": "+basefreq=50 rg=0.1 xg=0.3 rho=20",
        "line": "New Line.b bus1=mid bus2=end linecode=k length=2 basefreq=40 c1=500 r1=0.2",
    },
    "line of another frequency, then a line code": {
        "line": "New Line.b bus1=mid bus2=end basefreq=40 rg=0.2 xg=0.2 linecode=k length=2",
    },
    "line code, then another frequency": {
        "linecode": "+c1=900 c0=500",
        "line": "New Line.b bus1=mid bus2=end linecode=k length=2 units=km basefreq=50\n~ xg=0.3 rg=-0.1",
    },
    "capacitances before the frequency": {
        "line": "New Line.b bus1=mid bus2=end length=2 cmatrix=(900 | 0 900 | 0 0 900) basefreq=50",
    },
    "capacitances after the frequency": {
        "line": "New Line.b bus1=mid bus2=end length=2 basefreq=50 cmatrix=(900 | 0 900 | 0 0 900)",
    },
    "default line of another frequency": {"line": "New Line.b bus1=mid bus2=end basefreq=50 length=90"},
    "phases after the frequency": parallel("bus1=mid.1.2 bus2=end.1.2 basefreq=50 phases=2 length=90 units=km"),
    "matrices of a line code after the frequency": {
        "linecode": f"New Linecode.k units=mi basefreq=50 rmatrix={TRIANGLE}",
    },
    "matrices of a line code in the command after the frequency": {
        "linecode": f"New Linecode.k units=mi basefreq=50\n~ xmatrix={TRIANGLE}",
    },
    "capacitances of a line code before the frequency": {
        "linecode": f"New Linecode.k units=mi xmatrix={TRIANGLE} cmatrix=(900 | 0 900 | 0 0 900)\n~ basefreq=50",
    },
    "switch of another frequency": {"line": "New Line.b bus1=mid bus2=end switch=y basefreq=50"},
    "no reactance of the earth": {"line": "+basefreq=50 xg=0"},
    "geometry of another frequency": strung(line="basefreq=50"),
    "geometry of another frequency, then own values": strung(
        line="basefreq=50\n~ r1=0.1 x1=0.3 r0=0.3 x0=0.8 c1=9 c0=4 length=1"
    ),
    "transformer of another frequency with a neutral": {
        "transformer": "+wdg=2 bus=low.1.2.3.4 rneut=0.3 xneut=0.2 basefreq=50 xrconst=yes %noloadloss=2 %imag=4",
        **UNEQUAL,
    },
    "three windings of another frequency": beside(
        "New Transformer.w windings=3 buses=[mid w2 w3] kvs=[12.47 4.16 0.48] conns=[delta wye delta] basefreq=50 "
        "kvas=[900 900 300] xhl=6 xht=9 xlt=4 %Rs=[0.4 0.5 0.8] %imag=1\nNew Load.w2 bus1=w2.2 phases=1 kv=2.4 kw=200"
    ),
    "copies of another frequency": beside(
        "New Capacitor.c1 bus1=mid kvar=200 basefreq=50\nNew Capacitor.c2 like=c1 bus1=end\n"
        "New Transformer.t1 like=t basefreq=50 xrconst=yes buses=[mid low]\nNew Transformer.t2 like=t1 buses=[mid low]"
    ),
    "reactor between two buses of another frequency": choked("r=0.4 x=2 bus2=mid basefreq=50"),
    "reactor by kvar of another frequency": choked("kvar=150 kv=13\n~ basefreq=50"),
    "elements of 60 Hz in a circuit of 50 Hz": {
        "options": "Set DefaultBaseFrequency=50", "linecode": "+basefreq=60", "line": "+basefreq=60 c1=500",
        "transformer": "+basefreq=60 %imag=2", "capacitor": "+basefreq=60", "vsource": "+basefreq=60 frequency=50",
    },
    "opened at both ends": {
        **parallel("bus1=head bus2=end c1=800 c0=500"),
        "end": f"Open Line.x 1\nOpen object=Line.x term=2\n{BASE['end']}",
    },
    "opened switch": {**parallel("bus1=head bus2=end switch=y"), "end": f"Open Line.x\n{BASE['end']}"},
    "opened and closed": {**parallel("bus1=head bus2=end"), "end": f"Open Line.x 2\nClose Line.x 2\n{BASE['end']}"},
    "closed, never opened": {"end": f"Close Line.b 1\n{BASE['end']}"},
    "kw of a load after its definition": {"end": f"Load.d.kw=150\n{BASE['end']}"},
    "kvar of a load after its definition": {"end": f"Load.d.kvar=70\nload.d.kw=150 vminpu=0.9\n{BASE['end']}"},
    "kw in a continuation": {"load": "+kw=90 kvar=20\n~ kw=150\n~ vminpu=0.9"},
    "negative kvar, then kw": {"load": "+kvar=-20\n~ kw=150"},
    "negative kw, then kw": {"load": "+kw=-50 kvar=20\n~ kw=-80"},
    "kvar before kw": {"load": f"{LOW}kvar=70 kw=100"},
    "load without kvar": {"load": f"{LOW}kw=120"},
    "load without kw": {"load": f"{LOW}kvar=40"},
    "load with nothing": {"load": "New Load.d bus1=low kv=0.48"},
    "pf after kvar": {"load": f"{LOW}kw=120 kvar=40 pf=0.7"},
    "like with a new kw": {"load": f"{BASE['load']}\nNew Load.g like=d kw=60 bus1=low.1.2.3"},
    "like with a new kvar": {"load": f"{BASE['load']}\nNew Load.g like=d kvar=60 bus1=low\nLoad.g.kw=50"},
    "load below its range": {"load": "+kw=300 kvar=100 vminpu=1.05 vmaxpu=1.2"},
    "current load below its range": {"load": "+model=5 kw=300 kvar=100 vminpu=1.1 vmaxpu=1.2"},
    "CVR load": {"load": "+model=4"},
    "CVR loads of measured exponents": {
        "load": "+model=4 cvrwatts=0.8 cvrvars=3",
        "more": f"{BASE['more']}\nNew Load.g bus1=end.1 phases=1 kv=7.2 kw=300 kvar=150 model=4\n"
        "~ cvrwatts=1.4 cvrvars=5.2",
    },
    "CVR load of negative exponents": {"load": "+model=4 cvrwatts=-0.6 cvrvars=-2"},
    "CVR load above its range": {"load": "+model=4 cvrwatts=0.8 cvrvars=3 vminpu=0.5 vmaxpu=0.9"},
    "CVR load below its range": {"load": "+model=4 cvrwatts=0.8 cvrvars=3 vminpu=1.1 vmaxpu=1.2"},
    "CVR load far below its range": {"load": "+model=4 cvrwatts=0.8 cvrvars=3 vminpu=1.1 vmaxpu=1.2 vlowpu=1.05"},
    "CVR load in delta": {"load": "+model=4 conn=delta cvrwatts=1.7 cvrvars=2.6"},
    "current load above its range": {"load": "+model=5 vminpu=0.5 vmaxpu=0.9"},
    "impedance above its range": {"load": "+model=2 vminpu=0.5 vmaxpu=0.9"},
    "ZIP load above its range": {"load": "+model=8 zipv=(0.2 0.3 0.5 0.1 0.6 0.3 0) vminpu=0.5 vmaxpu=0.9"},
    "ZIP load below its range": {"load": "+model=8 zipv=(0.2 0.3 0.5 0.1 0.6 0.3 0) vminpu=1.1 vmaxpu=1.2"},
    "delta load between two nodes": {"load": "New Load.d bus1=low.3.1 phases=1 conn=delta kv=0.48 kw=60"},
    "wye load between two nodes": {"load": "New Load.d bus1=low.3.1 phases=1 kv=0.48 kw=60"},
    "load with its neutral at the ground": {"load": "+bus1=low.2.1.3.0"},
    "wye capacitor that names a second node": {"capacitor": "New Capacitor.c bus1=end.1.2 phases=1 kvar=90 kv=7.2"},
    "delta capacitor": {"capacitor": "+conn=delta kvar=[600]"},
    "partly given source": {"vsource": "New Circuit.small basekv=12.47 bus1=head x1=0.4 r1=0.1"},
    "source in two commands": {"vsource": "New Circuit.small basekv=12.47 bus1=head\n~ r1=0.1"},
    "source by default": {"vsource": "New Circuit.small basekv=12.47 bus1=head"},
    "source edited by name": {"end": f"Vsource.source.pu=1.04\n{BASE['end']}"},
    "single-phase line by sequence values": parallel("phases=1 bus1=mid.2 bus2=end.2 r1=0.3 x1=0.6 r0=0.9 x0=1.8"),
    "single-phase line of a three-phase code": parallel("bus1=mid.2 bus2=end.2 linecode=k phases=1 units=mi"),
    "single-phase line code": {
        **parallel("bus1=mid.2 bus2=end.2 linecode=k1"),
        "linecode": f"{BASE['linecode']}\nNew Linecode.k1 nphases=1 r1=0.3 x1=0.6 r0=0.9",
    },
    "single-phase line code by a matrix": {
        **parallel("bus1=mid.2 bus2=end.2 linecode=k1 length=90"),
        "linecode": f"{BASE['linecode']}\nNew Linecode.k1 nphases=1\n~ rmatrix=(0.4)",
    },
    "single-phase line by a matrix": parallel("phases=1 bus1=mid.2 bus2=end.2 rmatrix=(0.4) length=90"),
    "line with units and default capacitances": parallel("bus1=mid bus2=end r1=0.3 x1=0.6 length=90 units=km"),
    "line with units before its values": parallel("bus1=mid bus2=end units=km r1=0.3 x1=0.6 length=90"),
    "line that changes units": parallel("bus1=mid bus2=end r1=0.3 x1=0.6 c1=4 units=km units=m length=9000"),
    "line with the length of a switch": parallel("bus1=mid bus2=end switch=y length=3 units=km"),
    "line code before a switch": {"line": "New Line.b bus1=mid bus2=end linecode=k length=2 switch=y units=km"},
    "line code after a switch": {"line": "New Line.b bus1=mid bus2=end switch=y linecode=k length=2"},
    "no switch": {"line": "+switch=no"},
    "line code and own values": {"line": "New Line.b bus1=mid bus2=end linecode=k r1=0.5 length=2 units=km"},
    "own values and line code": {"line": "New Line.b bus1=mid bus2=end r1=0.5 linecode=k length=2 units=km"},
    "line code and own matrix": {
        "line": f"New Line.b bus1=mid bus2=end units=km linecode=k rmatrix={TRIANGLE} length=2 units=mi"
    },
    "line code of matrices and own values": {
        "linecode": f"{BASE['linecode']}\nNew Linecode.m rmatrix={TRIANGLE} xmatrix={TRIANGLE} units=km",
        "line": "New Line.b bus1=mid bus2=end linecode=m r1=0.5 length=2",
    },
    "switch with a line code of matrices": {
        "linecode": f"{BASE['linecode']}\nNew Linecode.m rmatrix={TRIANGLE} xmatrix={TRIANGLE} units=km",
        "line": "New Line.b bus1=mid bus2=end switch=y linecode=m length=2",
    },
    "line code edited after its use": {"end": f"Linecode.k.r1=5\n{BASE['end']}"},
    "line code edited before its use": {"linecode": f"{BASE['linecode']}\nLinecode.k.r1=0.5\n~ x1=0.9"},
    "full matrix": {
        "line": "New Line.b bus1=mid bus2=end rmatrix=[0.4 0.1 0.12 | 0.1 0.5 0.15 | 0.12 0.15 0.6] "
        "xmatrix=(1|0 1|0 0 1)"
    },
    "rating of one winding": {
        "transformer": "New Transformer.t buses=[mid low] conns=[delta wye] kvs=[12.47 0.48] xhl=4 wdg=2 kva=500"
    },
    "values before the number of windings": {
        "transformer": "New Transformer.t wdg=1 bus=mid %r=3 kva=200 tap=1.1 windings=2 xhl=4 conns=[delta wye] "
        "kvs=[12.47 0.48] wdg=2 bus=low"
    },
    "delta on the low side": {
        "transformer": "New Transformer.t buses=[mid low] kvs=[12.47 0.48] kvas=[600 600] conns=[wye delta] xhl=4",
        "load": "+conn=delta",
        "more": f"{BASE['more']}\nNew Capacitor.low bus1=low kvar=30 kv=0.48",
    },
    "abbreviated names": {
        "line": "New Line.b bus1=mid bus2=end linec=k len=2 un=km", "load": "+vmi=0.9 mod=2 stat=v",
        "end": "Set controlm=off voltageb=[12.47 0.48]\nCalcV\nSol",
    },
    "formulas": {"line": "+length=(2 3 * 4 /) r1=(0.1 2 ^)"},
    "values without names": {
        "vsource": "New Circuit.small 12.47 1.02 bus1=head\n~ r1=0.1 0.4 0.2 0.9",
        "load": "New Load.d 3 low 0.48 90 0.9",
    },
    "edited by Edit and BatchEdit": {
        "end": f"Edit Load.d kw=70\n~ kvar=10\nBatchEdit Load..* vminpu=0.9\n{BASE['end']}"
    },
    "ungrounded delta secondary": {
        "transformer": "New Transformer.t buses=[mid low] kvs=[12.47 0.48] kvas=[600 600] conns=[wye delta] xhl=4",
        "load": "New Load.d bus1=low.1.2 phases=1 conn=delta kv=0.48 kw=60",
    },
    "delta on both sides": {
        "transformer": "New Transformer.t buses=[mid low] kvs=[12.47 0.48] kvas=[600 600] conns=[delta delta] xhl=4",
        "load": "New Load.d bus1=low.1.2 phases=1 conn=delta kv=0.48 kw=60",
    },
    "open wye, open delta": beside(
        "New Transformer.o1 phases=1 buses=[mid.1.0 open.1.2] kvs=[7.2 0.48] conns=[wye delta] kvas=[50 50] xhl=4\n"
        "New Transformer.o2 phases=1 buses=[mid.2.0 open.2.3] kvs=[7.2 0.48] conns=[wye delta] kvas=[50 50] xhl=4\n"
        "New Load.o bus1=open phases=3 conn=delta kv=0.48 kw=40 vminpu=0.7"
    ),
    "floating neutral of a wye": {
        "transformer": "New Transformer.t buses=[mid.1.2.3.4 low] kvs=[12.47 0.48] kvas=[600 600] conns=[wye delta] "
        "xhl=4",
        "load": "+conn=delta",
    },
    "windings of different ratings": {"transformer": "+kvas=[600 400]"},
    "line of four conductors": {
        "linecode": f"{BASE['linecode']}\nNew Linecode.four nphases=4 r1=0.3 x1=0.6 r0=0.8 x0=1.7 c1=9 c0=4",
        "more": f"{BASE['more']}\nNew Line.n bus1=mid.1.2.3.4 bus2=far4.1.2.3.4 linecode=four length=2\n"
        "New Reactor.g bus1=mid.4 phases=1 r=1 x=0\nNew Reactor.h bus1=far4.4 phases=1 r=5 x=0\n"
        "New Load.n bus1=far4.2.4 phases=1 kv=7.2 kw=200",
    },
    "disabled line to a node of its own": parallel("bus1=mid bus2=nowhere enabled=no"),
    "two-phase load": {"load": "New Load.d bus1=low.1.3 phases=2 kv=0.48 kw=60"},
    "three windings of three phases": beside(
        "New Transformer.w windings=3 buses=[mid w2 w3] kvs=[12.47 4.16 0.48] conns=[delta wye delta] "
        "kvas=[900 900 300] xhl=6 xht=9 xlt=4 %Rs=[0.4 0.5 0.8] %imag=1\n"
        "New Capacitor.w3 bus1=w3 kv=0.48 kvar=20\nNew Load.w2 bus1=w2.2 phases=1 kv=2.4 kw=200\n"
        "New Load.w3 bus1=w3 conn=delta kv=0.48 kw=90"
    ),
    "Carson's first term": {"vsource": f"{BASE['vsource']}\nSet EarthModel=Carson", **strung()},
    "Carson's series": {"vsource": f"{BASE['vsource']}\nSet EarthModel=FullCarson", **strung()},
    "geometry at 50 Hz": {"options": "Set DefaultBaseFrequency=50", **strung()},
    "spacing with a grounded neutral": strung(line="\nNew LineSpacing.f nconds=2 nphases=1 units=ft x=[0 0] h=[28 24]\n"
                           "New Line.f bus1=pole.2 bus2=deep.2 spacing=f wires=[w n] length=0.5 units=mi"),
    "classes that are left out": {
        "more": f"{BASE['more']}\nNew Energymeter.m element=line.a terminal=1\nNew Monitor.n element=line.a mode=0\n"
        "New Growthshape.g npts=1 year=1 mult=1.1\n~ npts=1\nNew Spectrum.s numharm=1 harmonic=1 %mag=100 angle=0\n"
        "New TCC_Curve.t npts=1 c_array=(1) t_array=(1)\n"
        "New Fuse.f line.a 1\nNew CapControl.c element=line.a capacitor=c"
    },
    "options that are left out": {
        "end": f"Set year=1 mode=snap number=1 %growth=3 normvminpu=0.96\n{BASE['end']}"
    },
}  # fmt: skip


def feeders() -> dict[str, str]:
    """Every feeder by name; those of noted properties are made from the rules of the reader."""
    changes = CONSTRUCTS | opendss_generation.CONSTRUCTS
    changes |= {f"{kind}.{key}": change for kind, keys in APPLIED.items() for key, change in keys.items()}
    changes |= {
        f"{kind}.{key}": noted(kind, key)
        for kind, rules in PROPERTIES.items()
        for key, rule in rules.items()
        if rule.effect == NOTED
    }
    return {name: script(change) for name, change in changes.items()}
