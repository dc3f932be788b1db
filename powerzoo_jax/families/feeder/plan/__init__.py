"""Feeder plans with perfect foresight, bounds and baseline policies."""
