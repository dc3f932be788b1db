"""Builders of the bundled time series."""
