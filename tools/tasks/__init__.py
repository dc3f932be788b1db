"""Calibration evidence and the generated page of tasks."""
