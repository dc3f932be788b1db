"""Optimisation in the graph: programmes, dispatch, DC optimal power flow, markets; with prices and proofs."""

from powerzoo_jax.opf.certificate import dual_bound as dual_bound
from powerzoo_jax.opf.certificate import infeasibility as infeasibility
from powerzoo_jax.opf.dc import DcOpfResult as DcOpfResult
from powerzoo_jax.opf.dc import dc_opf as dc_opf
from powerzoo_jax.opf.dc import dc_programme as dc_programme
from powerzoo_jax.opf.dc_factors import DcOpfFactors as DcOpfFactors
from powerzoo_jax.opf.dc_factors import prepare_dc_opf as prepare_dc_opf
from powerzoo_jax.opf.dispatch import DispatchResult as DispatchResult
from powerzoo_jax.opf.dispatch import economic_dispatch as economic_dispatch
from powerzoo_jax.opf.dispatch import ramp_window as ramp_window
from powerzoo_jax.opf.market import Clearing as Clearing
from powerzoo_jax.opf.market import Settlement as Settlement
from powerzoo_jax.opf.market import capped_offers as capped_offers
from powerzoo_jax.opf.market import clear_market as clear_market
from powerzoo_jax.opf.offers import Offers as Offers
from powerzoo_jax.opf.offers import case_offers as case_offers
from powerzoo_jax.opf.offers import cost_of as cost_of
from powerzoo_jax.opf.offers import make_cost_segments as make_cost_segments
from powerzoo_jax.opf.programme import Bids as Bids
from powerzoo_jax.opf.qp import Qp as Qp
from powerzoo_jax.opf.qp import QpResult as QpResult
from powerzoo_jax.opf.qp import solve_qp as solve_qp
from powerzoo_jax.opf.result import EXPLAIN_OPF as EXPLAIN_OPF
from powerzoo_jax.opf.result import OpfStatus as OpfStatus
from powerzoo_jax.opf.screening import binding_rows as binding_rows
