"""What a log of vLLM says: opened, cut into runs, matched against the catalogue, and its first failure found."""
