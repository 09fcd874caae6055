"""Watches the host's vLLM services, keeps what it saw, and restarts one only where a restart helps."""
