"""Feeders and states that the tests, the recorder and the benchmark of the three-phase solver share."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from powerzoo_jax.cases.threephase.case import ThreePhaseCase
from powerzoo_jax.cases.threephase.library import load_feeder
from powerzoo_jax.powerflow.threephase.factors import nominal_phase_load, prepare_threephase
from powerzoo_jax.powerflow.threephase.solve import ThreePhaseResult, solve_threephase

# name of the folder with the recorded figures -> tap positions by regulator: those of the case, then other known ones
TAPS = {
    "ieee13": ((9, 6, 9), (10, 8, 11)),
    "ieee34": ((14, 4, 5, 13, 13, 13), (12, 5, 5, 13, 11, 12)),
    "ieee123": ((7, -1, 0, -1, 8, 1, 5), (6, 0, 2, 0, 10, 4, 6)),
}
DERS: tuple[str | tuple[str, str], ...] = (
    *("83.1", "66.3", "30.3", "50.2", "87.2", "104.3", "113.1", "79.2", "64.1", "610.1"),
    *(("76.1", "76.2"), ("65.2", "65.3"), ("300.3", "300.1")),
)
SEED, LOAD_SPAN, DER_MW, DER_MVAR, TAP_SPAN = 20_261_121, (0.3, 1.5), (-0.05, 0.15), (-0.06, 0.06), (-6, 10)


class States(NamedTuple):
    """Inputs of the solver: injections p, q (B, D + G) [pu] and tap positions (B, R)."""

    p: np.ndarray
    q: np.ndarray
    taps: np.ndarray


def case_of(folder: str) -> ThreePhaseCase:
    return load_feeder(folder)


def draw_states(case: ThreePhaseCase, count: int) -> States:
    """Loads scaled one by one, DERs between charging and feeding in, taps of every second state anywhere in the span.

    The rows of one three-phase load share their factors, as an element of OpenDSS does.
    """
    rng = np.random.default_rng(SEED)
    names, element = np.unique(case.load.name, return_inverse=True)
    factors = rng.uniform(*LOAD_SPAN, (2, count, names.size))[..., element]
    nominal = nominal_phase_load(case)
    der = rng.uniform(*DER_MW, (count, len(DERS))), rng.uniform(*DER_MVAR, (count, len(DERS)))
    taps = np.broadcast_to(case.regulator.tap, (count, len(case.regulator))).copy()
    taps[1::2] = rng.integers(*TAP_SPAN, taps[1::2].shape, endpoint=True)
    parts = zip((nominal.real, nominal.imag), factors, der, strict=True)
    p, q = (np.hstack([part * factor, mw / case.base_mva]) for part, factor, mw in parts)
    return States(p, q, taps)


@cache
def _solver(mode: str) -> Any:
    return jax.jit(jax.vmap(partial(solve_threephase, solver=mode), in_axes=(None, 0, 0, 0)))


def solve_states(
    case: ThreePhaseCase, states: States, dtype: str, mode: str = "adaptive", **prepared: Any
) -> ThreePhaseResult:
    """Solve states with the package in one compiled batch; host arrays come back."""
    ratios = 1 + case.regulator.step * states.taps
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_threephase(case, dtype=dtype, **prepared)
        result = _solver(mode)(factors, *(np.asarray(x, dtype) for x in (states.p, states.q, ratios)))
        return jax.tree.map(np.asarray, result)


def nominal_states(case: ThreePhaseCase, taps: tuple[tuple[int, ...], ...]) -> States:
    """The nominal loads at several tap positions."""
    s = np.broadcast_to(nominal_phase_load(case), (len(taps), len(case.load)))
    return States(s.real, s.imag, np.array(taps))
