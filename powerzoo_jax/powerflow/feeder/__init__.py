"""Balanced power flow of feeders without voltage-controlled buses."""
