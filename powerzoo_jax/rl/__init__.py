"""Learners: rollouts, networks, PPO and the analytic policy gradient.

Only rollouts and recorded episodes are re-exported: the learners import flax.linen and optax, and `import powerzoo_jax`
must not pay for them.
"""

from powerzoo_jax.rl.offline import OfflineData as OfflineData
from powerzoo_jax.rl.offline import load_offline as load_offline
from powerzoo_jax.rl.offline import record_offline as record_offline
from powerzoo_jax.rl.offline import save_offline as save_offline
from powerzoo_jax.rl.offline import to_minari as to_minari
from powerzoo_jax.rl.rollout import Episodes as Episodes
from powerzoo_jax.rl.rollout import batch_rollout as batch_rollout
from powerzoo_jax.rl.rollout import evaluate_policy as evaluate_policy
from powerzoo_jax.rl.rollout import rollout as rollout
from powerzoo_jax.rl.rollout import summarise as summarise
