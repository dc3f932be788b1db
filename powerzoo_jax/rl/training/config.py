"""Settings of the learners: frozen defaults, a TOML file over them, `key=value` text over both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from powerzoo_jax.base.errors import SettingsError, unknown
from powerzoo_jax.base.ranges import (
    Count,
    NotNegative,
    Positive,
    PositiveShare,
    Range,
    Share,
    Whole,
)
from powerzoo_jax.base.textfile import read_toml
from powerzoo_jax.rl.training.common import Config as Config
from powerzoo_jax.rl.training.common import types_of

C = TypeVar("C", bound="Config")

PACKAGE = Path(__file__).resolve().parents[2]
CONFIG_FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")  # inside the wheel, and beside the sources
OPENAI = "openai"  # the evolution strategy that needs no other package

# what no machine holds, and what an axis of an array cannot be, is refused here and not by an allocation
Lanes = Annotated[int, Range(1, 2**24)]
Samples = Annotated[int, Range(1, 10**15)]


@dataclass(frozen=True, kw_only=True)
class PPOConfig(Config):
    """Proximal policy optimisation (Schulman et al. 2017).

    total_steps:    environment steps of a whole training run, over all lanes
    lanes, steps:   parallel environments and steps of each per update
    epochs, minibatches:  passes over an update's samples, and gradient steps per pass
    shards:         blocks of lanes that samples are shuffled within, each giving every minibatch an equal share; at
                    least one a device, so that no sample travels. One device with 8 repeats what eight devices do
    by_lanes:       a minibatch is all steps of neighbouring lanes, which are cut out faster than single samples are
                    gathered, and are less alike where `stagger` is set
    stagger:        lanes start at different steps of their first episodes, so that every update sees all of a day
    kl_limit:       divergence from the acting policy after which the rest of an update is left out; 0 = none
    shared_torso:   the critic reads the hidden layers of the policy and adds one layer, instead of layers of its own
    lr, lr_end:     Adam's step at the start, and at the end as a share of it (linear)
    gae_lambda:     0 = one-step, 1 = Monte-Carlo advantages
    bootstrap:      value the true last observation at a time limit; False takes the limit for the end of the task,
                    which is right only where the reward settles at the horizon whatever is left in store
    clip:           trust region of the probability ratio
    entropy:        weight of the entropy bonus
    log_std:        initial log standard deviation of the actions
    squash:         pass continuous actions through tanh; else the environment clips them
    normalise_reward:  divide the learner's reward by the running size of its discounted return, at least reward_floor
    rescale_values:    when the sizes of the returns move, change the critic's last layer so that its values, in the
                       units of the rewards, stay exactly what they were
    """

    algorithm: ClassVar[str] = "ppo"
    joint: ClassVar[bool] = True  # one policy for all agents
    central_critic: ClassVar[bool] = True  # one value of the joint observation, and the reward of the team
    constrained: ClassVar[bool] = False

    total_steps: Samples = 3_000_000
    lanes: Lanes = 256
    steps: Lanes = 48
    epochs: Count = 8
    minibatches: Count = 8
    shards: Count = 1
    by_lanes: bool = False
    stagger: bool = False
    kl_limit: NotNegative = 0.0
    shared_torso: bool = False
    lr: Share = 1e-3
    lr_end: Share = 0.0
    gamma: Share = 0.99
    gae_lambda: Share = 0.95
    bootstrap: bool = True
    clip: Positive = 0.2
    entropy: NotNegative = 0.0
    value_weight: NotNegative = 0.5
    max_grad_norm: Positive = 0.5
    log_std: Annotated[float, Range(-20, 5)] = -0.5
    squash: bool = False
    normalise_reward: bool = False
    reward_floor: Positive = 1e-3
    rescale_values: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatches > self.lanes * self.steps:
            raise ValueError(
                f"minibatches = {self.minibatches} exceeds the {self.lanes * self.steps} samples of an update "
                f"(lanes = {self.lanes} times steps = {self.steps}). Raise lanes or steps."
            )
        if self.lanes % self.shards or self.minibatches > self.lanes // self.shards * self.steps:
            raise ValueError(
                f"shards = {self.shards} must divide lanes = {self.lanes} into blocks of at least minibatches = "
                f"{self.minibatches} samples each ({self.steps} a lane). Choose another number."
            )
        if self.by_lanes and self.lanes // self.shards % self.minibatches:
            raise ValueError(
                f"minibatches = {self.minibatches} must divide the {self.lanes // self.shards} lanes of a block (lanes "
                f"= {self.lanes} over shards = {self.shards}) where by_lanes is set. Choose another number."
            )
        if self.rescale_values and not self.tracks_returns:
            raise ValueError(
                f"{self.algorithm}: rescale_values = true, but rewards are not divided by the size of their returns. "
                "Set normalise_reward=true too, or rescale_values=false."
            )

    @property
    def updates(self) -> int:
        """Updates of a whole run, at least one."""
        return max(1, self.total_steps // (self.lanes * self.steps))

    @property
    def tracks_returns(self) -> bool:
        """True where the learner tracks the size of its returns."""
        return self.normalise_reward or self.constrained


@dataclass(frozen=True, kw_only=True)
class IPPOConfig(PPOConfig):
    """Independent PPO: each agent acts on its own observation and values it by its own reward (de Witt et al. 2020).

    share:  agents of a kind (`bat_0`, `bat_1`) have the same weights; False gives every agent its own
    """

    algorithm: ClassVar[str] = "ippo"
    joint: ClassVar[bool] = False
    central_critic: ClassVar[bool] = False

    share: bool = True


@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(IPPOConfig):
    """IPPO's policies with one value of the joint observation and the reward of the team (Yu et al. 2022)."""

    algorithm: ClassVar[str] = "mappo"
    central_critic: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class PPOGRUConfig(PPOConfig):
    """PPO with a policy and a value that remember what an episode has shown, by one gated recurrent unit.

    memory:  width of the unit
    Minibatches are whole steps of some lanes, through which gradients go back in time; policy and value share all but
    their last layers. `stagger` and `rescale_values` are not for it.
    """

    algorithm: ClassVar[str] = "ppo_gru"

    memory: Annotated[int, Range(1, 2**16)] = 64
    minibatches: Count = 4
    shared_torso: bool = True
    by_lanes: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("shared_torso", True), ("by_lanes", True), ("stagger", False)):
            if getattr(self, name) is not value:
                raise ValueError(
                    f"{self.algorithm}: {name} = {str(not value).lower()}, but a policy that remembers learns whole "
                    f"sequences with one network from lanes that start together. Leave {name} out."
                )
        if self.rescale_values:
            raise ValueError(
                f"{self.algorithm}: rescale_values = true, but the last layer of its value is not rescaled. "
                "Leave rescale_values out."
            )


