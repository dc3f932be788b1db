"""Transmission grid and distribution feeders stepped together."""
