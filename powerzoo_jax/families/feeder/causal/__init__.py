"""Feeder planners that know the past and a forecast."""
