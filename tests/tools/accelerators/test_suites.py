"""Runs of the reference suites in the fixed form."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from powerzoo_jax.base.solver_mode import ADAPTIVE, AUTO, FIXED, by_mode
from tools.accelerators import suites


def test_auto_is_what_the_run_says(pytestconfig: pytest.Config) -> None:
    found = jax.jit(lambda: by_mode(AUTO, lambda: jnp.int32(1), lambda: jnp.int32(2)))()
    assert int(found) == {AUTO: 1, ADAPTIVE: 1, FIXED: 2}[pytestconfig.getoption("auto_is")]


@pytest.mark.full
def test_a_run_can_take_auto_as_fixed() -> None:
    one = f"{__file__}::{test_auto_is_what_the_run_says.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one, "--auto-is", "fixed"]
    done = subprocess.run(command, cwd=suites.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
