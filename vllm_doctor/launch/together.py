"""Options that a release takes one by one and refuses together, where the launch says both of them.

What the release chooses for an option that is not given depends on the model and the card: that is judged by `plan`.
"""

from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge.versions import Version

# The option, what was found, what is needed, and a value that would do.
Found = tuple[str, str, str, str]
# What of these releases' sources was read.
_RANKS_CHECKED = Version((0, 33))


def conflicts(flags: Mapping[str, str | bool], version: Version) -> Iterator[Found]:
    """Each two that do not go together."""
    step, seqs = _whole(flags, "max-num-batched-tokens"), _whole(flags, "max-num-seqs")
    if step is not None and seqs is not None and step < seqs:  # config/scheduler.py: SchedulerConfig
        yield "--max-num-batched-tokens", str(step), f"at least --max-num-seqs, {seqs}", str(seqs)
    length = _whole(flags, "max-model-len")
    if step is not None and length is not None and step < length and flags.get("enable-chunked-prefill") is False:
        needed = f"at least --max-model-len, {length}, when chunked prefill is off"
        yield "--max-num-batched-tokens", str(step), needed, str(length)
    # entrypoints/openai/cli_args.py: validate_parsed_serve_args
    if flags.get("enable-auto-tool-choice") is True and not flags.get("tool-call-parser"):
        yield "--tool-call-parser", "not given", "the name of a parser beside --enable-auto-tool-choice", ""
    rank, size = _whole(flags, "data-parallel-rank"), _whole(flags, "data-parallel-size")
    if rank is not None and size is not None and rank >= size and version >= _RANKS_CHECKED:  # config/parallel.py
        yield "--data-parallel-rank", str(rank), f"less than --data-parallel-size, {size}", str(size - 1)


def _whole(flags: Mapping[str, str | bool], name: str) -> int | None:
    value = flags.get(name)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 12 else None
