"""Islanded data-centre microgrid."""
