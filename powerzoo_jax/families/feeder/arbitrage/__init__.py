"""Storage arbitrage plans with perfect foresight and certified bounds."""
