"""Signals of the data sets as constants, LOAD_ACTUAL_MW = "load.actual_mw"; called, their sources, see `signals`."""

import sys

from powerzoo_compat.powerzoo_api.benchmarks.datasets import SignalModule as _SignalModule

sys.modules[__name__].__class__ = _SignalModule
