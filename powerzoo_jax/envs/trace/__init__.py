"""Traces of episodes: every quantity of every step by name, id and unit."""
