"""A start that runs out of memory."""
