"""Small feeders with generators, photovoltaic systems and storage, beside those of `opendss_feeders`."""

from __future__ import annotations

from tests.references.opendss_script import BASE, Change, beside


def generating(text: str, given: str = "kw=90 kvar=30") -> Change:
    """A generator beside the base feeder."""
    return beside(f"New Generator.g bus1=end kv=12.47 {given} {text}")


def shining(text: str) -> Change:
    """A photovoltaic system beside the base feeder."""
    return beside(
        "New TShape.warm npts=1 interval=1 temp=[25]\n"
        f"New PVSystem.p bus1=low kv=0.48 kva=60 pmpp=50 irradiance=0.8 {text}"
    )


def storing(text: str) -> Change:
    """A storage beside the base feeder, with half of its energy."""
    return beside(f"New Storage.s bus1=low kv=0.48 kva=60 kwrated=50 kwhrated=200 %stored=50 {text}")


# class -> property -> the feeder that gives it another value than the base does
APPLIED: dict[str, dict[str, Change]] = {
    "generator": {
        "phases": generating("phases=1 bus1=end.2 kv=7.2"),
        "bus1": generating("bus1=mid.1.2.3"),
        "kv": generating("kv=11 vmaxpu=1.05"),
        "kw": generating("kw=300"),
        "pf": generating("pf=-0.95"),
        "kvar": generating("kvar=200"),
        "vminpu": generating("kw=900 vminpu=1.06"),
        "vmaxpu": generating("kw=900 vmaxpu=0.94"),
        "conn": generating("conn=delta"),
        "status": generating("status=fixed\nSet GenMult=2"),
    },
    "pvsystem": {
        "phases": shining("phases=1 bus1=low.2 kv=0.277"),
        "bus1": shining("bus1=low.2.3.1"),
        "kv": shining("kv=0.4 vmaxpu=1.02"),
        "irradiance": shining("irradiance=0.3"),
        "pmpp": shining("pmpp=58"),
        "%pmpp": shining("%pmpp=40"),
        "pf": shining("kvar=9 pf=-0.9"),
        "conn": shining("conn=delta"),
        "kvar": shining("pf=0.9 kvar=-20"),
        "kva": shining("kva=30"),
        "%cutin": shining("irradiance=0.1\n~ irradiance=0.4 %cutin=50"),
        "%cutout": shining("%cutin=80 %cutout=80 kvar=10"),
        "vminpu": shining("vminpu=1.08"),
        "vmaxpu": shining("vmaxpu=0.92"),
        "varfollowinverter": shining("irradiance=0.1 kvar=10 varfollowinverter=yes"),
        "wattpriority": shining("kva=45 kvar=-30 wattpriority=yes"),
    },
    "storage": {
        "phases": storing("phases=1 bus1=low.2 kv=0.277 kw=20"),
        "bus1": storing("bus1=low.2.3.1 kw=20"),
        "kv": storing("kw=40 kv=0.4 vmaxpu=1.02"),
        "conn": storing("kw=30 conn=delta"),
        "kw": storing("kw=40"),
        "kvar": storing("kw=-30 pf=0.9 kvar=20"),
        "pf": storing("kvar=9 kw=-30 pf=0.9"),
        "kva": storing("kw=40 kva=30"),
        "%cutin": storing("kw=1 %cutin=50 %cutout=20\n~ kw=20"),
        "%cutout": storing("kw=10 kvar=12 %cutin=30 %cutout=30"),
        "varfollowinverter": storing("kw=10 kvar=12 %cutin=30 %cutout=30 varfollowinverter=yes"),
        "wattpriority": storing("kw=45 kvar=-30 kva=50 wattpriority=yes"),
        "kwrated": storing("kw=40 kwrated=30"),
        "%kwrated": storing("kw=40 %kwrated=60"),
        "kwhrated": storing("kw=-40 kwhrated=300"),
        "kwhstored": storing("kw=40 kwhstored=30"),
        "%stored": storing("kw=-40 %stored=100"),
        "%reserve": storing("kw=40 %reserve=70"),
        "state": storing("state=discharging"),
        "%discharge": storing("%discharge=60 state=d"),
        "%charge": storing("%charge=30 state=charg"),
        "%idlingkw": storing("%idlingkw=20 pf=0.8"),
        "vminpu": storing("kw=30 vminpu=1.08"),
        "vmaxpu": storing("kw=30 vmaxpu=0.92"),
    },
}  # fmt: skip

CONSTRUCTS: dict[str, Change] = {
    "generator with nothing": generating("", ""),
    "generator by kvar and kw": generating("\n~ kvar=50\n~ kw=400", "kw=200 pf=0.9"),
    "generator of negative kvar": generating("kvar=-80 kw=300"),
    "generator that consumes": generating("kw=-200 pf=0.8"),
    "generator in a wye between two nodes": generating("phases=1 bus1=end.2.3 kv=12.47"),
    "generator in delta beyond its range": generating("kw=600 conn=delta vminpu=1.06 vmaxpu=1.3"),
    "generator in two phases": generating("phases=2 bus1=end.3.1 kv=12.47 kw=300 kvar=-50"),
    "generation multiplier": {**generating("kw=300"), "end": f"Set GenMult=0.5 LoadMult=1.2\n{BASE['end']}"},
    "PV system of a rating below its power": shining("kva=45 pf=0.8"),
    "PV system of a rating below its kvar": shining("kva=30 kvar=-40"),
    "PV system below its cut-out": shining("irradiance=0.1 kvar=10"),
    "PV system with nothing": beside("New PVSystem.p bus1=end kv=12.47"),
    "storage with nothing": beside("New Storage.s bus1=end kv=12.47"),
    "storage that is full": storing("%stored=100 kw=-40\n~ kvar=20"),
    "storage without a reserve of its own": beside("New Storage.s bus1=low kv=0.48 kw=20 kwhstored=1"),
    "storage of a power beyond its rating": storing("kw=90 pf=-0.9"),
    "storage of a rating without kVA": beside("New Storage.s bus1=low kv=0.48 kwrated=90 kw=60 kvar=50"),
    "storage whose rated power changes": storing("kw=20\n~ kwrated=80\n~ kva=25 %idlingkw=5"),
    "storage that charges beyond its rating": storing("kw=-45 kvar=-30 kva=50"),
    "storage that idles beyond its rating": storing("%idlingkw=60 kvar=30 kva=40"),
    "storage of more kW than kVA": storing("kw=45 kvar=-20 kva=40 wattpriority=yes"),
    "storage that the inverter turns on again": storing("kw=1 %cutin=20 %cutout=20 %idlingkw=30\n~ kvar=5"),
    "storage in delta beyond its range": storing("kw=40 conn=delta vminpu=1.06 vmaxpu=1.3"),
    "storage between two nodes": storing("phases=1 bus1=low.3.1 kv=0.48 kw=20"),
    "storage with a control of its inverter": storing(
        "kw=30\nNew XYCurve.vv npts=4 yarray=(1 1 -1 -1) xarray=(0.5 0.95 1.05 1.5)\n"
        "New InvControl.i derlist=[storage.s] mode=voltvar vvc_curve1=vv"
    ),
}  # fmt: skip
