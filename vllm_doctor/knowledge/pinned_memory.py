"""What torch takes of the host's memory for a pinned tensor.

Its allocator of pinned memory rounds each request up to a power of two (ATen/core/CachingHostAllocator.h), so a tensor
of 2.1 GiB takes 4 (vLLM issues 53042 and 56410). What is registered after it was made takes what it asks for.
"""

from math import floor

ROUNDED = "torch pins each tensor in a block of the next power of two, so up to twice as much is taken"


def pinned(size: float, rounded_to: float | None = None) -> float:
    """Bytes that torch pins for a tensor of `size` bytes; those above `rounded_to` are not rounded."""
    if size <= 0 or (rounded_to is not None and size > rounded_to):
        return max(size, 0.0)
    whole = 1 << (floor(size) - 1).bit_length() if size > 1 else 1
    return float(whole)
