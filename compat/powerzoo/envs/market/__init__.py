"""Markets as environments."""

from powerzoo_compat.powerzoo_api.grids.markets import BidBasedMarketEnv as BidBasedMarketEnv
from powerzoo_compat.powerzoo_api.grids.markets import CostBasedMarketEnv as CostBasedMarketEnv
from powerzoo_compat.powerzoo_api.grids.markets import GenCosMARLEnv as GenCosMARLEnv
from powerzoo_compat.powerzoo_api.grids.markets import MarketEnv as MarketEnv
from powerzoo_compat.powerzoo_api.grids.markets import make_gencos_env as make_gencos_env
