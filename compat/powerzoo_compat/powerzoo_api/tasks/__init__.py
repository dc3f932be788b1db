"""Tasks of the contract."""
