"""Job-scheduling plans, bounds and baseline policies of the data centre."""
