"""Time series of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.datasets import DataLoader as DataLoader
from powerzoo_compat.powerzoo_api.datasets import DatasetManifest as DatasetManifest
from powerzoo_compat.powerzoo_api.datasets import DatasetRegistry as DatasetRegistry
from powerzoo_compat.powerzoo_api.datasets import TimeAligner as TimeAligner
from powerzoo_compat.powerzoo_api.datasets import signals as signals
