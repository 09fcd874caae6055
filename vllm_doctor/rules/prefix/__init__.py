"""Prefix caching: hits, misses and its defects."""
