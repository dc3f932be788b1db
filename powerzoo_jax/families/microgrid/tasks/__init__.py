"""Microgrid tasks: settings, builders and series."""
