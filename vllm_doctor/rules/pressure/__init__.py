"""The KV pool is too small for the load, or memory goes away over time."""
