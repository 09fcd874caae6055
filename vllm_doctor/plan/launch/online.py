"""Quantising while loading: what lies on the GPU meanwhile."""

from vllm_doctor.knowledge.versions import Version

# Linear layers are quantised one by one as they are loaded, and never lie on the GPU in 16 bits, from here on
# (quantization/fp8.py: weights are made on the meta device); before, all of them did at first.
STREAMED = Version((0, 16))
