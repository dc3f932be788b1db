"""Pictures of networks, episodes and learners; matplotlib (extra `viz`) is imported when a picture is drawn."""

from powerzoo_jax.plot.curves import interquartile_mean as interquartile_mean
from powerzoo_jax.plot.curves import interval as interval
from powerzoo_jax.plot.curves import plot_comparison as plot_comparison
from powerzoo_jax.plot.curves import plot_gains as plot_gains
from powerzoo_jax.plot.curves import plot_learning_curves as plot_learning_curves
from powerzoo_jax.plot.dispatch import dispatch_of as dispatch_of
from powerzoo_jax.plot.dispatch import plot_dispatch as plot_dispatch
from powerzoo_jax.plot.episode import plot_episode as plot_episode
from powerzoo_jax.plot.episode import record_episode as record_episode
from powerzoo_jax.plot.feeder import locate_feeder as locate_feeder
from powerzoo_jax.plot.feeder import plot_feeder as plot_feeder
from powerzoo_jax.plot.layout import locate_buses as locate_buses
from powerzoo_jax.plot.layout import save_figure as save_figure
from powerzoo_jax.plot.network import branch_loading as branch_loading
from powerzoo_jax.plot.network import over_rating as over_rating
from powerzoo_jax.plot.network import plot_network as plot_network
from powerzoo_jax.plot.page import episode_html as episode_html
from powerzoo_jax.plot.profile import plot_branch_loading as plot_branch_loading
from powerzoo_jax.plot.profile import plot_voltage_profile as plot_voltage_profile
