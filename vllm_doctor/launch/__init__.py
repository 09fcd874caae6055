"""A launch line as vLLM's own parser takes it; every command that is given one reads it here."""
