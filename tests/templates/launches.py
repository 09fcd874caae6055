"""Every launch that the templates can render for a release: all templates, to eight GPUs, each flag of the plan."""

from tests.templates.units import BEHAVIOURS, command, environment, render

GPUS = tuple(tuple(f"GPU-{i:08x}-0000-0000-0000-000000000000" for i in range(n)) for n in (0, 1, 2, 4, 8))

# One launch of each kind that the plan recommends (plan/advice/choice/) or the inventory has a variable for.
ARGUMENTS: tuple[dict[str, object], ...] = (
    {},
    {
        "served-model-name": "llama",
        "host": "127.0.0.1",
        "port": 8000,
        "shutdown-timeout": 30,
        "max-model-len": 131072,
        "max-num-seqs": 256,
        "max-num-batched-tokens": 16384,
        "max-num-queued-reqs": 512,
        "gpu-memory-utilization": 0.92,
        "block-size": 16,
        "tensor-parallel-size": 2,
        "pipeline-parallel-size": 2,
        "enable-prefix-caching": True,
        "enable-chunked-prefill": True,
        "seed": 0,
    },
    {
        "kv-cache-memory-bytes": 42949672960,
        "num-gpu-blocks-override": 4096,
        "dtype": "bfloat16",
        "load-format": "auto",
        "trust-remote-code": False,
        "enable-prefix-caching": False,
        "enforce-eager": True,
        "max-cudagraph-capture-size": 512,
        "compilation-config": {"cudagraph_mode": "FULL_DECODE_ONLY"},
        "cpu-offload-gb": 8,
        "limit-mm-per-prompt": {"image": 2, "video": 0},
        "mm-processor-kwargs": {"max_pixels": 1003520},
        "mm-processor-cache-gb": 4,
        "skip-mm-profiling": True,
        "max-logprobs": 20,
        "hf-overrides": {"rope_scaling": None},
    },
    {
        "cudagraph-capture-sizes": [1, 2, 4, 8],
        "enable-lora": True,
        "max-loras": 2,
        "max-lora-rank": 64,
        "max-cpu-loras": 4,
        "quantization": "fp8",
        "enable-expert-parallel": True,
        "data-parallel-size": 2,
        "distributed-executor-backend": "mp",
        "disable-custom-all-reduce": True,
        "attention-backend": "FLASH_ATTN",
        "long-prefill-token-threshold": 2048,
        "revision": "main",
        "speculative-config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
    },
    *({"kv-cache-dtype": kind} for kind in ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")),
)


def question(version: str) -> dict[str, list[object]]:
    """What parse_with_release.py is asked."""
    launches: set[tuple[str, ...]] = set()
    variables: set[str] = set()
    for behaviour in BEHAVIOURS:
        for gpus in GPUS:
            for given in ARGUMENTS:
                nodes = [i % 2 for i in range(len(gpus))]
                text = render(behaviour, version, gpus, arguments=given, numa_nodes=nodes)
                launches.add(tuple(command(text)[2:]))
                variables |= {name for name in environment(text) if name.startswith("VLLM_")}
    return {"launches": [list(launch) for launch in sorted(launches)], "variables": sorted(variables)}
