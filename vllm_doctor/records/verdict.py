"""The closed vocabularies of a diagnosis: verdicts, phases, causes, severities."""

from enum import StrEnum


class Verdict(StrEnum):
    """What a question ended with. What could not be read is never `OK` and never `FINDING`."""

    OK = "ok"
    FINDING = "finding"
    NOT_APPLICABLE = "not_applicable"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """What may still be done with the service, worst first."""

    BLOCKS_START = "blocks-start"
    WILL_FAIL_UNDER_LOAD = "will-fail-under-load"
    DEGRADED = "degraded"
    ADVICE = "advice"


class Confidence(StrEnum):
    """How sure a finding is: `CONFIRMED` needs one authoritative source or two independent ones."""

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Applicability(StrEnum):
    """Who may apply a change: `SAFE` loses nothing, `NEEDS_REVIEW` changes capacity, `MANUAL` is for hands."""

    SAFE = "safe"
    NEEDS_REVIEW = "needs-review"
    MANUAL = "manual"


class ChangeKind(StrEnum):
    """What a change touches."""

    FLAG = "flag"
    ENV = "env"
    PACKAGE = "package"
    OS = "os"
    HARDWARE = "hardware"


class Direction(StrEnum):
    """Which way a change goes."""

    LOWER = "lower"
    RAISE = "raise"
    ADD = "add"
    REMOVE = "remove"
    SET = "set"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    CHANGE = "change"
    STOP = "stop"
    REPAIR = "repair"
    SERIALIZE = "serialize"
    SMALLER = "smaller-or-more-quantized"
    RESET = "drain-reset-or-replace"
    REBOOT = "reboot"


class Phase(StrEnum):
    """In which phase of a server the fault lies."""

    STARTUP_WEIGHTS = "startup-weights"
    STARTUP_PROFILE = "startup-profile"
    STARTUP_KV_CACHE = "startup-kv-cache"
    STARTUP_CUDAGRAPH = "startup-cudagraph"
    STARTUP_SAMPLER_WARMUP = "startup-sampler-warmup"
    STARTUP_FREE_MEMORY_CHECK = "startup-free-memory-check"
    RUNTIME_PREFILL_BURST = "runtime-prefill-burst"
    RUNTIME_KV_PREEMPTION = "runtime-kv-preemption"
    RUNTIME_LEAK_OR_FRAGMENTATION = "runtime-leak-or-fragmentation"
    PREFIX_CACHE = "prefix-cache"
    MULTIMODAL_ENCODER = "multimodal-encoder"
    HOST_RAM = "host-ram"
    NCCL_OR_MULTIGPU = "nccl-or-multigpu"
    DRIVER_CUDA_MISMATCH = "driver-cuda-mismatch"
    GPU_FAULT = "gpu-fault"
    OTHER_PROCESS_ON_GPU = "other-process-on-gpu"
    FLAG_ERROR = "flag-error"
    NOT_MEMORY = "not-memory"


class Cause(StrEnum):
    """Why it happened."""

    WEIGHTS_EXCEED_VRAM = "weights-exceed-vram"
    KV_TOO_SMALL = "kv-cache-too-small-for-max-model-len"
    NO_KV_BLOCKS = "no-kv-blocks"
    BATCHED_TOKENS_TOO_LARGE = "batched-tokens-too-large"
    MAX_NUM_SEQS_TOO_LARGE = "max-num-seqs-too-large"
    UTILIZATION_TOO_HIGH = "utilization-too-high"
    UTILIZATION_TOO_LOW = "utilization-too-low"
    GPU_SHARED = "gpu-shared-with-other-process"
    CUDAGRAPH_CAPTURE_OOM = "cudagraph-capture-oom"
    FRAGMENTATION = "fragmentation"
    HOST_OOM_KILL = "host-oom-kill"
    PINNED_SWAP_TOO_LARGE = "cpu-pinned-swap-too-large"
    TP_NEEDED = "tp-needed"
    SMALLER_DTYPE_NEEDED = "kv-dtype/quantization-needed"
    LORA_OVERHEAD = "lora-overhead"
    MM_ENCODER_TOO_LARGE = "mm-encoder-too-large"
    LOGPROBS_SPIKE = "logprobs-spike"
    DRIVER_TOO_OLD = "driver-too-old"
    DRIVER_LIBRARY_MISMATCH = "driver-library-mismatch"
    NCCL_SHM_TOO_SMALL = "nccl-shm-too-small"
    MEMORY_LEAK_BUG = "memory-leak-bug"
    KNOWN_VLLM_BUG = "known-vllm-bug"
    REMOVED_FLAG = "removed-flag"
    BAD_FLAG = "bad-flag"
    ECC_OR_XID = "ecc-or-xid"
    CUDA_ILLEGAL_ACCESS = "cuda-illegal-access"
    NETWORK_OR_AUTH = "network-or-auth"
    CORRUPT_WEIGHTS = "corrupt-weights"
    UNSUPPORTED_ARCH = "unsupported-arch"
    BROKEN_PYTHON_ENV = "broken-python-env"
    LIBCUDA_NOT_FOUND = "libcuda-not-found"
    GPU_ARCH_NOT_IN_BUILD = "gpu-arch-not-in-build"
    KERNEL_SHARED_MEMORY_LIMIT = "kernel-shared-memory-limit"
    INDEX_OR_INPUT_OUT_OF_RANGE = "index-or-input-out-of-range"
    PORT_IN_USE = "port-in-use"
    NCCL_TIMEOUT = "nccl-timeout"
    HEALTHY = "healthy"
    OTHER = "other"
