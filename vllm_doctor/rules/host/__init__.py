"""The host: memory, pinned memory, processes that were killed."""
