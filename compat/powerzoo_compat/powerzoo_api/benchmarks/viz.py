"""Pictures of episodes and evaluations; matplotlib (extra `viz`) is imported when one is drawn."""

from powerzoo_jax.plot import plot_comparison as plot_eval_comparison
from powerzoo_jax.plot import plot_dispatch as plot_dispatch
from powerzoo_jax.plot import plot_episode as plot_episode

__all__ = ["plot_dispatch", "plot_episode", "plot_eval_comparison"]
