"""The live view of services."""
