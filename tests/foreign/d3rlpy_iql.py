"""d3rlpy's implicit Q-learning on stored days, of a rule that acts by chance now and then."""

from __future__ import annotations

import d3rlpy
import gymnasium
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  # ours

from tests.foreign.scoring import BATTERY, Days, rule, run

EPISODES, STEPS = 200, 4_000
BY_CHANCE = 0.2


def stored(seed: int) -> d3rlpy.dataset.MDPDataset:
    """Days in the shape that the package stores; what is stored at their ends is settled, so they are final."""
    rng = np.random.default_rng(seed)
    env = gymnasium.make("PowerZooJax/BatteryArbitrage-v1")  # ours
    names = env.unwrapped.get_observation_fields()  # ours
    prices = [k for k, name in enumerate(names) if name.startswith("price_")]
    rows = []
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=seed * EPISODES + episode)
        ended = False
        while not ended:
            by_chance = rng.random() < BY_CHANCE
            action = rng.uniform(-1, 1, 1) if by_chance else rule(obs[None, prices])[0]
            after, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
            ended = terminated or truncated
            rows.append((obs, action.astype(np.float32), reward, float(ended)))
            obs = after
    observations, actions, rewards, ends = (np.stack(column).astype(np.float32) for column in zip(*rows, strict=True))
    return d3rlpy.dataset.MDPDataset(observations, actions, rewards[:, None], ends)


def train(days: Days, seed: int) -> tuple[float, float]:
    """Returns of the most likely action before and after."""
    d3rlpy.seed(seed)
    dataset = stored(seed)
    encoder = d3rlpy.models.VectorEncoderFactory([64, 64])
    algo = d3rlpy.algos.IQLConfig(
        gamma=0.999,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        value_encoder_factory=encoder,
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(),
        expectile=0.8,
    ).create(device="cpu")
    algo.build_with_dataset(dataset)
    algo.observation_scaler.fit_with_transition_picker(dataset.episodes, dataset.transition_picker)
    before = days.mean_return(algo.predict)
    quiet = d3rlpy.logging.NoopAdapterFactory()
    algo.fit(dataset, n_steps=STEPS, n_steps_per_epoch=STEPS, logger_adapter=quiet, show_progress=False)
    return before, days.mean_return(algo.predict)


if __name__ == "__main__":
    run("d3rlpy", train, BATTERY)