@dataclass(frozen=True, kw_only=True)
class Priced(Config):
    """Settings of a learner that keeps the finite cost budgets of a task; see `rl.algorithms.lagrangian`.

    price:          multiplier of every budget at the start
    price_rate:     growth of a multiplier in an update that spends twice the budget
    price_gain, price_damping:  weights of the excess itself and of its change
    budget_share:   share of each budget to aim at; below 1 leaves room for days that training has not seen
    """

    constrained: ClassVar[bool] = True

    price: NotNegative = 0.0
    price_rate: NotNegative = 0.05
    price_gain: NotNegative = 0.1
    price_damping: NotNegative = 0.0
    budget_share: Positive = 0.8


@dataclass(frozen=True, kw_only=True)
class PPOLagrangianConfig(Priced, PPOConfig):
    """PPO within the finite cost budgets of the task.

    greedy_episodes:  whole episodes that the greedy policy, which is the one that is scored, plays in every update to
                      measure its costs by, beside the `total_steps` of training. 0 = prices follow the costs of the
                      noisy policy that learns, in updates that end an episode
    """

    algorithm: ClassVar[str] = "ppo_lagrangian"

    greedy_episodes: Annotated[int, Range(0, 2**24)] = 0


@dataclass(frozen=True, kw_only=True)
class IPPOLagrangianConfig(PPOLagrangianConfig):
    """IPPO within the finite cost budgets of the task; all agents pay the same prices.

    share:  as in IPPO
    """

    algorithm: ClassVar[str] = "ippo_lagrangian"
    joint: ClassVar[bool] = False
    central_critic: ClassVar[bool] = False

    share: bool = True


