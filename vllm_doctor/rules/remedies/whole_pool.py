"""What is still to be allocated of a KV cache when the tensor of one of its layers is refused."""

import math

from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.kv_cache import left_over
from vllm_doctor.rules.remedies.weights import whole_weights

# A tensor that is this part of the pool is all of it.
_ALL = 0.9


def layers_to_come(case: Case, torch: TorchOom | None) -> float | None:
    """GiB of the KV cache that were not allocated yet, at least those of the refused tensor; infinite where the log
    does not tell how many layers follow. None where nothing was asked for in figures.

    vLLM allocates the cache layer by layer (worker/cache_engine.py, v1/worker/gpu_model_runner.py): the message is of
    one of them. What torch held beside the weights is the part that was allocated already, or less.
    """
    if torch is None:
        return None
    asked, planned, weights = torch.asked / GIB, left_over(case), whole_weights(case)
    if planned is None or planned <= 0:
        return math.inf
    if asked >= _ALL * planned or torch.allocated is None or weights is None:
        return asked if asked >= _ALL * planned else math.inf
    beside = torch.allocated / GIB - weights
    # More than the whole pool: something else lies in the same process, so that nobody knows what is still to come.
    return max(asked, planned - max(beside, 0.0)) if beside < planned else math.inf
