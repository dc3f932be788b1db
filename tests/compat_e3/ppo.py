"""What the two learners of this folder share: a Gaussian policy with a value, and PPO's update, in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
OPTIMISER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-3))


def first_weights(key, n_obs, n_act, width=16, log_std=-0.5):
    keys = jax.random.split(key, 3)
    shapes = {"body": (n_obs, width), "mean": (width, n_act), "value": (width, 1)}
    weights = {
        name: jax.random.normal(k, shape) / jnp.sqrt(shape[0])
        for (name, shape), k in zip(shapes.items(), keys, strict=True)
    }
    return weights | {"log_std": jnp.full(n_act, log_std)}


def forward(weights, obs):
    """(mean, value) of observations (..., O)."""
    hidden = jnp.tanh(obs @ weights["body"])
    return jnp.tanh(hidden @ weights["mean"]), (hidden @ weights["value"])[..., 0]


def log_prob(weights, mean, action):
    z = (action - mean) / jnp.exp(weights["log_std"])
    return jnp.sum(-0.5 * z**2 - weights["log_std"], axis=-1)


def act(weights, obs, key):
    """(action, log-probability, value)."""
    mean, value = forward(weights, obs)
    action = mean + jnp.exp(weights["log_std"]) * jax.random.normal(key, mean.shape)
    return action, log_prob(weights, mean, action), value


def advantages(rewards, values, dones, last_value, gamma=GAMMA):
    """Generalised advantages (T, B)."""

    def back(carry, step):
        gain, following = carry
        reward, value, done = step
        delta = reward + gamma * following * (1 - done) - value
        gain = delta + gamma * LAMBDA * (1 - done) * gain
        return (gain, value), gain

    _, gains = jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), (rewards, values, dones), reverse=True)
    return gains


def loss(weights, batch, gains, targets):
    obs, action, old, _, _, _ = batch
    mean, value = forward(weights, obs)
    ratio = jnp.exp(log_prob(weights, mean, action) - old)
    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    return -jnp.mean(jnp.minimum(ratio * gains, clipped * gains)) + 0.5 * jnp.mean((value - targets) ** 2)


def improve(weights, moments, batch, last_value, gamma=GAMMA, passes=2):
    """Passes over a batch of (T, B) transitions: (weights, moments)."""
    gains = advantages(batch[4], batch[3], batch[5], last_value, gamma)
    targets = gains + batch[3]

    def once(carry, _):
        weights, moments = carry
        slope = jax.grad(loss)(weights, batch, gains, targets)
        change, moments = OPTIMISER.update(slope, moments)
        return (optax.apply_updates(weights, change), moments), None

    return jax.lax.scan(once, (weights, moments), None, passes)[0]
