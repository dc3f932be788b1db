"""Devices to compile for: described to the compiler, not present.

The H200 is described by `h200.txtpb` (figures of its data sheet, in the form XLA reads), the v5e by name to libtpu.
"""

from __future__ import annotations

import os
import site
from pathlib import Path
from typing import Any

PLATFORMS = {"h200": "gpu", "v5e": "tpu"}  # and what `jax.default_backend()` is there
CONFIG = Path(__file__).with_name("h200.txtpb")
# Without a device nothing can be timed: which kernel of a product is fastest stays open, all go to the library.
GPU_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"


def prepare_process(platform: str) -> None:
    """Set what the compilers read from the environment; call it before JAX is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    # the key of a cached program does not tell a described device from one that is there
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    packages = Path(site.getsitepackages()[0])
    if platform == "h200":
        compiler = packages / "nvidia" / "cuda_nvcc"
        os.environ["PATH"] = f"{compiler / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_cuda_data_dir={compiler} {GPU_FLAGS}"
        os.environ["XLA_FLAGS"] = flags.strip()
    else:
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # there is no cloud to ask
        os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no device to share: several processes may compile at once
        os.environ["TPU_LIBRARY_PATH"] = str(packages / "libtpu" / "libtpu.so")
        os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-4"
        os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"


def needs_float64(program: str) -> bool:
    """Whether a program is of float64 throughout, as its name says: JAX has to be told before the first array."""
    return program.endswith("_64")


def device(platform: str) -> Any:
    """The described device; code that asks for the default backend is told that of the device."""
    import jax
    from jax.experimental import topologies

    if platform == "h200":
        text = CONFIG.read_text()
        found = topologies.get_topology_desc("h200", platform="cuda", topology="1x1x1", target_config=text)
    else:
        found = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    jax.default_backend = lambda: PLATFORMS[platform]
    return found.devices[0]
