"""Preparation stays on the processor, whatever device JAX computes on by default."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from powerzoo_jax import opf
from powerzoo_jax import powerflow as pf
from powerzoo_jax.base.host import on_host
from powerzoo_jax.cases import load_case

pytestmark = pytest.mark.program

DECORATED = on_host(lambda: None).__code__  # type: ignore[attr-defined]  # of whatever `on_host` decorates

# Two processors, of which the second plays the accelerator: programs compiled for it would show among its executables.
PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np
from powerzoo_jax import opf
from powerzoo_jax import powerflow as pf
from powerzoo_jax.cases import load_case, load_feeder

processor, accelerator = jax.devices()
jax.config.update("jax_default_device", accelerator)

def there():
    return [x for x in accelerator.client.live_executables() if accelerator in x.local_devices()]

case, feeder, phases = load_case("case14"), load_case("case33bw"), load_feeder(13)
market = load_case("pz_case5")
meshed = pf.prepare_meshed(case)
prepared = [
    meshed,
    pf.prepare_reactive(case, meshed),
    pf.prepare_outages(case),
    pf.prepare_switching(feeder),
    pf.prepare_loops(feeder),
    pf.prepare_feeder(feeder),
    pf.prepare_dc(case),
    pf.prepare_dc_outages(case),
    pf.prepare_threephase(phases),
    pf.prepare_regulators(phases),
    opf.prepare_dc_opf(market),
    opf.prepare_ac_opf(market),
]
jax.block_until_ready(prepared)
assert not there(), [x.hlo_modules()[0].name for x in there()]
leaves = jax.tree.leaves(prepared)
assert len(leaves) > 100 and all(x.devices() == {accelerator} for x in leaves)
assert not any(x.committed for x in leaves)
s = pf.nominal_injection(case)
result = jax.jit(pf.solve_meshed)(meshed, jnp.asarray(s.real, "float32"), jnp.asarray(s.imag, "float32"))
assert int(result.status) == 0 and there()
"""


@pytest.mark.full
def test_prepare_functions_run_nothing_on_the_default_device() -> None:
    flags = f"--xla_force_host_platform_device_count=2 {os.environ.get('XLA_FLAGS', '')}"
    environment = os.environ | {"XLA_FLAGS": flags.strip(), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_preparation_is_done_on_the_host() -> None:
    public = {name: getattr(module, name) for module in (pf, opf) for name in dir(module)}
    prepare = [found for name, found in public.items() if name.startswith("prepare_")]
    assert len(prepare) >= 13
    own = [found for found in (*prepare, opf.binding_rows) if getattr(found, "__code__", None) is not DECORATED]
    assert own == []


def test_results_keep_their_bits_and_types_on_the_way_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    case = load_case("case14")
    plain = pf.prepare_meshed(case)
    # a default device that is not the processor, as far as preparation can tell
    monkeypatch.setattr("powerzoo_jax.base.host.jax.local_devices", _elsewhere(jax.local_devices))
    moved = pf.prepare_meshed(case)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(moved), strict=True):
        assert a.dtype == b.dtype and not b.weak_type
        np.testing.assert_array_equal(a, b)


def test_float64_survives_the_way_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("powerzoo_jax.base.host.jax.local_devices", _elsewhere(jax.local_devices))
    with jax.enable_x64(True):
        found = on_host(lambda x: {"x": jax.numpy.asarray(x), "n": 3})(np.array([1 / 3]))
    assert found["x"].dtype == np.float64 and float(found["x"][0]) == 1 / 3 and found["n"] == 3


def _elsewhere(known: object) -> object:
    """`jax.local_devices` whose first device by default is none of those of the backend asked for."""

    def devices(backend: str | None = None) -> list[object]:
        return known(backend=backend) if backend else [object()]  # type: ignore[operator]

    return devices
