"""What a release asks of a drafting method by itself: the models that it drafts for, and its numbers
(config/speculative.py, and config.py before 0.11)."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture

_LOOKUP = "ngram-prompt-lookup"


def _targets(version: Version) -> tuple[str, ...]:
    """Parts of the model types that hand a drafter their hidden states; empty where the release asks the class alone.
    Between two releases that were read, those of both."""
    told = history("drafted", "drafted").around("eagle3", version) or ()
    return tuple(name for names in told for name in names.split())


def refusals(flags: Flags, a: Architecture, method: str | None, version: Version, does: Behaviour) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts."""
    hidden = {"eagle3"} | ({"extract_hidden_states"} if does.names_hidden_targets else set())
    names = _targets(version) if method in hidden else ()
    if names and a.known and not any(name in a.model_type for name in names):
        needed = f"another method: vLLM {version} does not draft so for {a.model_type}"
        yield Refusal("--speculative-config", f"method {method}", needed)
    if method in {"ngram", "[ngram]"}:
        yield from _guessed(flags, does)


def _guessed(flags: Flags, does: Behaviour) -> Iterator[Refusal]:
    """Drafts that are looked up in the prompt: how many, and by how many of its tokens."""
    config = flags.object("speculative-config")
    told = f"--{_LOOKUP}-max", f"--{_LOOKUP}-min"
    if not config:
        most, least = flags.int(f"{_LOOKUP}-max", 0, -(10**6), 10**6), flags.int(f"{_LOOKUP}-min", 1, -(10**6), 10**6)
        if "num-speculative-tokens" not in flags.values:
            yield Refusal("--num-speculative-tokens", "absent", "how many tokens are drafted")
        if most < 1 and does.drafts_ask_lookup:
            yield Refusal(told[0], str(most) if f"{_LOOKUP}-max" in flags.values else "absent", "at least 1")
        elif most >= 1 and not 1 <= least <= most:
            yield Refusal(told[1], str(least), f"from 1 to {told[0]}, {most}")
        return
    if "num_speculative_tokens" not in config and "spec-tokens" not in flags.values:
        yield Refusal("--speculative-config", "no num_speculative_tokens", "how many tokens are drafted")
    longest, shortest = config.get("prompt_lookup_max"), config.get("prompt_lookup_min")
    given = [n for n in (longest, shortest) if isinstance(n, int) and not isinstance(n, bool)]
    if any(n < 1 for n in given):
        yield Refusal("--speculative-config", f"prompt_lookup of {min(given)}", "at least 1")
    elif isinstance(longest, int) and isinstance(shortest, int) and shortest > longest:
        yield Refusal("--speculative-config", f"prompt_lookup_min {shortest}", f"at most prompt_lookup_max, {longest}")
