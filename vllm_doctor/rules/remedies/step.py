"""A smaller step: fewer tokens, fewer sequences, no graphs, each with the value that the figures give."""

import math

import msgspec

from vllm_doctor.knowledge import versions
from vllm_doctor.log.match import each, read
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.say import set_flag

# Torch prints sizes with 2 decimals; figures that agree to this share are the same.
ROUNDING = 0.002
# Values people use; a value between them buys nothing.
_TOKEN_STEPS = (512, 1024, 2048, 4096, 8192, 16384, 24576, 32768, 49152, 65536)
# The share of what the weights leave that the pass over one step's tokens may take; the rest is the KV cache.
_ACTIVATION_SHARE = 1 / 7
# One tensor of a pass may be so much of the card, or so many bytes where its size is not known; of a larger one such a
# part of the tokens is taken.
_ONE_TENSOR, _USUAL_TENSOR = 1 / 12, 2 * GIB
PARTS = ((2, "half"), (4, "a quarter"), (8, "an eighth"), (16, "a 16th"))
# Where neither launch nor release is known no start has fewer of its own accord.
_SMALLEST_SEQUENCES = 256
SMALLEST_DEFAULT = "the smallest default of any release on a GPU"
# A card on which a release takes its large defaults.
_LARGE_CARD_GIB = 80.0
_SEQUENCE_STEPS = (8, 16, 32, 64, 128, 192, 256, 384, 512)
# Prompts shorter than this serve nobody well, and so do fewer sequences.
_SHORTEST = 1024
_FEWEST = 8
# Messages that print how many sequences a step has, with the field that does.
_TRIED = (("sampler-oom", "requests"), ("pooler-oom", "requests"), ("state-blocks", "seqs"))
_DTYPES = {
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float32": 4,
    "float": 4,
    "float8_e4m3fn": 1,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
}


def tokens(case: Case) -> tuple[int, str] | None:
    """Tokens of one step as launched, with where the figure stands."""
    given = case.count("max-num-batched-tokens")
    if given is not None:
        return given, "--max-num-batched-tokens"
    run = case.run
    said = run.number("chunked-tokens", "tokens") if run is not None else None
    if said:
        return int(said), "the log"
    if case.version is None:
        return None
    v1 = {"V0": False, "V1": True}.get(run.engine or "") if run is not None else None
    default = versions.batch_defaults(case.version, case.total_gib, case.gpu_name, use_v1=v1)
    return (default.tokens, default.source) if default.tokens is not None else None


def sequences(case: Case) -> tuple[int, str]:
    """Sequences of one step as launched, with where the figure stands."""
    given = case.count("max-num-seqs")
    if given is not None:
        return given, "--max-num-seqs"
    root = case.root
    said = (root.fields(m).get(field, "0") for m, field in _TRIED) if root is not None else ()
    tried = next((n for text in said if (n := int(text))), None)
    if tried is not None:
        return tried, "the log"
    if case.version is None:
        return _SMALLEST_SEQUENCES, SMALLEST_DEFAULT
    # The log says which engine it is, where a release has both.
    v1 = {"V0": False, "V1": True}.get(case.run.engine or "") if case.run is not None else None
    default = versions.batch_defaults(case.version, case.total_gib, case.gpu_name, use_v1=v1)
    if case.total_gib is None and not case.gpu_name:
        large = versions.batch_defaults(case.version, _LARGE_CARD_GIB, use_v1=v1)
        if large.seqs != default.seqs:  # the release goes by the card, which nothing names
            return default.seqs, SMALLEST_DEFAULT
    return default.seqs, default.source


class Tensor(msgspec.Struct, frozen=True):
    """What the failed allocation was: `count` rows of `width` elements of `size` bytes; `option` sets the rows."""

    count: int
    width: int
    size: int
    option: str
    shown: str

    @property
    def formula(self) -> str:
        """The product as text."""
        return f"{self.count} × {self.width} × {self.size} B"


