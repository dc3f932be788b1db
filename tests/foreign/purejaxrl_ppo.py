"""PureJaxRL's ppo_continuous_action.py from a checkout, with one line exchanged.

Words: the path of the checkout
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

from tests.foreign.checkout import Checkout, stand_in
from tests.foreign.scoring import BATTERY, Days, run

FILE = "purejaxrl/ppo_continuous_action.py"
OLD = 'env, env_params = BraxGymnaxWrapper(config["ENV_NAME"]), None\n'
NEW = (
    "import powerzoo_jax; from powerzoo_compat.gymnax_view import to_gymnax; "
    'env, env_params = to_gymnax(powerzoo_jax.make(config["ENV_NAME"]), api="five")\n'
)
# imported by its wrappers for environments of other packages, and not used here
ABSENT: dict[str, dict] = {
    "brax": {"envs": None},
    "brax.envs.wrappers.training": {"EpisodeWrapper": None, "AutoResetWrapper": None},
    "navix": {},
}
CONFIG = {
    "LR": 1e-3,
    "NUM_ENVS": 32,
    "NUM_STEPS": 48,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 8,
    "GAMMA": 0.999,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.0,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "battery_arbitrage",
    "ANNEAL_LR": False,
    "NORMALIZE_ENV": True,
    "DEBUG": False,
}
UPDATES = 30


def train(days: Days, seed: int, folder: str) -> tuple[float, float, dict]:
    """Returns of the mean action before and after, and what was run."""
    file = Checkout(folder, FILE, {OLD: NEW})
    stand_in(ABSENT)
    sys.path.insert(0, str(file.path.parent))
    names = file.run("purejaxrl")
    network = names["ActorCritic"](1, activation=CONFIG["ACTIVATION"])

    def score(updates):
        steps = updates * CONFIG["NUM_ENVS"] * CONFIG["NUM_STEPS"]
        made = names["make_train"](CONFIG | {"TOTAL_TIMESTEPS": steps})
        state, seen, *_ = jax.jit(lambda key: made(key)["runner_state"])(jax.random.key(seed))
        while jnp.ndim(getattr(seen, "mean", 0.0)) == 0:  # past the statistics of rewards, to those of observations
            seen = seen.env_state

        @jax.jit
        def act(obs):
            normal = (obs - seen.mean[0]) / jnp.sqrt(seen.var[0] + 1e-8)
            return network.apply(state.params, normal)[0].mean()

        return days.mean_return(lambda obs: np.asarray(act(obs)))

    return score(1), score(UPDATES), file.told()


if __name__ == "__main__":
    run("jax", train, BATTERY)
