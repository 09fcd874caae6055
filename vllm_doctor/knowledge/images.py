"""vLLM's own container images, wherever they are mirrored: their tag is the release (hub.docker.com/r/vllm)."""

from vllm_doctor.knowledge.pattern import Pattern

_OURS = Pattern(r"(?:^|/)vllm/vllm-openai(?:-rocm|-cpu)?:v?(\d+\.\d+\.\d+(?:rc\d+|\.?post\d+)?)(?:-[\w.-]+)?(?:@|$)")

# Of these the one for NVIDIA's cards, on x86.
_FOR_CUDA = Pattern(r"(?:^|/)vllm/vllm-openai(?::(?![^@]{0,200}(?:aarch64|arm64))[^@]{0,200})?(?:@|$)")


def is_for_cuda(image: str) -> bool:
    """Is this vLLM's own image for NVIDIA's cards, of whatever release?"""
    return _FOR_CUDA.search(image) is not None


def release_of(image: str) -> str | None:
    """The release that the tag of vLLM's own image names; None for any other image, which may hold any release."""
    found = _OURS.search(image)
    return found[1] if found else None
