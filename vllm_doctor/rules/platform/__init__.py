"""The GPU, its driver and the libraries on them."""
