"""Environments of the contract."""
