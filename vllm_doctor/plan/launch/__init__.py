"""A command line to settings with nothing left open."""
