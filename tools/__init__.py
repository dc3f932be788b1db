"""Developers' tools: builders of the shipped tables and of generated pages; not part of the wheel."""
