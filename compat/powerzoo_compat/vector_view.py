"""Gymnasium's VectorEnv, natively: all environments of a batch are lanes of one compiled program.

Example:
    import gymnasium
    import powerzoo_compat.gymnasium_view
    envs = gymnasium.make_vec("PowerZooJax/BatteryArbitrage-v1", num_envs=1024)
    obs, infos = envs.reset(seed=0)
    obs, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
"""

from powerzoo_compat.powerzoo_api.envs.vector import TaskVectorEnv as TaskVectorEnv
from powerzoo_compat.powerzoo_api.envs.vector import make_vec_env as make_vec_env
from powerzoo_compat.powerzoo_api.envs.vector import open_lanes as open_lanes
from powerzoo_compat.powerzoo_api.envs.vector import restart_lanes as restart_lanes
from powerzoo_compat.powerzoo_api.envs.vector import step_lanes as step_lanes
