"""Builders of the shipped network cases."""
