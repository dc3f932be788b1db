"""Files of others and for others: the form of what is read, and results that are written whole or not at all."""
