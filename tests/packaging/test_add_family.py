"""The page on families carried out from outside the package: its files in a folder, the wheel installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "add_family.md").read_text(encoding="utf-8")
MODULE, SCRIPT, LOOP = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MOST = 150  # lines of a family

# Laws of the printed family: heat is conserved, and what is bought is paid.
LAWS = """
import heat, jax, jax.numpy as jnp, numpy as np
import powerzoo_jax as pz
sim = pz.make("heat_pump", split="test")
state, obs = sim.init(jax.random.key(3))
levels, made, drawn, paid = [float(state.heat_mwh)], [], [], []
for power in np.linspace(-1, 1, 24):
    row = np.asarray(sim.params.bank.load_rows)[int(state.load_row) + int(state.t)]
    state, obs, reward, cost, info = jax.jit(sim.step)(state, jnp.full((1, 1), power, jnp.float32))
    levels.append(float(state.heat_mwh)); made.append(-3.0 * float(info.p_mw)); drawn.append(row[1] - float(cost[0]))
    paid.append(float(reward[0]) - row[0] * float(info.p_mw))
print(max(abs(np.diff(levels) - np.subtract(made, drawn))) < 1e-5, max(map(abs, paid)) < 1e-4)
"""


def test_a_family_of_ones_own_works_from_outside_the_package(run, tmp_path):
    assert len(MODULE.splitlines()) <= MOST
    for name, text in (("heat.py", MODULE), ("script.py", SCRIPT), ("loop.py", LOOP), ("laws.py", LAWS)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    told = run(sys.executable, "script.py")
    assert "device_power_mw" in told and "heat_pump" in (tmp_path / "heat.html").read_text(encoding="utf-8")
    run(sys.executable, "loop.py")
    assert run(sys.executable, "laws.py").split() == ["True", "True"]
