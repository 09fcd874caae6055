"""Refused launches and failures that are not memory."""