def tensor(case: Case, torch: TorchOom | None) -> Tensor | None:
    """Names the tensor: by the shape in the code that failed, else by the model's dimensions; None if neither fits."""
    if torch is None:
        return None
    remedies = [("max-num-batched-tokens", t[0]) for t in [tokens(case)] if t is not None]
    remedies.append(("max-num-seqs", sequences(case)[0]))
    length = case.number("max-model-len")
    if length is not None:
        remedies.append(("max-model-len", int(length)))
    for width, size, shown in [*_shapes(case), *_dimensions(case)]:
        for option, count in remedies:
            if width and abs(torch.asked - count * width * size) <= max(
                torch.asked * ROUNDING, 6 << 20 if torch.asked >= GIB else 1 << 16
            ):
                return Tensor(count, width, size, option, shown)
    return None


def _shapes(case: Case) -> list[tuple[int, int, str]]:
    """(product of the fixed dimensions, bytes an element, the code) of tensors made in the failing frames."""
    found: list[tuple[int, int, str]] = []
    root, run = case.root, case.run
    codes = (
        [f.code for k in root.crash.links for f in k.frames][::-1]
        if root is not None and root.crash is not None
        else []
    )
    if root is not None and run is not None:
        codes += [run.lines[i].text for i in range(max(0, root.index - 4), root.index)]
    for code in codes:
        shape = read("code-shape", code)
        if shape is None:
            continue
        fixed = [int(found["size"]) for found in each("code-dimension", shape["dims"])]
        product = math.prod(fixed) if fixed else 0
        if product > 1:
            found.append((product, _DTYPES.get(shape.get("dtype", "bfloat16"), 2), code.strip()))
    return found


def _dimensions(case: Case) -> list[tuple[int, int, str]]:
    config = case.model_config
    if config is None:
        return []
    inner = config.get("text_config")
    merged = {**config, **inner} if isinstance(inner, dict) else config
    parts = case.count("tensor-parallel-size") or 1
    found: list[tuple[int, int, str]] = []
    for name, factor, split in (
        ("intermediate_size", 1, True),
        ("intermediate_size", 2, True),
        ("hidden_size", 1, False),
        ("vocab_size", 1, False),
        ("vocab_size", 1, True),
    ):
        value = merged.get(name)
        if isinstance(value, int):
            width = value * factor // (parts if split else 1)
            found.extend(
                (width, size, f"{factor} × {name} of the model" + (f" / {parts} GPUs" if split and parts > 1 else ""))
                for size in (2, 4)
            )
    return found


def fewer_tokens(case: Case, torch: TorchOom | None, *, measuring: bool = True) -> Change | None:
    """A number of tokens a step that fits: in the profile run beside the weights, with the larger part left to the
    KV cache; after it (`measuring` False) in what is free, as the KV cache already stands. None where none does."""
    now = tokens(case)
    if now is None:
        return _of_unknown_release(case, torch, measuring=measuring)
    count, _ = now
    if not measuring:
        return _smaller_step(case, torch, count)
    to = _fitting(case, torch, count)
    if (
        case.effective("enable-chunked-prefill") is False
        and (length := case.number("max-model-len")) is not None
        and length >= to
    ):
        return _shorter_prompts(case, torch, measuring=True)
    if to >= count:
        return None
    why = f"the peak of a step grows with its tokens; {_sum(case, torch, count, to)}"
    left = _left(case, torch, count, to)
    if left.get("available_kv_gib", 1.0) <= 0:
        return None
    return set_flag(case, "max-num-batched-tokens", to, Direction.LOWER, why, predicted=left)


def _left(case: Case, torch: TorchOom | None, count: int, to: int) -> dict[str, float]:
    """What the KV cache would get, GiB, where budget, weights and the bytes a token are known."""
    each, total, weights = _per_token(case, torch, count), case.total_gib, case.weights_gib
    if each is None or total is None or weights is None:
        return {}
    return {"available_kv_gib": round(case.utilization[0] * total - weights - each * to / GIB, 2)}


