"""Every tolerance of the suite, keyed by quantity and dtype, with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np

F32, F64 = "float32", "float64"

TOLERANCES: dict[str, dict[str, float]] = {
    # The demand on the feeder solver. float32 resolves 6e-8 around 1.0 and the products add a few roundings;
    # float64 is set by where the iteration stops.
    "v_pu": {F32: 1e-6, F64: 1e-9},
    # The demand in float32: currents are primary, so the error is that of a float32 sum, relative to at least
    # 0.01 pu. In float64 both follow the voltage, which stops at 8e-10, times the slope of flow over voltage.
    "flow_relative": {F32: 1e-5, F64: 1e-7},
    "loss_relative": {F32: 1e-5, F64: 1e-7},
    # The demand on the meshed solver.
    "angle_rad": {F32: 1e-5, F64: 1e-9},
    # A flow is a difference of voltages times an admittance of up to 1e4 pu: what the stored difference may be off.
    "flow_stored_v_pu": {F32: 1e-8, F64: 1e-9},
    # Set-points against the magnitude of a stored (re, im): a few roundings, of the base voltage and of every turn.
    "held_v_pu": {F32: 3e-7, F64: 1e-14},
    # Audits of meshed results: in float32 roundings of sums of flows of up to 8 pu; in float64 what is left of a
    # stop at 4e-10 pu after polishing, times admittances.
    "meshed_kcl_pu": {F32: 3e-5, F64: 1e-8},
    "meshed_kvl_pu": {F32: 1e-6, F64: 1e-9},
    # Generation = load + losses: roundings of a sum over up to 532 injections, on top of the reported residual.
    "balance_relative": {F32: 3e-6, F64: 1e-13},
    # Power mismatch found by an audit in float64 of what the result stores: current roundings of the sum of
    # injections below a bus (KCL), voltage roundings of both ends (KVL).
    "kcl_pu": {F32: 1e-5, F64: 1e-10},
    "kvl_pu": {F32: 1e-6, F64: 1e-10},
    # Two orders of the same sums round differently.
    "renumbered_v_pu": {F32: 1e-6, F64: 1e-12},
    # Central differences with step h: truncation h^2 plus rounding eps / h, both below 1e-8 for h = 1e-5. In float32
    # a derivative is a sum over branches of products that keep six digits each.
    "gradient_relative": {F32: 1e-4, F64: 1e-6},
    # Beside a branch of the least impedance that is taken: its current is a voltage difference over that impedance,
    # of which float32 keeps two digits. What the impedance itself changes is the square of that current.
    "busbar_gradient_relative": {F32: 1e-2, F64: 1e-6},
    "busbar_impedance_relative": {F32: 1e-2, F64: 2e-4},
    # Printed digits of published and recomputed figures (7 significant for losses, 6 for voltages).
    "golden_loss_relative": {F32: 1e-5, F64: 1e-6},
    "golden_v_pu": {F32: 1.5e-6, F64: 1e-6},
    # Two independent float64 Newton methods stopped at 1e-10 pu or less.
    "reference_v_pu": {F64: 1e-9},
    "reference_flow_pu": {F64: 1e-8},
    # One program compiled alone and inside a larger one: roundings of float32, relative above 1.
    "view": {F32: 1e-6},
    # A share of the capacity, or MW of a battery, after one step: a few roundings of numbers below one.
    "soc": {F32: 3e-7, F64: 1e-15},
    # A normalised price, sine or cosine of at most 3, stored as float32.
    "signal": {F32: 5e-7},
    # Energy, temperature or work of a device after a step against the sum of what went in and out: roundings of
    # float32 in a few hundred steps; the issue asks for 1e-5.
    "device_balance": {F32: 1e-5, F64: 1e-12},
    # Money of a step recomputed in float64 from prices and delivered power, relative above one dollar; the bank keeps
    # its mean price in float32 whatever the program computes in.
    "money_relative": {F32: 1e-5, F64: 1e-6},
    # Voltages, flows and money of one lane computed alone and in a wider program: other orders of the same sums.
    "lane": {F32: 1e-6},
    # Central differences over an episode: the solver stops at 4e-10 pu, which a step of 2e-2 divides.
    "episode_gradient_relative": {F64: 1e-5},
    # The demand on N-1 in AC is 1e-5 pu; without the polishing of `solve_meshed` float32 flows keep a few 1e-6 of it.
    "outage_v_pu": {F32: 5e-6, F64: 2e-9},
    "outage_flow_pu": {F32: 1e-5, F64: 1e-7},
    # DC angles and flows, relative to the largest of the network (1 at least): two float64 factorisations of a matrix
    # of condition 1e6 (2,383 buses); in float32 the rounding of a sum over the buses.
    "dc_relative": {F32: 1e-5, F64: 1e-9},
    # DC-OPF: the demand. Published costs carry seven digits or more.
    "opf_cost_relative": {F32: 1e-4, F64: 1e-6},
    "opf_violation_pu": {F32: 1e-4, F64: 1e-6},
    "opf_price_relative": {F32: 1e-4, F64: 1e-8},  # of the largest price of the problem
    # Dispatch printed with four digits of a MW; in float32 the gap of 1e-5 leaves a marginal unit that much freedom.
    "opf_dispatch_pu": {F32: 1e-3, F64: 1e-6},
    # Central differences of prices: the optimum stops at a gap of 1e-11 of an objective of 1e5, divided by the step.
    "opf_gradient_relative": {F64: 1e-5},
    # AC-OPF: the demand on costs. Gradients of the Lagrangian relative to the largest price, and prices times the room
    # to their limit [pu]: a gap of 1e-8 shared by thousands of limits, and 1e-7 at which stationarity stops.
    "opf_ac_cost_relative": {F32: 1e-5, F64: 1e-5},
    "opf_ac_stationarity": {F64: 1e-5},
    # Collapse factors are quoted with three digits; states this near to the nose are undecidable in practice.
    "collapse_relative": {F32: 5e-3, F64: 5e-3},
    # The demand on the three-phase solver is 1e-5 pu; OpenDSS's own equations, with admittances of switches, hold
    # 2e-8. The millionth of its rating that it adds to a transformer as a shunt shows in IEEE 34 alone (9e-6).
    "opendss_v_pu": {F32: 1e-6, F64: 1e-7},
    "opendss_shunt_v_pu": {F32: 2e-5, F64: 2e-5},
    # Small feeders in float64 by a solver of the tests; what is left is that shunt, 1e-7 at the most.
    "opendss_element_v_pu": {F64: 1e-6},
    "opendss_loss": {F32: 2e-5, F64: 1e-5},
    "opendss_source": {F32: 1e-4, F64: 1e-4},
    # An audit with another formulation in amperes and volt-amperes, of feeders of some 500 A and 4 MVA: where the
    # iteration stops (8e-10 pu of voltage), times the slope of the loads' current.
    "audit_amp": {F64: 1e-6},
    "audit_va": {F64: 1e-2},
    # The demand on a replay of Grid2Op, which rounds currents, powers [MW] and voltages [kV] of its flow to float32: a
    # few roundings of numbers up to 2, 200 and 200; float32 programs find flows in twice their
    # digits. Dispatch is the end of a path that stops at 1e-4.
    "grid2op_rho": {F32: 1e-6, F64: 1e-6},
    "grid2op_pq": {F32: 2e-5, F64: 2e-5},
    "grid2op_v": {F32: 1e-4, F64: 1e-4},
    "grid2op_dispatch": {F32: 1e-3, F64: 1e-3},
    "grid2op_rewards": {F32: 1e-6, F64: 1e-6},
    "grid2op_simulated_rho": {F32: 1e-6, F64: 1e-6},
}


def tolerance(quantity: str, dtype: Any) -> float:
    """Tolerance of a quantity in the dtype that computed it."""
    return TOLERANCES[quantity][np.dtype(dtype).name]
