"""PureJaxQL's pqn_gymnax.py from a checkout, with two lines exchanged, on levels of power.

Words: the path of the checkout
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.wrappers.purerl import GymnaxWrapper

from tests.foreign.checkout import Checkout, stand_in
from tests.foreign.scoring import BATTERY, Days, run

FILE = "purejaxql/pqn_gymnax.py"
LEVELS = 5
OURS = (
    "import powerzoo_jax; from powerzoo_compat.gymnax_view import to_gymnax; "
    f'env, env_params = to_gymnax(powerzoo_jax.make(config["ENV_NAME"]), levels={LEVELS})\n'
)
# the file is older than gymnax 1.0, whose wrappers tell both ends of an episode apart
FIVE = "from tests.foreign.purejaxql_pqn import FiveValues; env = FiveValues(LogWrapper(env))\n"
CHANGES = {'env, env_params = gymnax.make(config["ENV_NAME"])\n': OURS, "env = LogWrapper(env)\n": FIVE}
# settings on the command line and curves on a server, not used here
ABSENT: dict[str, dict] = {
    "hydra": {"main": lambda **words: lambda main: main},
    "omegaconf": {"OmegaConf": None},
    "wandb": {},
}
CONFIG = {
    "TOTAL_TIMESTEPS_DECAY": 100 * 32 * 48,
    "NUM_ENVS": 32,
    "NUM_STEPS": 48,
    "EPS_START": 0.5,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.6,
    "NUM_MINIBATCHES": 8,
    "NUM_EPOCHS": 4,
    "NORM_INPUT": True,
    "HIDDEN_SIZE": 64,
    "NUM_LAYERS": 2,
    "NORM_TYPE": "layer_norm",
    "LR": 1e-3,
    "MAX_GRAD_NORM": 10,
    "LR_LINEAR_DECAY": True,
    "REW_SCALE": 0.1,
    "GAMMA": 0.999,
    "LAMBDA": 0.95,
    "ENV_NAME": "battery_arbitrage",
    "TEST_DURING_TRAINING": False,
    "WANDB_MODE": "disabled",
}
UPDATES = 100


class FiveValues(GymnaxWrapper):
    """The interface before gymnax 1.0: one flag for both ends of an episode."""

    def step(self, key, state, action, params):
        obs, state, reward, terminated, truncated, info = self._env.step(key, state, action, params)
        return obs, state, reward, terminated | truncated, info


def train(days: Days, seed: int, folder: str) -> tuple[float, float, dict]:
    """Returns of the levels of the largest value, before and after, and what was run."""
    stand_in(ABSENT)
    file = Checkout(folder, FILE, CHANGES)
    names = file.run("purejaxql")
    size = {"hidden_size": CONFIG["HIDDEN_SIZE"], "num_layers": CONFIG["NUM_LAYERS"]}
    network = names["QNetwork"](LEVELS, norm_type=CONFIG["NORM_TYPE"], norm_input=CONFIG["NORM_INPUT"], **size)

    def score(updates):
        steps = updates * CONFIG["NUM_ENVS"] * CONFIG["NUM_STEPS"]
        made = names["make_train"](CONFIG | {"TOTAL_TIMESTEPS": steps})
        state = jax.jit(lambda key: made(key)["runner_state"][0])(jax.random.PRNGKey(seed))
        known = {"params": state.params, "batch_stats": state.batch_stats}
        level = jax.jit(lambda obs: jnp.argmax(network.apply(known, obs, train=False), -1))
        return days.mean_return(lambda obs: 2 * np.asarray(level(obs))[:, None] / (LEVELS - 1) - 1)

    return score(1), score(UPDATES), file.told()


if __name__ == "__main__":
    run("jax", train, BATTERY)
