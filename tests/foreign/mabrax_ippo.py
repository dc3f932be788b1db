"""JaxMARL's ippo_ff_mabrax.py from a checkout, with one line exchanged.

Words: the path of the checkout
"""

from __future__ import annotations

import jax
import numpy as np
from jaxmarl.wrappers.baselines import JaxMARLWrapper

from tests.foreign.checkout import Checkout, stand_in
from tests.foreign.scoring import BATTERIES, Days, run

FILE = "baselines/IPPO/ippo_ff_mabrax.py"
OLD = 'env = jaxmarl.make(config["ENV_NAME"], **config["ENV_KWARGS"])\n'
NARROW = 3.0  # what the file's actions are divided by: its noise begins with a standard deviation of 1
NEW = (
    "from powerzoo_compat.jaxmarl_view import parallel_env; from tests.foreign.mabrax_ippo import Narrow; "
    'env = Narrow(parallel_env(config["ENV_NAME"], **config["ENV_KWARGS"]))\n'
)
# settings on the command line and curves on a server, not used here
ABSENT: dict[str, dict] = {
    "hydra": {"main": lambda **words: lambda main: main},
    "omegaconf": {"OmegaConf": None},
    "wandb": {"log": lambda *told, **more: None},
}
CONFIG = {
    "LR": 1e-3,
    "NUM_ENVS": 64,
    "NUM_STEPS": 48,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.999,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.0,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 10.0,
    "ACTIVATION": "tanh",
    "ENV_NAME": "marl_der_arbitrage",
    "ENV_KWARGS": {"reward_type": "individual"},
    "ANNEAL_LR": True,
}
UPDATES = 500


class Narrow(JaxMARLWrapper):
    """The same environment with smaller actions."""

    def step(self, key, state, actions):
        return self._env.step(key, state, {agent: action / NARROW for agent, action in actions.items()})


def train(days: Days, seed: int, folder: str) -> tuple[float, float, dict]:
    """Returns of the mean action before and after, and what was run."""
    stand_in(ABSENT)
    file = Checkout(folder, FILE, {OLD: NEW})
    names = file.run("mabrax")
    network = names["ActorCritic"](1, activation=CONFIG["ACTIVATION"])

    def score(updates):
        steps = updates * CONFIG["NUM_ENVS"] * CONFIG["NUM_STEPS"]
        key, first = jax.random.split(jax.random.PRNGKey(seed))
        made = names["make_train"](CONFIG | {"TOTAL_TIMESTEPS": steps}, first)
        state = jax.jit(lambda key: made(key)["runner_state"][0])(key)
        act = jax.jit(lambda obs: network.apply(state.params, obs)[0].mean() / NARROW)
        return days.mean_return(lambda obs: np.asarray(act(obs)))

    return score(1), score(UPDATES), file.told()


if __name__ == "__main__":
    run("jaxmarl", train, BATTERIES)
