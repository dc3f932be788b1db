"""Market environments: bidding units and a battery that trades."""
