"""Tests of the compiled kernel are collected where there is one; CI sets POWERZOO_JAX_NATIVE=require."""

from powerzoo_jax.powerflow.native.library import find_library

collect_ignore_glob = [] if find_library() else ["test_kernel.py"]
