"""Operation of a transmission grid by its topology: busbars, lines, redispatch."""
