"""The islanded data centre as an environment."""

from powerzoo_compat.powerzoo_api.markets import DCMicrogridEnv as DCMicrogridEnv
