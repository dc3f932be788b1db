"""Status of an optimisation, with prose."""

from __future__ import annotations

from enum import IntEnum


class OpfStatus(IntEnum):
    """Outcome of one optimisation."""

    OPTIMAL = 0
    OUT_OF_STEPS = 1
    INFEASIBLE = 2
    BAD_INPUT = 3
    ROW_MISSING = 4


EXPLAIN_OPF = {
    OpfStatus.OPTIMAL: "Residuals and relative gap are below 1e-6 (float64) or 1e-4 (float32).",
    OpfStatus.OUT_OF_STEPS: (
        "Residuals or gap were still too large when the steps ran out or became too short. Look for costs or limits "
        "many orders of magnitude apart, or solve in float64."
    ),
    OpfStatus.INFEASIBLE: (
        "No point was found that satisfies all limits. Multipliers of `dc_opf` and `secure_dc_opf` prove that there is "
        "none, `infeasibility` checks them; those of `ac_opf` speak of the neighbourhood of its last point only. "
        "Allow shedding, or look for a load beyond the capacity or for a rating that an injection cannot get around."
    ),
    OpfStatus.BAD_INPUT: "A load, limit or price was not finite. The solver did not cause this: check the profiles.",
    OpfStatus.ROW_MISSING: (
        "The programme was solved, and a branch whose limit did not enter it is overloaded. Prepare the factors with "
        "`rows=binding_rows(...)` over the loads that you solve, or with all rows."
    ),
}
