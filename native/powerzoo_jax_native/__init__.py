"""Compiled kernel of powerzoo_jax: the file of its shared library, which the main package loads, and its version."""

from pathlib import Path

__version__ = "0.3.0"
LIBRARY = Path(__file__).with_name("kernel.so")
