"""Readers of network files: MATPOWER, OpenDSS and pandapower."""
