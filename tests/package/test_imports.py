"""What `import powerzoo_jax` costs, counted in modules: a wall clock would measure the machine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

NOT_AT_IMPORT = ("matplotlib", "pandas", "gymnax", "gymnasium", "torch", "highspy", "stable_baselines3", "IPython")
PROBE = "import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    probe = [sys.executable, "-c", PROBE.format(module="powerzoo_jax")]
    done = subprocess.run(probe, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.tiers(full=["matplotlib"])
@pytest.mark.parametrize("package", NOT_AT_IMPORT)
def test_importing_the_package_loads_no(package, loaded):
    assert not {m for m in loaded if m == package or m.startswith(f"{package}.")}


def test_importing_the_package_loads_no_optimiser_and_no_plot(loaded):
    assert not loaded & {"scipy.optimize", "powerzoo_jax.oracle", "powerzoo_jax.plot", "powerzoo_jax.cli"}


@pytest.mark.full
def test_importing_the_package_touches_no_device():
    probe = "import powerzoo_jax; from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
