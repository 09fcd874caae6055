"""/metrics with the names and labels of the release's engine."""

from __future__ import annotations

import time
from collections import Counter

BUCKETS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0)


class Metrics:
    """Counters of one server."""

    def __init__(self, model: str, sums, options) -> None:
        self.label, self.sums, self.options = f'engine="0",model_name="{model}"', sums, options
        self.ends: Counter[str] = Counter()
        self.prompt = self.generated = 0
        self.times: dict[str, list[float]] = {"time_to_first_token_seconds": [], "e2e_request_latency_seconds": []}

    def first(self, seconds: float) -> None:
        """The first token was there after that long."""
        self.times["time_to_first_token_seconds"].append(seconds)

    def finished(self, reason: str, prompt: int, generated: int, began: float) -> None:
        """A request ended."""
        self.ends[reason] += 1
        self.prompt += prompt
        self.generated += generated
        self.times["e2e_request_latency_seconds"].append(time.monotonic() - began)

    def text(self, running: int, waiting: int, held: int) -> str:
        """Prometheus' text format."""
        usage = min(1.0, held / max(1, self.sums["tokens"]))
        lines: list[str] = []
        one = {
            "num_requests_running": running,
            "num_requests_waiting": waiting,
            "kv_cache_usage_perc": usage,
            "engine_sleep_state": 0,
        }
        for name, value in one.items():
            extra = ',sleep_state="awake"' if name == "engine_sleep_state" else ""
            lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{self.label}{extra}}} {float(value)}"]
        many = {
            "prefix_cache_queries": self.prompt,
            "prefix_cache_hits": 0,
            "num_preemptions": 0,
            "prompt_tokens": self.prompt,
            "generation_tokens": self.generated,
        }
        for name, value in many.items():
            lines += [f"# TYPE vllm:{name}_total counter", f"vllm:{name}_total{{{self.label}}} {float(value)}"]
        lines.append("# TYPE vllm:request_success_total counter")
        for reason in ("stop", "length", "abort", "error", "repetition"):
            lines.append(
                f'vllm:request_success_total{{{self.label},finished_reason="{reason}"}} {float(self.ends[reason])}'
            )
        for name, values in self.times.items():
            lines.append(f"# TYPE vllm:{name} histogram")
            for edge in BUCKETS:
                lines.append(f'vllm:{name}_bucket{{{self.label},le="{edge}"}} {sum(value <= edge for value in values)}')
            lines.append(f'vllm:{name}_bucket{{{self.label},le="+Inf"}} {len(values)}')
            lines += [
                f"vllm:{name}_count{{{self.label}}} {len(values)}",
                f"vllm:{name}_sum{{{self.label}}} {sum(values)}",
            ]
        config = {
            "block_size": self.sums["block_size"],
            "cache_dtype": self.options.kv_cache_dtype or "auto",
            "enable_prefix_caching": self.options.enable_prefix_caching is not False,
            "gpu_memory_utilization": self.options.gpu_memory_utilization or 0.92,
            "num_gpu_blocks": self.sums["blocks"],
        }
        labels = ",".join(f'{name}="{value}"' for name, value in config.items())
        lines += ["# TYPE vllm:cache_config_info gauge", f'vllm:cache_config_info{{{labels},engine="0"}} 1.0']
        return "\n".join(lines) + "\n"
