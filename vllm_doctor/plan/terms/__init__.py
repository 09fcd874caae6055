"""The terms of the sum: weights, activations, memory outside torch, graphs, cache."""
