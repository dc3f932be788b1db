"""Names that the contract gives to tasks: the public set, short names, kinds and Gymnasium ids."""

from __future__ import annotations

from powerzoo_jax.tasks import get_spec, list_tasks

DROP_IN = "PowerZoo"  # namespace of the Gymnasium ids
SINGLE, MULTI = AGENT_MODES = ("single", "multi")
DIFFICULTIES = ("simple", "middle", "complex")
FRAMEWORKS = ("auto", "gymnasium", "pettingzoo", "rllib")
ATOMIC = "atomic_"
ALIASES = {"tso": "comparison_tso_centralized"}
PUBLIC_ORDER = (
    *("marl_opf", "marl_uc", "opf_118", "opf_118_7d", "marl_der_arbitrage", "marl_ders_benchmark", "marl_ev_v2g"),
    *("battery_arbitrage", "dc_scheduling", "dc_microgrid", "dc_microgrid_safe", "gencos_bidding"),
    *("comparison_tso_centralized", "dso"),
)
PUBLIC_TASKS = tuple(task for task in PUBLIC_ORDER if task in list_tasks())
GYM_NAMES = {
    "battery_arbitrage": "BatteryArbitrage",
    "dc_scheduling": "DCScheduling",
    "dc_microgrid": "DCMicrogrid",
    "dc_microgrid_safe": "DCMicrogridSafe",
    "dso": "DSO",
    "comparison_tso_centralized": "ComparisonTSOCentralized",
}
CENTRAL_NAMES = {  # of the centralised view of a task with several agents
    "marl_opf": "MARL-OPF",
    "marl_opf_7d": "MARL-OPF-7d",
    "marl_opf_118": "MARL-OPF-118",
    "marl_der_arbitrage": "MARL-DER",
    "marl_der_arbitrage_7d": "MARL-DER-7d",
    "marl_ders_benchmark": "MARL-DERs",
    "marl_ev_v2g": "MARL-EV",
    "marl_ev_v2g_1d": "MARL-EV-1d",
    "marl_uc": "MARL-UC",
    "gencos_bidding": "GenCos",
}


def gym_id(namespace: str, task: str) -> str:
    """Gymnasium id `<namespace>/<name>-v<TaskSpec.version>` of a task."""
    return f"{namespace}/{(GYM_NAMES | CENTRAL_NAMES)[task]}-v{get_spec(task).version}"
