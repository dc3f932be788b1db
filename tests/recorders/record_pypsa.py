"""Record the tables of small PyPSA networks that our reader looks at, and the power flow of the same networks.

Runs where PyPSA is installed (`pip install .[bench]`). Without --write it prints the differences to what is committed;
with --write it replaces the file.

Usage: python tests/recorders/record_pypsa.py [--write]
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.recorders.recording import Arrays, keep  # noqa: E402

DATA = ROOT / "tests" / "recorded" / "pypsa"
# columns that our reader looks at, after `calculate_dependent_values`
READ = {
    "buses": "carrier v_nom v_mag_pu_set v_mag_pu_max v_mag_pu_min",
    "lines": "active bus0 bus1 r_pu x_pu b_pu g_pu s_nom s_max_pu",
    "transformers": "active bus0 bus1 r_pu x_pu b_pu g_pu s_nom s_max_pu tap_ratio tap_side phase_shift",
    "shunt_impedances": "active bus b_pu g_pu",
    "loads": "active bus sign p_set q_set",
    "storage_units": "active bus sign p_set q_set",
    "stores": "active bus sign p_set q_set",
    "links": "active bus0 bus1 p_set efficiency",
    "generators": "active bus carrier sign control p_set q_set p_nom p_max_pu p_min_pu marginal_cost "
    "marginal_cost_quadratic",
}
README = """# Networks of our own solved by PyPSA

`networks`, bytes of a JSON text: of each network of `tests/references/pypsa_networks.py` the tables that our reader
looks at, as PyPSA {pypsa} (MIT) holds them after `calculate_dependent_values`, and real and imaginary parts of the bus
voltages [pu] of `network.pf(x_tol=1e-12)` at every snapshot; `available`: the load that it has served at AC buses, and
what plants of sun and wind could give there [MW].

Recorded by `tests/recorders/record_pypsa.py --write`; without the flag it prints what would change.
"""


def record() -> Arrays:
    from tests.references.pypsa_networks import NETWORKS

    return {"networks": _text({name: one(make()) for name, make in NETWORKS.items()})}


def one(network: Any) -> dict[str, Any]:
    """Tables and voltages of a network."""
    ready = network.copy()
    ready.calculate_dependent_values()
    tables = {}
    for kind, names in READ.items():
        component = ready.c[kind]
        dynamic = {
            name: {"columns": list(component.dynamic[name].columns), "rows": component.dynamic[name].values.tolist()}
            for name in names.split()
            if name in component.dynamic and len(component.dynamic[name].columns)
        }
        columns = {name: component.static[name].tolist() for name in names.split() if name in component.static}
        tables[kind] = {"static": {"index": list(component.static.index), **columns}, "dynamic": dynamic}
    from tests.references.pypsa_networks import available

    network.pf(x_tol=1e-12)
    size, angle = (network.c.buses.dynamic[key].values for key in ("v_mag_pu", "v_ang"))
    v = size * np.exp(1j * angle)
    kept = {"name": network.name, "snapshots": [s if isinstance(s, int) else str(s) for s in network.snapshots]}
    kept |= {"tables": tables, "available": available(network)}
    return kept | {"v": [v.real.tolist(), v.imag.tolist()], "buses": list(network.c.buses.dynamic["v_mag_pu"].columns)}


def _text(content: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(content, default=lambda x: x.tolist()).encode(), np.uint8)


if __name__ == "__main__":
    keep(__doc__, DATA, README, record, pypsa=metadata.version("pypsa"))
