"""Power flow: `prepare` once on the host, `solve` on the device, batched, with a status and a proof."""

from powerzoo_jax.powerflow.check import Violation as Violation
from powerzoo_jax.powerflow.check import check_feeder as check_feeder
from powerzoo_jax.powerflow.dc import DcConvention as DcConvention
from powerzoo_jax.powerflow.dc import DcFactors as DcFactors
from powerzoo_jax.powerflow.dc import DcResult as DcResult
from powerzoo_jax.powerflow.dc import pad_dc as pad_dc
from powerzoo_jax.powerflow.dc import prepare_dc as prepare_dc
from powerzoo_jax.powerflow.dc import solve_dc as solve_dc
from powerzoo_jax.powerflow.dc_network import scheduled_injection as scheduled_injection
from powerzoo_jax.powerflow.dc_outage import DcOutages as DcOutages
from powerzoo_jax.powerflow.dc_outage import outage_flows as outage_flows
from powerzoo_jax.powerflow.dc_outage import prepare_dc_outages as prepare_dc_outages
from powerzoo_jax.powerflow.dc_outage import worst_outage_loading as worst_outage_loading
from powerzoo_jax.powerflow.factors import FeederFactors as FeederFactors
from powerzoo_jax.powerflow.factors import nominal_injection as nominal_injection
from powerzoo_jax.powerflow.factors import prepare_feeder as prepare_feeder
from powerzoo_jax.powerflow.feeder import solve_feeder as solve_feeder
from powerzoo_jax.powerflow.feeder import solve_feeder_active as solve_feeder_active
from powerzoo_jax.powerflow.result import EXPLAIN as EXPLAIN
from powerzoo_jax.powerflow.result import PowerFlowResult as PowerFlowResult
from powerzoo_jax.powerflow.result import Status as Status
from powerzoo_jax.powerflow.result import explain as explain
