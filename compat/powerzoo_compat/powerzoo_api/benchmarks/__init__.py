"""Evaluation, policies and data sets of the contract."""
