"""The base feeder of the small OpenDSS scripts, and changes of it."""

from __future__ import annotations

BASE = {
    "options": "Set DefaultBaseFrequency=60",
    "vsource": "New Circuit.small basekv=12.47 bus1=head pu=1.02 angle=10 r1=0.1 x1=0.4 r0=0.2 x0=0.9",
    "linecode": "New Linecode.k nphases=3 units=mi r1=0.3 x1=0.6 r0=0.7 x0=1.9 c1=12 c0=6",
    "coded": "New Line.a bus1=head bus2=mid linecode=k length=1.5 units=km",
    "line": "New Line.b bus1=mid bus2=end r1=0.2 x1=0.5 r0=0.5 x0=1.4 c1=10 c0=5 length=2",
    "transformer": "New Transformer.t phases=3 windings=2 xhl=4 wdg=1 bus=mid conn=delta kv=12.47 kva=600 %r=0.5 "
    "wdg=2 bus=low conn=wye kv=0.48 %r=0.25",
    "regulator": "New Transformer.reg phases=1 windings=2 xhl=1 buses=[end.1 far.1] kvs=[7.2 7.2] kvas=[500 500] "
    "taps=[1 1.0125]",
    "regcontrol": "New Regcontrol.c transformer=reg winding=2 vreg=122 band=2 ptratio=60",
    "capacitor": "New Capacitor.c bus1=end kvar=300 kv=12.47",
    "load": "New Load.d bus1=low phases=3 kv=0.48 kw=90 kvar=30",
    "more": "New Load.e bus1=far.1 phases=1 kv=7.2 kw=100 kvar=40\n"
    "New Load.f bus1=end.2.3 phases=1 conn=delta kv=12.47 kw=80 kvar=20 model=5",
    "end": "Set ControlMode=off VoltageBases=[12.47 0.48]\nCalcVoltageBases\nSolve",
}
Change = dict[str, str]


def script(change: Change) -> str:
    """The base feeder with some of its commands replaced; a text that begins with "+" is appended to the command."""
    parts = {slot: change.get(slot, text) for slot, text in BASE.items()}
    return "\n".join(f"{BASE[s]} {t[1:]}" if t.startswith("+") else t for s, t in parts.items()) + "\n"


def parallel(text: str) -> Change:
    """A second line between two buses of the base feeder."""
    return {"more": f"{BASE['more']}\nNew Line.x {text}"}


def beside(text: str) -> Change:
    """More elements."""
    return {"more": f"{BASE['more']}\n{text}"}
