"""Transmission environments: units by score, and a grid under one operator."""
