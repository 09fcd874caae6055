"""Quantizing while loading: what lies on the GPU meanwhile."""

from vllm_doctor.knowledge.generations import ADA, BLACKWELL
from vllm_doctor.knowledge.versions import Version

# Linear layers are quantized one by one as they are loaded, and never lie on the GPU in 16 bits, from here on
# (quantization/fp8.py: weights are made on the meta device); before, all of them did at first.
STREAMED = Version((0, 16))
# Experts too (0.14.1 makes them on the GPU, 0.17.1 does not; the release between was not read for them).
STREAMED_EXPERTS = Version((0, 17))
# Names of --quantization for what is done while loading, and the compute capability that each asks for beside what all
# of them do (config/quantization.py _ONLINE_SHORTHANDS; quantization/online/fp8.py, nvfp4.py).
SHORTHANDS = {
    "fp8_per_tensor": 0.0,
    "fp8_per_block": 0.0,
    "fp8_per_channel": ADA,
    "int8_per_channel_weight_only": 0.0,
    "nvfp4_per_token": BLACKWELL,
}
# Formats of checkpoints that a plain one is brought into too, where releases know the last three of these.
MICROSCALED = ("mxfp4", "mxfp8")