def _smaller_step(case: Case, torch: TorchOom | None, count: int) -> Change | None:
    """The largest usual value whose share of the failed allocation is free, at most half of what it is."""
    torch = None if torch is not None and torch.program else torch
    share = torch.free / torch.asked if torch is not None and torch.free is not None and torch.asked else 0.5
    steps = [s for s in _TOKEN_STEPS if s <= count * min(share, 0.5)] or [_TOKEN_STEPS[0]]
    floor = int(case.number("max-num-seqs") or 0)
    to = max(steps[-1], floor)
    if case.effective("enable-chunked-prefill") is False and (case.number("max-model-len") or 0) > to:
        return _shorter_prompts(
            case, torch, measuring=False
        )  # a step shorter than a prompt is refused without chunked prefill
    if to >= count:
        return None
    why = "buffers of a step grow with its tokens"
    if torch is not None:
        asked = torch.asked / GIB
        free = f"; {torch.free / GIB:.2f} are free" if torch.free is not None else ""
        why = f"{asked:.2f} GiB for {count} tokens is {asked * to / count:.2f} GiB for {to}{free}"
    return set_flag(case, "max-num-batched-tokens", to, Direction.LOWER, why)


def _per_token(case: Case, torch: TorchOom | None, count: int) -> float | None:
    """Bytes a token of the pass that failed, from what torch held beyond the weights plus what it asked for."""
    if torch is None or torch.allocated is None:
        return None
    # Where the weights are not known all of it counts as the pass: the estimate is then on the safe side.
    live = torch.allocated - (case.weights_gib or 0.0) * GIB + torch.asked
    each = live / count if live > 0 else torch.asked / count * 4
    return each or None


