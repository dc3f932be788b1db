"""Small PyPSA networks of our own, with every component that its power flow knows (needs pypsa)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pypsa


def ring() -> Any:
    """Five AC buses, a ratio on either side of a transformer, a standard type, an island of its own, two snapshots."""
    n = pypsa.Network(name="ring")
    n.set_snapshots([0, 1])
    for label, kv, v in (("a", 110.0, 1.02), ("b", 110.0, 1.01), ("c", 20.0, 1.0), ("d", 20.0, 1.0), ("e", 20.0, 1.0)):
        n.add("Bus", label, v_nom=kv, v_mag_pu_set=v, carrier="AC")
    n.add("Line", "ab", bus0="a", bus1="b", r=1.2, x=6.0, b=3e-5, g=1e-6, s_nom=80.0, s_max_pu=0.7)
    n.add("Line", "ab2", bus0="b", bus1="a", r=1.2, x=6.0, s_nom=80.0, active=False)
    n.add("Line", "cd", bus0="c", bus1="d", type="NA2XS2Y 1x185 RM/25 12/20 kV", length=4.0, num_parallel=2, s_nom=15.0)
    n.add("Line", "de", bus0="d", bus1="e", r=0.8, x=1.1, s_nom=15.0)
    shared = dict(r=0.005, x=0.12, b=-0.004, g=0.0005, s_nom=40.0)
    n.add("Transformer", "ac", bus0="a", bus1="c", tap_ratio=0.98, tap_side=0, phase_shift=2.0, model="t", **shared)
    n.add("Transformer", "be", bus0="b", bus1="e", tap_ratio=1.03, tap_side=1, phase_shift=2.0, model="pi", **shared)
    n.add(
        "Transformer",
        "bd",
        bus0="b",
        bus1="d",
        type="25 MVA 110/20 kV",
        tap_position=2,
        phase_shift=150.0,
        active=False,
    )
    n.add("ShuntImpedance", "s", bus="d", b=2e-3, g=1e-4)
    n.add("Generator", "g1", bus="b", control="PV", p_set=12.0, p_nom=30.0, p_min_pu=0.2, marginal_cost=20.0)
    n.add("Generator", "g2", bus="a", control="Slack", p_nom=100.0, marginal_cost=35.0, marginal_cost_quadratic=0.01)
    n.add("Generator", "g3", bus="e", control="PQ", p_set=[3.0, 5.0], q_set=0.4, p_nom=6.0)
    n.add("Load", "l1", bus="c", p_set=[14.0, 9.0], q_set=[4.0, 2.0])
    n.add("Load", "l2", bus="e", p_set=8.0, q_set=1.5)
    n.add("StorageUnit", "su", bus="d", p_set=-2.0, q_set=0.3, p_nom=5.0)
    n.add("Store", "st", bus="c", p_set=1.0)
    return n


def with_links() -> Any:
    """A link within the network, one to a heat bus, and a second island."""
    n = ring()
    n.add("Bus", "heat", carrier="heat")
    n.add("Link", "dc", bus0="a", bus1="d", p_set=3.0, efficiency=0.96, p_nom=10.0)
    n.add("Link", "pump", bus0="e", bus1="heat", p_set=[1.0, 2.0], efficiency=3.0, p_nom=10.0)
    n.add("Load", "warm", bus="heat", p_set=3.0)
    n.add("Generator", "boiler", bus="heat")  # PyPSA's power flow needs one in every island
    for label in "xy":
        n.add("Bus", label, v_nom=20.0, v_mag_pu_set=1.01, carrier="AC")
    n.add("Line", "xy", bus0="x", bus1="y", r=0.5, x=0.6, s_nom=10.0)
    n.add("Generator", "gy", bus="y", p_set=0.5)  # no word on its control: it balances its island
    n.add("Load", "ly", bus="y", p_set=2.0, q_set=0.5)
    return n


def morning() -> Any:
    """Three half-hours of dates: loads that vary or not, plants of sun and wind, some out of use or elsewhere."""
    n = pypsa.Network(name="morning")
    n.set_snapshots(pd.date_range("2023-07-01 06:00", periods=3, freq="30min"))
    for label in "ab":
        n.add("Bus", label, v_nom=20.0, carrier="AC")
    n.add("Bus", "heat", carrier="heat")
    n.add("Line", "ab", bus0="a", bus1="b", r=0.4, x=0.8, s_nom=20.0)
    n.add("Generator", "grid", bus="a", control="Slack", p_nom=50.0, carrier="gas")
    n.add("Generator", "roof", bus="b", control="PQ", p_nom=3.0, p_max_pu=[0.1, 0.3, 0.5], carrier="solar rooftop")
    n.add("Generator", "field", bus="a", control="PQ", p_nom=5.0, p_max_pu=[0.2, 0.4, 0.5], carrier="solar")
    n.add("Generator", "hill", bus="b", control="PQ", p_nom=4.0, p_max_pu=0.7, carrier="onwind")
    n.add("Generator", "lost", bus="b", control="PQ", p_nom=9.0, carrier="onwind", active=False)
    n.add("Generator", "collector", bus="heat", p_nom=2.0, carrier="solar thermal")
    n.add("Load", "town", bus="b", p_set=[4.0, 5.0, 6.5], q_set=1.0)
    n.add("Load", "mill", bus="a", p_set=2.0)
    n.add("Load", "shut", bus="a", p_set=7.0, active=False)
    n.add("Load", "warm", bus="heat", p_set=1.0)
    return n


def available(network: Any) -> dict[str, list[float]]:
    """Load that the power flow has served at AC buses, and p_nom p_max_pu there, at every snapshot [MW]."""
    kept = network.c.buses.static.index[network.c.buses.static.carrier == "AC"]
    loads, plants = (network.c[kind].static for kind in ("loads", "generators"))
    served = loads.index[loads.bus.isin(kept) & loads.active]
    found = {"load": network.c.loads.dynamic["p"][served].sum(axis=1).tolist()}
    dense = network.get_switchable_as_dense("Generator", "p_max_pu") * plants.p_nom
    for source in ("solar", "wind"):
        chosen = plants.index[plants.bus.isin(kept) & plants.active & plants.carrier.str.contains(source)]
        if len(chosen):
            found[source] = dense[chosen].sum(axis=1).tolist()
    return found


NETWORKS = {"ring": ring, "links": with_links, "morning": morning}
