"""Feeder tasks: settings, builders and catalog entries."""
