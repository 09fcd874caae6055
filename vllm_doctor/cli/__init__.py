"""Typer wiring, exit codes and the environment object; no logic."""
