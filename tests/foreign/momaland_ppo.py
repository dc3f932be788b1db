"""MOMAland's wrappers over vector rewards: weighed to one number, normalised, agents as lanes, trained by SB3."""

from __future__ import annotations

import supersuit
from momaland.utils.parallel_wrappers import LinearizeReward
from powerzoo_compat import momaland_view  # ours
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecNormalize

from tests.foreign.scoring import BATTERIES, Days, final_ends, run

GAMMA = 0.999


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the mean action before and after."""
    env = final_ends(momaland_view.parallel_env("marl_der_arbitrage", reward_type="individual"))  # ours
    rating_mw = env.action_space(env.possible_agents[0]).high
    env = LinearizeReward(env, dict.fromkeys(env.possible_agents, env.reward_weights))
    env = supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(env), 4, num_cpus=0, base_class="stable_baselines3"
    )
    env.venv.reset(seed=seed)  # SuperSuit's VecEnv has no seed() that SB3 could call
    set_random_seed(seed)
    env = VecNormalize(env, gamma=GAMMA)
    model = PPO(
        "MlpPolicy", env, learning_rate=1e-3, n_steps=96, batch_size=192, n_epochs=8, gamma=GAMMA,
        device="cpu", policy_kwargs={"log_std_init": -2.5},
    )  # fmt: skip

    def act(obs):
        return model.predict(env.normalize_obs(obs), deterministic=True)[0] / rating_mw

    before = days.mean_return(act)
    model.learn(30 * env.num_envs * 96)
    return before, days.mean_return(act)


if __name__ == "__main__":
    run("momaland", train, BATTERIES)
