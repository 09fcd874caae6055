"""The sum, its range, the outcome."""
