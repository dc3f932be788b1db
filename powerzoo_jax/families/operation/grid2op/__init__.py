"""Reader of Grid2Op's environment folders: NumPy and the standard library, nothing of a folder is executed."""