@dataclass(frozen=True, kw_only=True)
class SACConfig(Config):
    """Soft actor-critic (Haarnoja et al. 2018) with two critics and an automatic temperature.

    total_steps:    environment steps of a whole training run, over all lanes
    lanes, steps:   parallel environments and steps of each between two rounds of learning
    gradients:      gradient steps of a round, each on `batch` transitions of the store
    shards:         blocks of lanes, each giving every batch an equal share; at least one a device, so that no
                    transition travels. One device with 8 repeats what eight devices do
    capacity:       transitions kept, rounded down to whole rounds
    warmup:         environment steps with uniform random actions at the start
    bootstrap:      as in PPO
    tau:            share of the critics that their targets take over at each gradient step
    target_entropy: entropy a dimension of the action that the temperature aims at
    """

    algorithm: ClassVar[str] = "sac"

    total_steps: Samples = 200_000
    lanes: Lanes = 32
    steps: Lanes = 8
    gradients: Count = 64
    batch: Count = 256
    shards: Count = 1
    capacity: Count = 100_000
    warmup: Whole = 10_000
    activation: str = "relu"
    lr: Share = 1e-3
    gamma: Share = 0.99
    bootstrap: bool = True
    tau: PositiveShare = 0.005
    temperature: Positive = 0.1
    target_entropy: Annotated[float, Range(-100, 100)] = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.capacity < self.lanes * self.steps:
            raise ValueError(
                f"capacity = {self.capacity} holds no round of {self.lanes * self.steps} transitions "
                f"(lanes = {self.lanes} times steps = {self.steps}). Raise capacity."
            )
        if self.lanes % self.shards or self.batch % self.shards:
            raise ValueError(
                f"shards = {self.shards} must divide lanes = {self.lanes} and batch = {self.batch}. "
                "Choose another number."
            )

    @property
    def updates(self) -> int:
        """Rounds of a whole run, at least one."""
        return max(1, self.total_steps // (self.lanes * self.steps))


@dataclass(frozen=True, kw_only=True)
class APGConfig(Config):
    """Analytic policy gradient: differentiate the return of whole episodes through the environment.

    joint:          one policy that sees and does everything; False: a policy a kind of agent, on its own observation
    updates:        gradient steps of a whole training run
    lanes:          episodes per gradient step
    lr, lr_end:     Adam's step at the start, and at the end as a share of it (cosine)
    weight_decay:   share of the weights that a gradient step of size 1 takes away (Loshchilov and Hutter 2019)
    lane_grad_norm: limit on the norm of the gradient of each episode by itself, before the mean over them; one that is
                    not finite counts nothing. 0 = no limit: one product for all episodes, which takes less memory
    obs_noise:      standard deviations by which training blurs observations, so that days are not learnt by heart
    held:           columns of an agent's action that stay at `start`, because what they do has no slope; with
                    `start_from` they stay what that policy does, and only the last layer of the others learns
    column_rule:    rule of the task that gives some columns by what is observed, see `oracle.registry.ColumnRule`; ""
                    = every column is learnt. For columns whose effect has no slope and depends on the hour
    memory:         width of a gated recurrent unit behind the hidden layers, by which a policy remembers; 0 = none
    """

    algorithm: ClassVar[str] = "apg"
    constrained: ClassVar[bool] = False

    joint: bool = True
    updates: Count = 400
    lanes: Lanes = 128
    lr: Share = 1e-3
    lr_end: Share = 0.0
    weight_decay: NotNegative = 0.0
    max_grad_norm: Positive = 1.0
    lane_grad_norm: NotNegative = 0.0
    obs_noise: NotNegative = 0.0
    held: tuple[Whole, ...] = ()
    column_rule: str = ""
    memory: Annotated[int, Range(0, 2**16)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_observation(self, "column_rule", instead=", or take memory")

    @property
    def keeps_held(self) -> bool:
        """True where held columns are those of another policy, whose features and scaling must then not move."""
        return bool(self.held and self.start_from)


@dataclass(frozen=True, kw_only=True)
class APGLagrangianConfig(Priced, APGConfig):
    """The analytic policy gradient within the finite cost budgets of the task."""

    algorithm: ClassVar[str] = "apg_lagrangian"


@dataclass(frozen=True, kw_only=True)
class CloneConfig(Config):
    """Behaviour cloning: the policy answers what a planner answers, in the states that the planner comes to.

    joint:          one policy that sees and does everything; False: a policy a kind of agent, on its own observation
    share:          as in IPPO
    teacher:        planner that is imitated: causal, oracle, or another baseline of the task
    teacher_keywords:  NAME=VALUE of `make` for the copy of the task that the teacher plans for: ratings a little lower
                    or a larger reserve than the task's leave room for the errors of who imitates it
    lean:           weight of the teacher's choices of the last option, a unit that runs, beside 1 for any other; above
                    1 a policy in doubt leaves units on
    plans:          episodes that a teacher with foresight plans, by seed; 0 = every start of the split once
    updates:        rounds of playing and learning of a whole run
    lanes:          episodes played in a round
    rounds:         last rounds whose samples are kept to learn from, the present one included
    gradients:      gradient steps of a round, each on `batch` samples
    lr, lr_end:     Adam's step at the start, and at the end as a share of it (cosine)
    weight_decay:   as in the analytic policy gradient
    log_std, squash:  of the policy, as in PPO; with squash the analytic policy gradient can go on from it
    memory:         width of a gated recurrent unit, as in the analytic policy gradient; a batch is then whole episodes
    safety_filter:  rule of the task that actions go through, see `oracle.registry.SafetyFilter`; "" for none
    """

    algorithm: ClassVar[str] = "clone"
    constrained: ClassVar[bool] = False

    joint: bool = True
    share: bool = True
    teacher: str = "causal"
    teacher_keywords: tuple[str, ...] = ()
    lean: Positive = 1.0
    plans: Whole = 0
    updates: Count = 100
    lanes: Lanes = 32
    rounds: Count = 1
    gradients: Count = 32
    batch: Count = 256
    lr: Share = 1e-3
    lr_end: Share = 0.0
    weight_decay: NotNegative = 0.0
    max_grad_norm: Positive = 1.0
    log_std: Annotated[float, Range(-20, 5)] = -0.5
    squash: bool = False
    memory: Annotated[int, Range(0, 2**16)] = 0
    safety_filter: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_observation(self, "safety_filter")


@dataclass(frozen=True, kw_only=True)
class DAggerConfig(CloneConfig):
    """DAgger: the planner says what it would do in the states that the policy comes to (Ross et al. 2011).

    teacher_share:  share of the episodes that the teacher leads in the second round, squared in the third, and so on;
                    the first one is all its own
    """

    algorithm: ClassVar[str] = "dagger"

    rounds: Count = 20
    teacher_share: Share = 0.5


@dataclass(frozen=True, kw_only=True)
class ESConfig(Config):
    """Evolution strategies (Salimans et al. 2017): whole episodes of many weights, and no gradients.

    joint, share:  as in IPPO: one policy that sees and does everything, or one a kind of agent
    updates:       generations of a whole training run
    population:    candidates of a generation, an even number
    lanes:         episodes that each of them plays, the same for all
    sigma:         standard deviation of the candidates around the policy, weight by weight. A wide one keeps the policy
                   well within a budget, so that its candidates keep it too
    lr, lr_end:    Adam's step at the start, and at the end as a share of it (cosine)
    squash:        as in PPO
    budget_share:  share of each finite budget; candidates that keep all of them go before those that do not
    safety_filter:  rule of the task that actions go through, as in behaviour cloning
    strategy:      openai, or a search of evosax that has a mean (extra `evosax`), such as Sep_CMA_ES or SNES, which
                   starts at the width `sigma` and has steps of its own: `lr` and `lr_end` are not for it
    """

    algorithm: ClassVar[str] = "es"
    constrained: ClassVar[bool] = False
    log_std: ClassVar[float] = 0.0  # of a noise that nobody draws: policies act by their mode

    joint: bool = True
    share: bool = True
    updates: Count = 300
    population: Count = 64
    lanes: Lanes = 8
    sigma: Positive = 0.05
    lr: Share = 0.02
    lr_end: Share = 1.0
    squash: bool = True
    budget_share: Positive = 0.8
    safety_filter: str = ""
    strategy: str = OPENAI

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_observation(self, "safety_filter")
        if self.population % 2:
            raise ValueError(f"population = {self.population} must be even: candidates come in pairs.")


def _one_observation(cfg: Config, name: str, *, instead: str = "") -> None:
    """Raise SettingsError where a rule of the task, which reads one observation, is set beside `history`."""
    if getattr(cfg, name) and cfg.history > 1:
        raise SettingsError(
            f"{cfg.algorithm}: {name} = {getattr(cfg, name)!r} reads one observation, and history = {cfg.history} "
            f"gives a policy {cfg.history}. Set history = 1{instead}."
        )


ALGORITHMS: dict[str, type[Config]] = {
    c.algorithm: c
    for c in (
        PPOConfig,
        IPPOConfig,
        MAPPOConfig,
        PPOGRUConfig,
        PPOLagrangianConfig,
        IPPOLagrangianConfig,
        SACConfig,
        APGConfig,
        APGLagrangianConfig,
        ESConfig,
        CloneConfig,
        DAggerConfig,
    )
}


def load(path: str | Path, algorithm: str | None = None) -> Config:
    """Read a TOML file as the settings of `algorithm`, or of the one the file names."""
    name = algorithm or str(read_toml(path).get("algorithm", "ppo"))
    if name not in ALGORITHMS:
        raise SettingsError(f"settings file {path}: {unknown('algorithm', name, ALGORITHMS)}")
    return ALGORITHMS[name].from_toml(path)


def override(cfg: C, settings: Mapping[str, str]) -> C:
    """Replace settings by text, typed by the field they replace.

    Example:
        override(PPOConfig(), {"lr": "1e-3", "widths": "64,64"})
    """
    types = types_of(type(cfg))
    for name in settings:
        if name not in types:
            raise ValueError(unknown(f"{cfg.algorithm} setting", name, types))
    return dataclasses.replace(cfg, **{k: _parse(k, text, types[k]) for k, text in settings.items()})


def _parse(name: str, text: str, kind: Any) -> Any:
    """Turn text into a value of `kind`; tuples are comma separated."""
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return tuple(_parse(name, part.strip(), inner) for part in text.strip("()[] ").split(",") if part.strip())
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.strip().lower()]
        # 3e6 is a step count people type; whether it is whole is checked with its range
        return float(text) if kind is int else kind(text)
    except (KeyError, ValueError) as err:
        raise SettingsError(f"setting {name!r} must be {kind.__name__}, got {text!r}.") from err
