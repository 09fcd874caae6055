"""config.json to an architecture: what of a model takes memory."""
