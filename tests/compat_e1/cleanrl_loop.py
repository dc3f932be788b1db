"""A PPO loop in the shape that CleanRL's single files have: a Gymnasium VectorEnv, one agent, one function."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.distributions.normal import Normal

GAMMA, LAMBDA, CLIP, VALUE = 0.99, 0.95, 0.2, 0.5


class Agent(nn.Module):
    def __init__(self, envs, log_std):
        super().__init__()
        seen, done = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
        self.critic = nn.Sequential(nn.Linear(seen, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(seen, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, done))
        self.log_std = nn.Parameter(torch.full((1, done), log_std))
        nn.init.orthogonal_(self.actor[-1].weight, 0.01)
        nn.init.zeros_(self.actor[-1].bias)

    def value(self, obs):
        return self.critic(obs).squeeze(-1)

    def act(self, obs, action=None):
        mean = self.actor(obs)
        spread = Normal(mean, self.log_std.expand_as(mean).exp())
        action = spread.sample() if action is None else action
        return action, spread.log_prob(action).sum(1), self.value(obs)


def train(envs, updates, steps, epochs=4, batches=4, lr=1e-3, seed=0, gamma=GAMMA, log_std=0.0):
    """Train on a VectorEnv that restarts in the step after an end; returns the agent."""
    torch.manual_seed(seed)
    agent = Agent(envs, log_std)
    optimizer = torch.optim.Adam(agent.parameters(), lr=lr, eps=1e-5)
    low, high = envs.single_action_space.low, envs.single_action_space.high
    next_obs, _ = envs.reset(seed=seed)
    next_obs, next_done = torch.as_tensor(next_obs, dtype=torch.float32), torch.zeros(envs.num_envs)
    for _ in range(updates):
        rows = []
        for _ in range(steps):
            with torch.no_grad():
                action, log_prob, value = agent.act(next_obs)
            obs, reward, terminated, truncated, _ = envs.step(np.clip(action.numpy(), low, high))
            rows.append((next_obs, action, log_prob, torch.as_tensor(reward, dtype=torch.float32), next_done, value))
            next_obs = torch.as_tensor(obs, dtype=torch.float32)
            next_done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        seen, actions, log_probs, rewards, dones, values = (torch.stack(column) for column in zip(*rows, strict=True))
        with torch.no_grad():
            ahead, ended, gain = agent.value(next_obs), next_done, torch.zeros(envs.num_envs)
            gains = torch.zeros_like(rewards)
            for t in reversed(range(steps)):
                delta = rewards[t] + gamma * ahead * (1 - ended) - values[t]
                gain = delta + gamma * LAMBDA * (1 - ended) * gain
                gains[t], ahead, ended = gain, values[t], dones[t]
        improve(
            agent,
            optimizer,
            [x.flatten(0, 1) for x in (seen, actions, log_probs, gains, gains + values)],
            epochs,
            batches,
        )
    return agent


def improve(agent, optimizer, columns, epochs, batches):
    """Minibatches of the clipped objective."""
    for _ in range(epochs):
        for rows in torch.randperm(len(columns[0])).chunk(batches):
            seen, actions, old, gains, returns = (column[rows] for column in columns)
            _, log_prob, value = agent.act(seen, actions)
            ratio = (log_prob - old).exp()
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
            loss = torch.max(-gains * ratio, -gains * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            loss = loss + VALUE * ((value - returns) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
