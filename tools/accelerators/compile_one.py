"""Compilation of one program for one described device.

Usage: python -m tools.accelerators.compile_one NAME PLATFORM LANES...

Prints one JSON object for each number of lanes, the counts with the first one only. A process of its own, because some
failures of compilers end the process.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import Any

from tools.accelerators.hlo import count
from tools.accelerators.targets import device, needs_float64, prepare_process


def measure(name: str, platform: str, lanes: int, counted: bool) -> dict[str, Any]:
    """Figures of a program that was lowered and compiled; nothing of it is run."""
    import jax
    from jax.sharding import SingleDeviceSharding

    from tools.accelerators.programs import build

    there = SingleDeviceSharding(device(platform))
    program = build(name, lanes)

    def described(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there)

    arguments = jax.tree.map(described, program.arguments)
    begin = time.perf_counter()
    compiled = jax.jit(program.function).lower(*arguments).compile()
    found: dict[str, Any] = {"lanes": lanes, "compile_s": round(time.perf_counter() - begin, 1)}
    memory, text = compiled.memory_analysis(), compiled.as_text()
    if memory is None or text is None:
        raise RuntimeError(f"this compiler for {platform} tells neither memory nor text of what it compiled.")
    found["temp_bytes"] = memory.temp_size_in_bytes
    if counted:
        found |= dataclasses.asdict(count(text, program.length))
        found["state_bytes"], found["obs_bytes"] = program.lane_bytes
    return found


def main() -> None:
    name, platform, *lanes = sys.argv[1:]
    prepare_process(platform)
    if needs_float64(name):  # JAX has to know before any array is made
        import jax

        jax.config.update("jax_enable_x64", True)
    for place, number in enumerate(lanes):
        print(json.dumps(measure(name, platform, int(number), place == 0)), flush=True)


if __name__ == "__main__":
    main()
