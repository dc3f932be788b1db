"""The islanded data centre as an environment."""

from powerzoo_compat.powerzoo_api.grids.markets import DCMicrogridEnv as DCMicrogridEnv
