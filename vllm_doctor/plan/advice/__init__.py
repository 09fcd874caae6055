"""What to change, and what a change would bring."""
