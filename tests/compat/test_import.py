"""What `import powerzoo` loads, registers and refuses; each claim in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import powerzoo_jax

IDS = {
    "battery_arbitrage": "BatteryArbitrage",
    "comparison_tso_centralized": "ComparisonTSOCentralized",
    "dc_microgrid": "DCMicrogrid",
    "dc_microgrid_safe": "DCMicrogridSafe",
    "dc_scheduling": "DCScheduling",
    "dso": "DSO",
    "gencos_bidding": "GenCos",
    "marl_der_arbitrage": "MARL-DER",
    "marl_der_arbitrage_7d": "MARL-DER-7d",
    "marl_ders_benchmark": "MARL-DERs",
    "marl_ev_v2g": "MARL-EV",
    "marl_ev_v2g_1d": "MARL-EV-1d",
    "marl_opf": "MARL-OPF",
    "marl_opf_118": "MARL-OPF-118",
    "marl_opf_7d": "MARL-OPF-7d",
    "marl_uc": "MARL-UC",
}
TEXT = """
import hashlib, numpy, powerzoo_jax
from powerzoo_compat import _host
host = _host.Host(powerzoo_jax.make("dso"))
day, *soc = host.choice(None)
args = host.sim.env, host.sim.params, _host.seed_key(0), numpy.int32(day), *soc
print(hashlib.sha256(_host.open_episode.lower(*args).as_text().encode()).hexdigest())
"""
COMPAT = Path(__file__).resolve().parents[2] / "compat"
NOT_AT_IMPORT = {"matplotlib", "pandas", "torch", "ray", "pettingzoo", "gymnax", "stable_baselines3"}
LOADED = "import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"


def run(code, *folders, **variables):
    path = os.pathsep.join(map(str, (*folders, COMPAT, COMPAT.parent)))
    env = os.environ | {"PYTHONPATH": path} | variables
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)


def loaded(module):
    return set(json.loads(run(LOADED.format(module=module)).stdout))


def test_importing_powerzoo_loads_no_optional_package():
    assert not {m.split(".")[0] for m in loaded("powerzoo")} & NOT_AT_IMPORT


def test_envs_import_without_tasks():
    modules = loaded("powerzoo.envs")
    assert "powerzoo.envs" in modules
    assert "powerzoo.tasks" not in modules


def test_importing_powerzoo_registers_its_ids_only():
    code = "import gymnasium as g; a = set(g.registry); import powerzoo; print(sorted(set(g.registry) - a))"
    names = [name for task, name in IDS.items() if task in powerzoo_jax.list_tasks()]
    ids = [f"PowerZoo/{name}-v{version}" for name in names for version in (0, 1)]  # the former as other names
    ids += [f"PowerZoo/{grid}-{level}-v0" for grid in ("TransGrid", "DistGrid") for level in ("easy", "medium", "hard")]
    assert run(code).stdout.strip() == str(sorted(ids))


def test_a_rival_distribution_is_refused_with_the_fix(tmp_path):
    folder = tmp_path / "powerzoo-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: powerzoo\nVersion: 0.1.0\n")
    done = run("import powerzoo", tmp_path)
    assert done.returncode != 0
    for part in ("ImportError", "powerzoo-jax", "pip uninstall powerzoo", "--force-reinstall powerzoo-jax"):
        assert part in done.stderr


def test_the_core_does_not_need_the_drop_in():
    assert not {m for m in loaded("powerzoo_jax") if m.split(".")[0] in ("powerzoo", "powerzoo_compat")}


@pytest.mark.full
def test_a_program_reads_alike_in_every_process():
    """Else no compiled program is ever found in the cache again: the order of a set of names depends on the process."""
    one, two = (run(TEXT, PYTHONHASHSEED=seed).stdout for seed in "12")
    assert len(one.strip()) == 64 and one == two
