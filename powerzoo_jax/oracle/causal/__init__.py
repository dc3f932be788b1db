"""Causal planners: rolling horizons on what has been observed, with forecasts from the days of training alone."""
