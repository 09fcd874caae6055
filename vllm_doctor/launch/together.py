"""Options that a release takes one by one and refuses together, where the launch says both of them.

What the release chooses for an option that is not given depends on the model and the card: that is judged by `plan`.
"""

import json
from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.human_int import scaled
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.numbers import number
from vllm_doctor.launch.refusal import Refusal
from vllm_doctor.records import excerpt

# What of these releases' sources was read.
_RANKS_CHECKED = Version((0, 33))


def conflicts(flags: Mapping[str, str | bool], version: Version) -> Iterator[Refusal]:
    """Each two that do not go together: those that were read by a person, then the release's own tests of options."""
    told = list(_read(flags, version))
    yield from told
    from vllm_doctor.knowledge.parser.combinations import broken  # its reader of expressions takes milliseconds

    named = {one.flag.lstrip("-") for one in told}
    for check in broken(
        {name.replace("-", "_"): option_value(name, text, version) for name, text in flags.items()}, version
    ):
        names = [name.replace("_", "-") for name in check.names]
        if not named & {name.replace("_", "-") for name in check.asked}:
            value = flags[names[0]]
            found = "given" if value is True else excerpt.value(value)
            yield Refusal(f"--{names[0]}", found, check.needed)


def option_value(name: str, text: str | bool, version: Version) -> object:
    """What vLLM's parser makes of a value."""
    from vllm_doctor.knowledge.parser.combinations import UnknownValue

    if isinstance(text, bool):
        return text
    record = history("options", "options").value(name, version)
    if "$" in text or "[hidden]" in text:
        return UnknownValue()
    if record.get("optional") is True and text in {"", "None"}:
        return None
    try:
        if record.get("type") in {"int", "float"}:
            return int(text) if record["type"] == "int" else float(text)
        if record.get("kind") in {"json", "object"}:
            return json.loads(text)
    except (ValueError, RecursionError):
        return UnknownValue()
    number = scaled(text)
    return text if number is None else number


def _read(flags: Mapping[str, str | bool], version: Version) -> Iterator[Refusal]:
    step, length = _whole(flags, "max-num-batched-tokens"), _whole(flags, "max-model-len")
    if step is not None:
        whole_prompts = flags.get("enable-chunked-prefill") is False
        yield from of_a_step(step, seqs=_whole(flags, "max-num-seqs"), length=length if whole_prompts else None)
    # entrypoints/openai/cli_args.py: validate_parsed_serve_args
    if flags.get("enable-auto-tool-choice") is True and not flags.get("tool-call-parser"):
        yield Refusal("--tool-call-parser", "not given", "the name of a parser beside --enable-auto-tool-choice")
    rank, size = _whole(flags, "data-parallel-rank"), _whole(flags, "data-parallel-size")
    if rank is not None and size is not None and rank >= size and version >= _RANKS_CHECKED:  # config/parallel.py
        yield Refusal("--data-parallel-rank", str(rank), f"less than --data-parallel-size, {size}", to=str(size - 1))


def of_a_step(tokens: int, *, seqs: int | None, length: int | None) -> Iterator[Refusal]:
    """What a step of `tokens` is too small for (config/scheduler.py: SchedulerConfig): a token of each of `seqs`
    requests, and a prompt of `length` tokens where it is not taken in chunks. None is not asked."""
    if seqs is not None and tokens < seqs:
        yield Refusal("--max-num-batched-tokens", str(tokens), f"at least --max-num-seqs, {seqs}", to=str(seqs))
    if length is not None and tokens < length:
        needed = f"at least --max-model-len, {length}, when chunked prefill is off"
        yield Refusal("--max-num-batched-tokens", str(tokens), needed, to=str(length))


def _whole(flags: Mapping[str, str | bool], name: str) -> int | None:
    """A whole number of 12 digits at most; what is none is refused where it is read."""
    value = flags.get(name)
    found = number(value) if isinstance(value, str) and value.isascii() else None
    return int(found) if found is not None and 0 <= found < 10**12 and found == int(found) else None
