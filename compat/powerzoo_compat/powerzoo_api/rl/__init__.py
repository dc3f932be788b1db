"""Training front end of the contract."""
