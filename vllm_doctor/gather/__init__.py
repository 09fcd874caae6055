"""The only code that touches the world."""
