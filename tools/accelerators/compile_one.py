"""Compilation of one program for one described device.

Usage: python -m tools.accelerators.compile_one NAME PLATFORM KNOWN LANES...

Prints one JSON object for each number of lanes, the counts with the first one only. A program whose fingerprint is
KNOWN is lowered and not compiled: then one object says only that. A process of its own, because some failures of
compilers end the process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from tools.accelerators.hlo import count
from tools.accelerators.targets import device, needs_float64, prepare_process

FOLDER = Path(__file__).parent
PINS = FOLDER.parents[1] / "constraints-accelerators.txt"
READERS = (FOLDER / "hlo.py", FOLDER / "targets.py", FOLDER / "h200.txtpb", PINS)


def fingerprint(*parts: str) -> str:
    """Fingerprint of what figures follow from: parts of a lowered program, the compilers, and what counts."""
    digest = hashlib.sha256()
    for part in (*parts, *(path.read_text() for path in READERS)):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:12]


def measure(name: str, platform: str, lanes: int, counted: bool, known: str = "") -> dict[str, Any]:
    """Figures of a program that was lowered and compiled; nothing of it is run, and a known one is not compiled."""
    import jax
    from jax.sharding import SingleDeviceSharding

    from powerzoo_jax.base.solver_mode import FIXED, auto_is
    from tools.accelerators.programs import build

    there = SingleDeviceSharding(device(platform))
    program = build(name, lanes)

    def described(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there)

    arguments = jax.tree.map(described, program.arguments)
    begin = time.perf_counter()
    with auto_is(FIXED):  # a step takes the form of the device on which it is traced, here a CPU
        lowered = jax.jit(program.function).lower(*arguments)
    found: dict[str, Any] = {"lanes": lanes}
    if counted:
        told = fingerprint(platform, lowered.as_text(), str(program.length), str(program.lane_bytes))
        found |= {"lowered": told, "known": told == known}
        if told == known:
            return found
    compiled = lowered.compile()
    found["compile_s"] = round(time.perf_counter() - begin, 1)
    memory, text = compiled.memory_analysis(), compiled.as_text()
    if memory is None or text is None:
        raise RuntimeError(f"this compiler for {platform} tells neither memory nor text of what it compiled.")
    found["temp_bytes"] = memory.temp_size_in_bytes
    if counted:
        found |= dataclasses.asdict(count(text, program.length))
        found["state_bytes"], found["obs_bytes"] = program.lane_bytes
    return found


def main() -> None:
    name, platform, known, *lanes = sys.argv[1:]
    prepare_process(platform)
    if needs_float64(name):  # JAX has to know before any array is made
        import jax

        jax.config.update("jax_enable_x64", True)
    for place, number in enumerate(lanes):
        found = measure(name, platform, int(number), place == 0, known)
        print(json.dumps(found), flush=True)
        if found.get("known"):
            return


if __name__ == "__main__":
    main()
