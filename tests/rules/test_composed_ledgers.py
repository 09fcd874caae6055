"""Every change that is offered holds in its own launch: release, card, options and message are drawn at random.

`test_changes_go_forward` has one release and one launch at a time; here several options meet, in releases of every
engine, with messages of allocators and of checks, on cards that are known and not.
"""

import json
import random
from pathlib import Path

import pytest

from tests.rules.test_memory_by_stage import MESSAGES, STAGES
from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.version import Version, parse_version
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Change
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules import engine

RELEASES = ("0.6.3", "0.7.3", "0.8.5", "0.9.0", "0.10.2", "0.12.0", "0.15.0", "0.19.1", "0.24.0", "0.29.0", "0.33.0")
OPTIONS: dict[str, tuple[object, ...]] = {
    "gpu_memory_utilization": (0.3, 0.5, 0.85, 0.95, 0.98),
    "max_num_seqs": (1, 8, 64, 256, 1024),
    "max_num_batched_tokens": (512, 2048, 8192, 32768),
    "max_model_len": (512, 4096, 32768, 131072),
    "tensor_parallel_size": (2, 4, 8),
    "pipeline_parallel_size": (2,),
    "cpu_offload_gb": (4.0, 64.0),
    "kv_cache_dtype": ("fp8",),
    "enable_lora": (True,),
    "max_loras": (1, 8),
    "max_lora_rank": (8, 256),
    "quantization": ("fp8", "awq"),
    "swap_space": (0, 16),
    "enable_chunked_prefill": (True, False),
    "kv_cache_memory_bytes": (4 << 30,),
    "limit_mm_per_prompt": ('{"image": 1}', '{"image": 8, "video": 1}'),
    "max_cudagraph_capture_size": (1, 64),
}
CHECKS = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when",
    (
        "ValueError: The model's max seq len ({length}) is larger than the maximum number of tokens that can be stored "
        "in KV cache ({part}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when"
    ),
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering",
)
DRAWS = 100
_OPTIONS = {
    name: frozenset(
        json.loads((Path(versions.__file__).with_name("releases") / f"{name}.json").read_bytes())["options"]
    )
    for name in RELEASES
}


def _version(text: str) -> Version:
    found = parse_version(text)
    assert found is not None
    return found


