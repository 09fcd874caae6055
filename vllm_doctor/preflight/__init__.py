"""Can this host serve this model with these versions? Judged from variables, then from facts, before any change."""
