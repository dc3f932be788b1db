"""Registry of the learners by the name of their algorithm, for command lines, sweeps and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.algorithms import apg, es, imitation, ppo, recurrent, sac
from powerzoo_jax.rl.algorithms.onpolicy import TrainResult as TrainResult
from powerzoo_jax.rl.algorithms.onpolicy import repeat_updates as repeat_updates
from powerzoo_jax.rl.algorithms.onpolicy import resolve as resolve
from powerzoo_jax.rl.policies import apg_act, clone_act, gru_act, ppo_act, sac_act
from powerzoo_jax.rl.training.config import ALGORITHMS, Config


@dataclass(frozen=True)
class Learner:
    """The functions of an algorithm.

    make_update:  (cfg, sim) -> (init, update)
    make_train:   (cfg, sim) -> train(key, sim=...) -> TrainResult
    policy_of:    state -> what acting needs
    act:          (cfg, sim, policy) -> Act
    batch_steps:  (cfg, sim) -> environment steps of one update
    """

    make_update: Callable[..., tuple[Any, Any]]
    make_train: Callable[..., Callable[..., TrainResult]]
    policy_of: Callable[[Any], Any]
    act: Callable[..., Any]
    batch_steps: Callable[[Any, Sim], int]


def _steps(cfg: Any, sim: Sim) -> int:
    return int(cfg.lanes * cfg.steps + getattr(cfg, "greedy_episodes", 0) * sim.spec.horizon)


def _generation(cfg: Any, sim: Sim) -> int:
    return int((cfg.population + 1) * cfg.lanes * sim.spec.horizon)  # the policy itself plays them too


PPO = Learner(ppo.make_update, ppo.make_train, ppo.policy_of, ppo_act, _steps)
APG = Learner(apg.make_update, apg.make_train, apg.policy_of, apg_act, lambda cfg, sim: cfg.lanes * sim.spec.horizon)
SAC = Learner(sac.make_update, sac.make_train, sac.policy_of, sac_act, _steps)
CLONE = Learner(
    imitation.make_update,
    imitation.make_train,
    imitation.policy_of,
    clone_act,
    lambda cfg, sim: cfg.lanes * sim.spec.horizon,
)
GRU = Learner(recurrent.make_update, recurrent.make_train, recurrent.policy_of, gru_act, _steps)
ES = Learner(es.make_update, es.make_train, es.policy_of, ppo_act, _generation)
OTHERS = {
    "ppo_gru": GRU,
    "sac": SAC,
    "apg": APG,
    "apg_lagrangian": APG,
    "es": ES,
    "clone": CLONE,
    "dagger": CLONE,
}
LEARNERS = {name: OTHERS.get(name, PPO) for name in ALGORITHMS}


def register_learner(config: type[Config], learner: Learner) -> None:
    """Make a learner of one's own known to command lines, sweeps and tables by the `algorithm` of its settings.

    config:   settings, a subclass of `training.config.Config` with an `algorithm` of its own
    learner:  its functions
    Raises ValueError for a name that is taken.
    """
    if config.algorithm in ALGORITHMS:
        raise ValueError(f"learner {config.algorithm!r} is registered already. Choose another name.")
    ALGORITHMS[config.algorithm], LEARNERS[config.algorithm] = config, learner


def make_train(cfg: Config, sim: Sim | None = None) -> Callable[..., TrainResult]:
    """Build `train(key, sim=...) -> TrainResult` with the algorithm that the settings are of.

    Example:
        from powerzoo_jax.rl.training.config import IPPOLagrangianConfig
        train = make_train(IPPOLagrangianConfig(task="marl_der_arbitrage", total_steps=300_000))
        state, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 5))
    """
    return LEARNERS[cfg.algorithm].make_train(cfg, sim)
