"""The wiring of options, exit codes and the environment object; no logic."""