class Drawn:
    """One composed start."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.release = dice.choice(RELEASES)
        self.options: dict[str, object] = {"model": dice.choice(("acme/chat-8b", "acme/chat-70b", "acme/chat-32B-AWQ"))}
        for name in dice.sample(sorted(OPTIONS), dice.randint(0, 5)):
            if name.replace("_", "-") in _OPTIONS[self.release]:
                self.options[name] = dice.choice(OPTIONS[name])
        if self._number("max_num_seqs") > self._number("max_num_batched_tokens") > 0:
            del self.options["max_num_seqs"]  # vLLM refuses it
        self.total = dice.choice((7.75, 15.6, 23.6, 39.4, 79.1, 139.7))
        self.asked = dice.choice((0.05, 0.3, 1.2, 3.9))
        self.free = max(round(self.asked * dice.choice((0.02, 0.5, 0.9)), 2), 0.02)
        self.figures = dice.random() < 0.6
        self.cards = dice.choice((None, None, 1, 2, 8))
        self.lines = self._lines(dice)

    def _number(self, name: str) -> float:
        value = self.options.get(name)
        return float(value) if isinstance(value, int | float) else 0.0

    def _lines(self, dice: random.Random) -> list[str]:
        head = "(EngineCore_DP0 pid=70) ERROR 03-14 09:00:00 [core.py:1100] "
        if _version(self.release) < Version((0, 8)):
            head = "ERROR 03-14 09:00:00 engine.py:366] "
        lines = [
            f"INFO 03-14 08:59:00 [api_server.py:1351] vLLM API server version {self.release}",
            f"INFO 03-14 08:59:00 [utils.py:233] non-default args: {self.options!r}",
        ]
        if dice.random() < 0.3:
            self.figures = False
            length = int(self._number("max_model_len") or 32768)
            return [*lines, head + dice.choice(CHECKS).format(length=length, part=length // 16)]
        lines.append(f"{head}Traceback (most recent call last):")
        for file, function, code in dice.choice(STAGES)["calls"]:
            lines += [f'{head}  File "/opt/v/lib/python3.12/site-packages/{file}", line 210, in {function}']
            lines += [f"{head}    {code}"]
        torch = (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {self.asked * 1024:.2f} MiB. GPU 0 has a "
            f"total capacity of {self.total:.2f} GiB of which {self.free * 1024:.2f} MiB is free. Including "
            f"non-PyTorch memory, this process has {self.total - self.free:.2f} GiB memory in use. Of the allocated "
            f"memory {self.total * 0.9:.2f} GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but "
            "unallocated."
        )
        return [*lines, head + (torch if self.figures else MESSAGES["no figures"])]

    def changes(self) -> list[list[Change]]:
        """What each finding offers."""
        log = log_of_lines(self.lines, "log")
        signals: dict[str, object] = {}
        if self.cards is not None:
            size = 80 * 2**30
            found = tuple(Gpu(index=i, name="NVIDIA A100-SXM4-80GB", total_bytes=size) for i in range(self.cards))
            signals["gpus"] = Known(found, "gpus")
        shot = Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"), **signals)  # type: ignore[arg-type]
        return [list(one.changes) for one in engine.judged(shot).findings]

    def wrong(self, change: Change) -> str | None:
        """What is wrong with a change of an option; None where it holds."""
        if change.kind is not ChangeKind.FLAG:
            return None
        if change.name not in _OPTIONS[self.release]:
            return "the release has no such option"
        now, then = self.options.get(change.name.replace("-", "_")), change.after
        if now is not None and str(now) == str(then):
            return "it is set already"
        if not isinstance(then, int | float) or isinstance(then, bool):
            return None
        if isinstance(now, int | float) and not isinstance(now, bool):
            moved = then - now
            if moved >= 0 if change.direction is Direction.LOWER else moved <= 0:
                return "it goes back"
        return self._sum(change.name, float(then), change.direction)

    def _sum(self, name: str, then: float, direction: Direction) -> str | None:
        release = _version(self.release)
        if name == "gpu-memory-utilization":
            if "kv_cache_memory_bytes" in self.options:
                return "the pool is given in bytes"
            now = self._number("gpu_memory_utilization") or versions.default_utilization(release)
            short = self.asked - self.free
            if direction is Direction.LOWER and self.figures and (now - then) * self.total + 0.001 < short:
                return "it does not leave what was missing"
            return None if 0.05 < then <= 0.98 else "no start has such a part of the card"
        if name == "max-num-batched-tokens":
            if then < self._number("max_num_seqs"):
                return "a step has fewer tokens than sequences"
            whole = self.options.get("enable_chunked_prefill") is False
            return "a step is shorter than a prompt" if whole and then < self._number("max_model_len") else None
        if name == "tensor-parallel-size" and self.cards is not None:
            ranks = then * max(self._number("pipeline_parallel_size"), 1)
            return "there are not so many GPUs" if ranks > self.cards else None
        if name in {"max-num-seqs", "max-model-len", "max-loras", "max-lora-rank"}:
            return None if then >= 1 else "nothing can be served"
        return None


@pytest.mark.parametrize("part", range(4))
def test_a_change_holds_in_its_own_launch(part: int) -> None:
    wrong: list[tuple[object, ...]] = []
    for seed in range(part * DRAWS, (part + 1) * DRAWS):
        drawn = Drawn(seed)
        for offered in drawn.changes():
            names = [change.name for change in offered]
            if len(names) != len(set(names)):
                wrong.append((seed, "an option twice", names))
            wrong += [(seed, c.name, c.after, why) for c in offered if (why := drawn.wrong(c)) is not None]
    assert not wrong
