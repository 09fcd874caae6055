"""Tokens a second of a planned launch, as another tool estimates them."""
