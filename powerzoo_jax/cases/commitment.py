"""Unit-commitment data of `case118`: our own table, round values within the published ranges of each technology."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases.case import Case, _Columns


@dataclass(frozen=True)
class Technology:
    """Commitment parameters common to all units of one class; shares and rates are per MW of p_max.

    name:                 "base" | "mid" | "peak"
    p_min_share:          [-]       least output while on
    min_up_hours:         [h]       after a start
    min_down_hours:       [h]       after a stop
    ramp_share_per_hour:  [1/h]     largest change of output while on, both directions
    startup_usd_per_mw:   [USD/MW]  of one start
    no_load_usd_per_mwh:  [USD/(MW h)] for every hour on, beside the cost of the output
    """

    name: str
    p_min_share: float
    min_up_hours: float
    min_down_hours: float
    ramp_share_per_hour: float
    startup_usd_per_mw: float
    no_load_usd_per_mwh: float


TECHNOLOGIES = (
    Technology("base", 0.4, 8.0, 8.0, 0.3, 60.0, 4.0),
    Technology("mid", 0.3, 4.0, 4.0, 0.5, 40.0, 3.0),
    Technology("peak", 0.2, 1.0, 1.0, 1.0, 20.0, 2.0),
)
BASE, MID, PEAK = range(3)
LARGE_UNIT_MW = 300.0  # parts the cheap units into 10 base and 9 mid ones; the 35 dear units are peak
CHEAP_USD, DEAR_USD = 20.0, 40.0  # [USD/MWh] the two marginal costs at zero output that the case knows
CASES = ("case118", "pz_case118")


@dataclass(frozen=True, eq=False, repr=False)
class CommitmentTable(_Columns):
    """Commitment costs and requirements of every unit, in the order of the case.

    technology:           (G,)  int64   index into TECHNOLOGIES
    p_min_mw, p_max_mw:   (G,)  [MW]    range while on; off means 0
    min_up_hours:         (G,)  [h]     least time on after a start
    min_down_hours:       (G,)  [h]     least time off after a stop
    ramp_mw_per_hour:     (G,)  [MW/h]  largest change while on; a start reaches, and a stop leaves, p_min at least
    startup_usd:          (G,)  [USD]   each start
    no_load_usd_per_hour: (G,)  [USD/h] while on, beside the case's cost of the output
    """

    INTEGER = frozenset({"technology"})

    technology: np.ndarray
    p_min_mw: np.ndarray
    p_max_mw: np.ndarray
    min_up_hours: np.ndarray
    min_down_hours: np.ndarray
    ramp_mw_per_hour: np.ndarray
    startup_usd: np.ndarray
    no_load_usd_per_hour: np.ndarray


def commitment_table(case: Case) -> CommitmentTable:
    """Unit-commitment data of `case118` or `pz_case118`.

    Class by the marginal cost at zero output and the size: 40 USD/MWh is peak, 20 USD/MWh is base from 300 MW on and
    mid below. Raises CaseError for any other case.
    """
    if case.name not in CASES:
        raise CaseError(f"{case.name} has no unit-commitment data. Use one of {', '.join(CASES)}, or fill a table.")
    return from_technologies(classify(case), case.unit.p_max_mw)


def classify(case: Case) -> np.ndarray:
    """Index into TECHNOLOGIES of every unit, (G,) int64."""
    unit = case.unit
    quadratic = (unit.cost_model == 2) & (unit.cost_terms == 3)
    intercept = unit.cost[:, 1] if unit.cost.shape[1] == 3 else np.full(len(unit), np.nan)
    if not np.all(quadratic & np.isin(intercept, (CHEAP_USD, DEAR_USD))):
        raise CaseError(
            f"{case.name}: the classes need quadratic costs that start at {CHEAP_USD:g} or {DEAR_USD:g} USD/MWh. "
            "Give the class of every unit to commitment.from_technologies."
        )
    cheap = np.where(unit.p_max_mw >= LARGE_UNIT_MW, BASE, MID)
    return np.where(intercept == CHEAP_USD, cheap, PEAK).astype(np.int64)


def from_technologies(technology: np.ndarray, p_max_mw: np.ndarray) -> CommitmentTable:
    """The table of units of given classes (G,) and sizes (G,) [MW]."""

    def of(name: str) -> np.ndarray:
        return np.array([getattr(t, name) for t in TECHNOLOGIES])[technology]

    return CommitmentTable(
        technology=technology,
        p_min_mw=of("p_min_share") * p_max_mw,
        p_max_mw=p_max_mw,
        min_up_hours=of("min_up_hours"),
        min_down_hours=of("min_down_hours"),
        ramp_mw_per_hour=of("ramp_share_per_hour") * p_max_mw,
        startup_usd=of("startup_usd_per_mw") * p_max_mw,
        no_load_usd_per_hour=of("no_load_usd_per_mwh") * p_max_mw,
    )
