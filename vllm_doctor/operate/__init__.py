"""Watching over a service that runs."""
