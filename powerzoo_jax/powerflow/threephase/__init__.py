"""Unbalanced three-phase power flow."""
