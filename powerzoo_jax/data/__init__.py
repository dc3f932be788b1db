"""Bundled time series: clocks, split calendars, manifest and the bank that environments read."""

from powerzoo_jax.data.bank import Bank as Bank
from powerzoo_jax.data.bank import build_bank as build_bank
from powerzoo_jax.data.library import load_dataset as load_dataset
from powerzoo_jax.data.library import price_quantiles as price_quantiles
from powerzoo_jax.data.manifest import get_info as get_info
from powerzoo_jax.data.manifest import list_datasets as list_datasets
from powerzoo_jax.data.series import DatasetInfo as DatasetInfo
from powerzoo_jax.data.series import Series as Series
from powerzoo_jax.data.series import Signal as Signal
from powerzoo_jax.data.series import day_matrix as day_matrix
from powerzoo_jax.data.series import make_series as make_series
from powerzoo_jax.data.series import resample as resample
from powerzoo_jax.data.signals import find_sources as find_sources
from powerzoo_jax.data.signals import load_signals as load_signals
from powerzoo_jax.data.splits import all_days as all_days
from powerzoo_jax.data.splits import eligible_start_days as eligible_start_days
from powerzoo_jax.data.splits import find_overlap as find_overlap
from powerzoo_jax.data.splits import label_days as label_days
from powerzoo_jax.data.splits import list_splits as list_splits
from powerzoo_jax.data.splits import pair_days as pair_days
from powerzoo_jax.data.splits import runs as runs
from powerzoo_jax.data.splits import split_days as split_days
from powerzoo_jax.data.splits import split_rows as split_rows
from powerzoo_jax.data.splits import window_days as window_days
from powerzoo_jax.data.userfile import read_csv as read_csv
from powerzoo_jax.data.userfile import series_from_arrays as series_from_arrays
