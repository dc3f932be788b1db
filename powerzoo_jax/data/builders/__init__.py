"""Developers' builders of the bundled data sets, one file per family of sources; never imported at run time."""
