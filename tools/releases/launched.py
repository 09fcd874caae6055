"""The releases in which a way round of a known issue ends the start: its option or variable is taken by itself
(accepted.py), and a launch with it is refused for each kind of model, as the plan knows what a release refuses.

A way round that is refused for some kinds alone is told apart: whoever reads the entry knows which model it is about.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from releases.accepted import of_vllm, releases_of, why_refused
from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.known_issues import Issue
from vllm_doctor.knowledge.version import Version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.support import judge
from vllm_doctor.records.verdict import Direction

# A card with every format of an 8-bit cache and every kernel but the newest.
_CARD = "H100"
_GPUS = 8
# No kind is longer, or has more words, than what old releases took of an adapter: each is to start everywhere.
_DENSE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
_EXPERTS = {
    **_DENSE,
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
_LATENT = {
    **_EXPERTS,
    "model_type": "deepseek_v2",
    "architectures": ["DeepseekV2ForCausalLM"],
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_WINDOWS = {
    **_DENSE,
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "sliding_window": 4096,
    "head_dim": 256,
    "num_attention_heads": 16,
}
_KINDS: Mapping[str, dict[str, object]] = {
    "dense": _DENSE,
    "experts": _EXPERTS,
    "latent attention": _LATENT,
    "sliding windows": _WINDOWS,
}

Broken = frozenset[tuple[str, str]]


def ends_the_start(one: Issue) -> list[str]:
    """The ways round with which no kind of model starts in a release of the span, where no other one stands in."""
    return [told for told, kinds in _told(one) if kinds == tuple(_KINDS)]


def for_some_models(one: Issue) -> list[str]:
    """The ways round with which some kinds of models do not start."""
    return [f"{told}; so for {' and '.join(kinds)}" for told, kinds in _told(one) if kinds != tuple(_KINDS)]


def _told(one: Issue) -> Iterator[tuple[str, tuple[str, ...]]]:
    ours = [answer for answer in one.answers if _has_a_value(answer)]
    taken = {id(answer): [at for at in releases_of(one, answer) if why_refused(answer, at) is None] for answer in ours}
    for answer in ours:
        beside = [other for other in ours if other is not answer and other.options[0] != answer.options[0]]
        seen: set[tuple[str, ...]] = set()
        begun = one.since is not None
        for at in taken[id(answer)]:
            broken = {kind: _new(kind, at, answer, beside) for kind in _KINDS}
            kinds = tuple(kind for kind, refusals in broken.items() if refusals)
            # Without a first release an entry is met where the way round first does something.
            begun = begun or kinds != tuple(_KINDS)
            whole = kinds == tuple(_KINDS)
            others = any(not _refusals("dense", at, other) for other in beside if at in taken[id(other)])
            if begun and kinds and kinds not in seen and not (whole and others):
                seen.add(kinds)
                flag, needed = min(broken[kinds[0]])
                yield f"{at}: {answer.options[0]} {answer.to}: {flag}: {needed}", kinds


def _has_a_value(answer: Answer) -> bool:
    return of_vllm(answer) and answer.to is not None and "{" not in answer.to and answer.direction != Direction.REMOVE


def _new(kind: str, at: Version, answer: Answer, beside: list[Answer]) -> Broken:
    """What a launch with an answer is refused for; nothing where it is taken with another answer of the entry."""
    alone = _refusals(kind, at, answer)
    return frozenset() if alone and any(not _refusals(kind, at, answer, other) for other in beside) else alone


def _refusals(kind: str, at: Version, *answers: Answer) -> Broken:
    env = tuple(f"{answer.options[0]}={answer.to}" for answer in answers if answer.kind == "env")
    flags = tuple(word for answer in answers if answer.kind == "flag" for word in _words(answer, at))
    return _launched(kind, at, env, flags) - _launched(kind, at)


def _words(answer: Answer, at: Version) -> tuple[str, ...]:
    """The option as a launch has it, by the first of its names that the release has."""
    known = (name for name in answer.options if (fact := versions.flag(name, at)) is not None and fact.exists)
    name, value = next(known, answer.options[0]), answer.to or ""
    if value.lower() in {"true", "false"}:
        return (f"--{name}",) if value.lower() == "true" else (f"--no-{name}",)
    return (f"--{name}", value)


@cache
def _model(kind: str) -> Architecture:
    return describe(Section(_KINDS[kind]))


@cache
def _launched(kind: str, at: Version, env: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> Broken:
    card, model = find(_CARD), _model(kind)
    if card is None:
        raise LookupError(_CARD)
    launch = parse_launch([*env, "vllm", "serve", "m", *flags], at)
    settings = resolve(launch, at, model, card, card.total_gib, _GPUS)
    both = (*settings.refusals, *judge(model, settings, card).refusals)
    return frozenset((refusal.flag, refusal.needed) for refusal in both)
