"""Microgrid plans with perfect foresight, bounds and baseline policies."""