def _fitting(case: Case, torch: TorchOom | None, count: int) -> int:
    floor = max(sequences(case)[0] if case.number("max-num-seqs") is not None else 0, _TOKEN_STEPS[0])
    each, total = _per_token(case, torch, count), case.total_gib
    if each is None or total is None:
        wanted = count // 2
    else:
        room = (case.utilization[0] * total - (case.weights_gib or 0.0)) * GIB * _ACTIVATION_SHARE
        wanted = min(int(room / each), count // 2) if room > 0 else count // 4
    steps = [s for s in _TOKEN_STEPS if s <= wanted]
    return max(floor, steps[-1] if steps else _TOKEN_STEPS[0])


def _sum(case: Case, torch: TorchOom | None, count: int, to: int) -> str:
    each = _per_token(case, torch, count)
    if each is None or case.weights_gib is None:
        return f"{to} of {count} takes {to / count:.0%} of it"
    return f"{each * count / GIB:.2f} GiB for {count} tokens is {each * to / GIB:.2f} GiB for {to}"


def _of_unknown_release(case: Case, torch: TorchOom | None, *, measuring: bool) -> Change | None:
    """V1 takes prompts in pieces; V0 did not where it was not told to, and refuses a step shorter than a prompt."""
    engine = case.run.engine if case.run is not None else None
    if engine == "V1" or case.effective("enable-chunked-prefill") in {True, "True"}:
        return _by_half(case, torch)
    if engine == "V0" and case.number("max-model-len") is None:
        why = (
            f"set {_part(case, torch)} of the present value (the log prints it as `max_seq_len`): without chunked "
            "prefill a step, and the profile run, is as long as the longest prompt"
        )
        return set_flag(case, "max-model-len", None, Direction.LOWER, why)
    if engine is None and case.effective("enable-chunked-prefill") is None:
        return _by_half(case, torch)  # of V1; V0's is offered beside it
    return _shorter_prompts(case, torch, measuring=measuring) or _by_half(case, torch)


def shorter_prompts(case: Case, torch: TorchOom | None, *, measuring: bool = True) -> Change | None:
    """Beside fewer tokens, where nothing tells the engine: V0 sizes the pass by the longest prompt, which is the
    model's own where the launch sets none."""
    if tokens(case) is not None or (case.run is not None and case.run.engine is not None):
        return None
    if case.number("max-model-len") is not None:
        return _shorter_prompts(case, torch, measuring=measuring)
    why = (
        f"set {_part(case, torch)} of the present value (the log prints it as `max_seq_len`): without chunked prefill "
        "the pass is as long as the longest prompt"
    )
    return set_flag(case, "max-model-len", None, Direction.LOWER, why)


def _part(case: Case, torch: TorchOom | None) -> str:
    """How much of a value of which only the direction is known: half, and less where one tensor of it alone is large,
    as a pass holds a few such at once."""
    total = case.total_gib
    room = total * GIB * _ONE_TENSOR if total is not None else _USUAL_TENSOR
    times = torch.asked / room if torch is not None else 1.0
    return next((name for most, name in PARTS if times <= most), "a 32nd")


def _by_half(case: Case, torch: TorchOom | None) -> Change | None:
    """Where neither the launch nor the release is known, only the direction is."""
    why = (
        f"set {_part(case, torch)} of the present value (the log prints it as `max_num_batched_tokens`): buffers of a "
        "step grow with its tokens"
    )
    return set_flag(case, "max-num-batched-tokens", None, Direction.LOWER, why)


def _shorter_prompts(case: Case, torch: TorchOom | None, *, measuring: bool) -> Change | None:
    """Without chunked prefill a step is as long as the longest prompt: half of it, or the part that fits what the pass
    held and what was free."""
    length = case.number("max-model-len")
    if length is None or length <= _SHORTEST:
        return None
    parts = [part for part, _ in PARTS if length // part >= _SHORTEST]
    fit = [part for part in parts if _fits(case, torch, part, measuring=measuring)]
    return set_flag(
        case,
        "max-model-len",
        int(length) // (fit or parts[-1:] or [2])[0],
        Direction.LOWER,
        ("without chunked prefill the profile run is as long as the longest prompt, so max_model_len sets its peak"),
    )


def _fits(case: Case, torch: TorchOom | None, part: int, *, measuring: bool) -> bool:
    """Would such a part of the pass have found room? While it is measured, what torch holds beside the weights is the
    pass's, too, and becomes smaller with it."""
    if torch is None or torch.free is None:
        return True
    weights = case.weights_gib
    held = max(torch.allocated - weights * GIB, 0) if measuring and torch.allocated and weights is not None else 0
    return (held + torch.asked) / part <= held + torch.free


def fewer_sequences(case: Case, torch: TorchOom | None) -> Change | None:
    """Fewer rows of vocabulary-wide buffers: the number whose share of what was asked is what was free."""
    now, source = sequences(case)
    fit = now
    if torch is not None and torch.free is not None and torch.asked > 0:
        # Besides the failed buffer at least one of the same size is alive, so half of what is free may be used.
        fit = int(now * torch.free / torch.asked / 2)
    least = max(s for s in _SEQUENCE_STEPS if s <= max(_FEWEST, min(fit, now // 2)))
    if least >= now:
        return None
    why = f"the buffers are max_num_seqs × vocabulary: {least} of {now} rows take {least / now:.0%} of the memory"
    if source == SMALLEST_DEFAULT:
        why = f"the buffers are max_num_seqs × vocabulary; unless it is set, a release takes {now} rows or more"
    if fit < _FEWEST:
        why += "; alone it may not be enough: next to nothing was free, so the weights fill the card"
    return set_flag(case, "max-num-seqs", least, Direction.LOWER, why)


def eager(case: Case, why: str = "without CUDA graphs no memory is needed for them") -> Change | None:
    """No graphs at all: the last resort, as it slows decoding."""
    if case.effective("enforce-eager") is True:
        return None
    return set_flag(case, "enforce-eager", True, Direction.ADD, f"{why}; decoding of small batches becomes slower")
