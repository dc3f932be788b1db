"""Transmission tasks: settings, builders and catalog entries."""
