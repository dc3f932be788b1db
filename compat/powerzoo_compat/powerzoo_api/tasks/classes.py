"""Task classes of the contract with their descriptions; settings and data stand in `powerzoo_jax.tasks`."""

from __future__ import annotations

from powerzoo_compat.powerzoo_api.tasks.base import SAFE, MultiAgentTask, SingleAgentTask, Task

MIDDLE, COMPLEX = "middle", "complex"


class MARLOPFTask(MultiAgentTask):
    name = "marl_opf"
    description = "Five generators share the load of a five-bus grid within the ratings of its lines."


class MARLOPFTask7Days(MARLOPFTask):
    name = "marl_opf_7d"
    description = "Five generators share the load of a five-bus grid for a week."


class MARLOPFTaskCase118(MARLOPFTask):
    name = "marl_opf_118"
    description = "54 generators share the load of the 118-bus grid under the rules of marl_opf."


class MARLUCTask(MultiAgentTask):
    name = "marl_uc"
    description = "Five generators also decide when to run, with minimum times, ramps, start-up costs and reserve."
    difficulty = MIDDLE


class OPF118Task(MultiAgentTask):
    name = "opf_118"
    description = "54 generators share the load of the 118-bus grid for a day."
    difficulty = COMPLEX


class OPF118Task7Days(OPF118Task):
    name = "opf_118_7d"
    description = "54 generators share the load of the 118-bus grid for a week."


class MARLDERArbitrageTask(MultiAgentTask):
    name = "marl_der_arbitrage"
    description = "Three batteries on a feeder trade at the day-ahead price and keep the voltages in their band."


class MARLDERArbitrageTask7Days(MARLDERArbitrageTask):
    name = "marl_der_arbitrage_7d"
    description = "Three batteries on a feeder trade for a week."


class MARLDERArbitrageTask5Batteries(MARLDERArbitrageTask):
    name = "marl_der_arbitrage_5bat"
    description = "Five batteries on a feeder trade for a day."


class MARLDERBenchmarkTask(MultiAgentTask):
    name = "marl_ders_benchmark"
    description = "Batteries, solar plants and flexible loads hold the voltages of a 141-bus feeder at least cost."


class MARLEVTask(MultiAgentTask):
    name = "marl_ev_v2g"
    description = "Five electric vehicles charge, sell back and are ready for their trips for a week."


class MARLEVTask1Day(MARLEVTask):
    name = "marl_ev_v2g_1d"
    description = "Five electric vehicles for a day."


class MARLEVTask10EVs(MARLEVTask):
    name = "marl_ev_v2g_10ev"
    description = "Ten electric vehicles for a week."


class BatteryArbitrageTask(SingleAgentTask):
    name = "battery_arbitrage"
    description = "One battery on a feeder buys cheap and sells dear at the day-ahead price."


class DCSchedulingTask(SingleAgentTask):
    name = "dc_scheduling"
    description = "A data centre on a feeder schedules its jobs and its cooling against price and deadlines."


class DCSchedulingTask7Days(DCSchedulingTask):
    name = "dc_scheduling_7d"
    description = "A data centre on a feeder for a week."


class DCMicrogridTask(SingleAgentTask):
    name = "dc_microgrid"
    description = "An islanded data centre with battery, sun and diesel; missed jobs cost money."


class DCMicrogridSafeTask(SingleAgentTask):
    name = "dc_microgrid_safe"
    description = "An islanded data centre with battery, sun and diesel; missed jobs are a constraint alone."
    training_contract = SAFE


class GenCosTask(MultiAgentTask):
    name = "gencos_bidding"
    description = "Five generating companies bid into a market that is cleared on a five-bus grid."


class CentralizedComparisonTSOTask(SingleAgentTask):
    name = "comparison_tso_centralized"
    description = "One operator commits and dispatches the 54 units of the 118-bus grid."
    difficulty = MIDDLE


class DSOTask(SingleAgentTask):
    name = "dso"
    description = "A distribution operator curtails and defers flexible loads to keep a strained feeder in its band."


class JointTransDistTask(MultiAgentTask):
    name = "joint_trans_dist"
    description = "Generators of a transmission grid and batteries of a feeder below one of its buses share the cost."
    difficulty = COMPLEX


class JointTransDistTask7Days(JointTransDistTask):
    name = "joint_trans_dist_7d"
    description = "Generators of a transmission grid and batteries of a feeder for a week."


BUILT_IN: tuple[type[Task], ...] = (
    *(MARLOPFTask, MARLOPFTask7Days, MARLOPFTaskCase118, MARLUCTask, OPF118Task, OPF118Task7Days),
    *(MARLDERArbitrageTask, MARLDERArbitrageTask7Days, MARLDERArbitrageTask5Batteries, MARLDERBenchmarkTask),
    *(MARLEVTask, MARLEVTask1Day, MARLEVTask10EVs),
    *(BatteryArbitrageTask, DCSchedulingTask, DCSchedulingTask7Days, DCMicrogridTask, DCMicrogridSafeTask),
    *(GenCosTask, CentralizedComparisonTSOTask, DSOTask, JointTransDistTask, JointTransDistTask7Days),
)
