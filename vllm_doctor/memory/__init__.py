"""Model architecture to weights, KV cache, activations and graphs, to a plan."""
