"""Wrappers of the contract."""
