"""Front door for learners in the contract."""
