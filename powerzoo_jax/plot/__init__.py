"""Pictures of episodes; matplotlib (extra `viz`) is imported when a picture is drawn."""

from powerzoo_jax.plot.episode import plot_episode as plot_episode
from powerzoo_jax.plot.episode import record_episode as record_episode
