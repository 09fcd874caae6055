"""How a running server uses its memory."""
