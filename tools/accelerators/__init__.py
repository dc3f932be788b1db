"""Ahead-of-time compilation of all programs for accelerators that are not there, and counts of what came out."""
