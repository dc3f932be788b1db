"""Cases, states and reference solutions that the feeder tests share."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import PowerFlowResult, nominal_injection, prepare_feeder, solve_feeder
from tests.references import newton as newton_reference
from tests.references.newton import Flows, Network, branch_flows, build_network, solve_states

CASES = ("33bw", "69", "118zh", "141", "533mt_hi", "533mt_lo")
COUNT, SEED = 1000, 20_240_601
SPAN = (0.2, 2.0)  # multiples of the nominal injections


class States(NamedTuple):
    """Injections s (B, N) complex [pu] of one case and their reference solution v (B, N), flows."""

    case: Case
    net: Network
    s: np.ndarray
    v: np.ndarray
    flows: Flows


def draw_states(case: Case) -> np.ndarray:
    """(1 + COUNT, N): the nominal state, then half of them scaled by one common factor and half bus by bus."""
    rng = np.random.default_rng(SEED)
    common = rng.uniform(*SPAN, (COUNT // 2, 1)) * np.ones(case.n_bus)
    per_bus = rng.uniform(*SPAN, (COUNT - COUNT // 2, case.n_bus))
    return nominal_injection(case) * np.vstack([np.ones(case.n_bus), common, per_bus])


def reference_states(name: str, folder: Path) -> States:
    """Draw the states of a case and solve them with the reference, or read that solution from the user's cache."""
    case = load_case(name)
    net, s = build_network(case), draw_states(case)
    digest = hashlib.sha256(Path(newton_reference.__file__).read_bytes())
    for array in (s, net.y, net.f, net.t, np.array([net.v0])):
        digest.update(np.ascontiguousarray(array).tobytes())
    path = folder / f"reference_{name}_{digest.hexdigest()[:16]}.npy"
    v = _read(path, s.shape)
    if v is None:
        solution = solve_states(net, s)
        assert solution.converged.all()
        v = solution.v
        partial = path.with_name(f"{path.stem}_{id(v)}.part")
        with partial.open("wb") as stream:
            np.save(stream, v)
        partial.replace(path)  # other test processes see a whole file or none
    return States(case, net, s, v, branch_flows(net, v))


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    if not path.is_file():
        return None
    v = np.load(path)
    return v if v.shape == shape else None


# Float type and mode of the solver: the adaptive form in both types, and the fixed one in the type of accelerators.
FORMS = {"float32": ("float32", "adaptive"), "float64": ("float64", "adaptive"), "fixed": ("float32", "fixed")}


@cache
def _solver(mode: str) -> Any:
    return jax.jit(jax.vmap(lambda factors, p, q: solve_feeder(factors, p, q, solver=mode), in_axes=(None, 0, 0)))


def solve_all(case: Case, s: np.ndarray, dtype: str, mode: str = "adaptive") -> PowerFlowResult:
    """Solve (B, N) injections with the package in one compiled batch; host arrays come back."""
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_feeder(case, dtype=dtype)
        result = _solver(mode)(factors, s.real.astype(dtype), s.imag.astype(dtype))
        return jax.tree.map(np.asarray, result)
