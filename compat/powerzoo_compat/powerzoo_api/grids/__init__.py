"""Grids of the contract."""
