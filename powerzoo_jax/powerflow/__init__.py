"""Power flow: `prepare` once on the host, `solve` on the device, batched, with a status and a proof."""

from powerzoo_jax.powerflow.check import Violation as Violation
from powerzoo_jax.powerflow.check import check_feeder as check_feeder
from powerzoo_jax.powerflow.factors import FeederFactors as FeederFactors
from powerzoo_jax.powerflow.factors import nominal_injection as nominal_injection
from powerzoo_jax.powerflow.factors import prepare_feeder as prepare_feeder
from powerzoo_jax.powerflow.feeder import solve_feeder as solve_feeder
from powerzoo_jax.powerflow.feeder import solve_feeder_active as solve_feeder_active
from powerzoo_jax.powerflow.result import EXPLAIN as EXPLAIN
from powerzoo_jax.powerflow.result import PowerFlowResult as PowerFlowResult
from powerzoo_jax.powerflow.result import Status as Status
from powerzoo_jax.powerflow.result import explain as explain
