# A student of reinforcement learning: tasks, a loop, a policy, a reward of one's own, its gain, a page to look at.
set -euo pipefail

powerzoo-jax list
powerzoo-jax show battery_arbitrage

python - <<'PYTHON'
import gymnasium
import powerzoo_compat.gymnasium_view

env = gymnasium.make("PowerZooJax/BatteryArbitrage-v1")
obs, info = env.reset(seed=0)
steps, money, ended = 0, 0.0, False
while not ended:
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    steps, money, ended = steps + 1, money + float(reward), terminated or truncated
print(f"random play: {steps} steps, {money:.2f} $")
PYTHON

powerzoo-jax train battery_arbitrage --set total_steps=240000 --set lanes=64 --set cost_weights=0,0,0,2 --out results/ppo
powerzoo-jax view results/ppo --out results/day.html

cat > gentle.py <<'PYTHON'
import jax
import jax.numpy as jnp
import powerzoo_jax as pz
from powerzoo_jax.envs import with_reward
from powerzoo_jax.rl.training.config import PPOConfig
from powerzoo_jax.rl.training.learners import LEARNERS, make_train
from powerzoo_jax.tasks.score import evaluate


def gentle(state, action, out, params):
    """Money, less a price on power that the battery cannot deliver and on every movement."""
    return out.reward - 3.0 * out.cost[3] - 0.02 * jnp.sum(action**2)


sim = with_reward(pz.make("battery_arbitrage", split="train"), gentle)
cfg = PPOConfig(total_steps=180_000, lanes=64, obs_floor=0.1, gamma=1.0, bootstrap=False, reward_scale=0.3)
state, metrics = jax.jit(make_train(cfg, sim))(jax.random.key(0))
learner, test = LEARNERS[cfg.algorithm], pz.make("battery_arbitrage", split="test")
record = evaluate(test, learner.act(cfg, test, learner.policy_of(state)))
print(f"own reward: {record.mean_reward:.2f} $ a day, feasible {record.feasible}, gain {record.gain}")
PYTHON
python gentle.py
