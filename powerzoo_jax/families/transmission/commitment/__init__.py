"""Unit-commitment plans, bounds and baseline policies."""
