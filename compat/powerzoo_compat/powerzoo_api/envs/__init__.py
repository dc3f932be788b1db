"""Environments of one agent, of several and of many lanes, and the devices that grids take."""
