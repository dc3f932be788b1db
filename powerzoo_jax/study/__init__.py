"""Studies of one network on the host: power flow, optimal power flow and outages as tables by bus and branch."""

from powerzoo_jax.study.power_flow import NetworkStudy as NetworkStudy
from powerzoo_jax.study.power_flow import run_power_flow as run_power_flow
from powerzoo_jax.study.table import StudyTable as StudyTable
