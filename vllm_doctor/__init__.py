"""Deploy vLLM on GPU hosts, and know why it ran out of memory."""

__version__ = "0.2.0"
