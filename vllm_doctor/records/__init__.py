"""Frozen records that every room shares; no I/O."""
