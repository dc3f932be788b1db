"""The islanded data centre as an environment."""

from powerzoo_compat.powerzoo_api.envs.markets import DCMicrogridEnv as DCMicrogridEnv
