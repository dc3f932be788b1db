"""Dispatch plans, bounds and baseline policies of transmission tasks."""
