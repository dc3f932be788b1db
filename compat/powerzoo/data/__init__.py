"""Time series of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.benchmarks.datasets import DataLoader as DataLoader
from powerzoo_compat.powerzoo_api.benchmarks.datasets import DatasetManifest as DatasetManifest
from powerzoo_compat.powerzoo_api.benchmarks.datasets import DatasetRegistry as DatasetRegistry
from powerzoo_compat.powerzoo_api.benchmarks.datasets import TimeAligner as TimeAligner

from powerzoo.data import signals as signals
