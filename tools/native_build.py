"""Set-up of the compiled kernel: installs `native/` into the environment of this interpreter, or says that it did not.

Everything runs without the kernel, so a failure of any kind is one line and exit status 0; what pip, CMake and the
compiler said is in the log. A kernel of older sources is then removed, and the next call tries again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("scikit-build-core", "cmake", "ninja")
LOAD = "import ctypes, powerzoo_jax_native as native; ctypes.CDLL(str(native.LIBRARY))"


def main(argv: Sequence[str] | None = None) -> int:
    """Build, install, load once; 0 whatever comes of it."""
    parser = argparse.ArgumentParser(prog="python -m tools.native_build", description=__doc__)
    parser.add_argument("--log", type=Path, default=Path("build/native.log"), help="what the build printed")
    parser.add_argument("--stamp", type=Path, help="file to touch when the kernel is installed")
    options = parser.parse_args(argv)
    pip = (sys.executable, "-m", "pip")
    # not isolated: the back end is pinned, and the headers are those of the jaxlib that will load the library
    install = (*pip, "install", "--no-build-isolation", "--no-deps", "--force-reinstall", str(ROOT / "native"))
    steps = ((*pip, "install", "-c", str(ROOT / "constraints.txt"), *TOOLS), install, (sys.executable, "-c", LOAD))
    try:
        options.log.parent.mkdir(parents=True, exist_ok=True)
        with options.log.open("w", encoding="utf-8") as log:
            built = all(subprocess.call(step, stdout=log, stderr=log) == 0 for step in steps)
            if built and options.stamp:
                options.stamp.touch()
            elif not built:
                subprocess.call((*pip, "uninstall", "-y", "powerzoo-jax-native"), stdout=log, stderr=log)
    except OSError:
        built = False
    if not built:
        print(f"compiled kernel not built, the JAX form is used: see {options.log}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
