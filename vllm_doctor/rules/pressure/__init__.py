"""The KV cache is too small for the load, or memory goes away over time."""
