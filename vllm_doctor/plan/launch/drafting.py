"""What a release refuses of drafting, and of what does not go with it (config/speculative.py, config/vllm.py)."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.traits import lacks
from vllm_doctor.knowledge.versions import Engine, Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture

# Methods that schedule before the last step has ended (EagleModelTypes, NgramGPUTypes and a drafter of its own).
_AHEAD = frozenset({"eagle", "eagle3", "extract_hidden_states", "mtp", "dflash", "ngram_gpu", "draft_model", "dspark"})
# Gemma 4's drafter, a model of its own.
_ASSISTANT, _WHOLE_EXPERTS = "gemma4_assistant", "enable-expert-parallel"
# Methods whose drafter writes keys and values beyond the step (num_lookahead_tokens).
_BEYOND = frozenset({"eagle", "eagle3", "mtp", "draft_model"})


def refused(  # noqa: PLR0917
    flags: Flags,
    a: Architecture,
    method: str | None,
    drafts: int,
    step: int,
    version: Version,
    does: Behaviour,
    *,
    engine: Engine,
    stages: int,
    ranks: int,
    v2: bool,
    seqs: int,
    drafter: Architecture | None = None,
) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts; `drafter` is what its config.json describes, if known."""
    if method is None:
        return
    if engine == "V0" and stages > 1 and does.drafts_in_one_stage:
        yield Refusal("--pipeline-parallel-size", str(stages), "1: the V0 engine drafts in one stage alone")
    if engine == "V0" and drafter is not None and drafter.vocab != a.vocab:  # read in 0.4.3, 0.6.4, 0.8.5 and 0.9.2
        yield Refusal(
            "--speculative-config",
            f"a drafter with {drafter.vocab} words",
            f"one with {a.vocab}, as the model has: the V0 engine asserts that both have one vocabulary",
        )
    if ranks > 1 and does.drafts_on_one_card:
        yield Refusal("--tensor-parallel-size", str(ranks), f"1: vLLM {version} drafts on one card alone")
    yield from _ranks(flags, method, version, does, engine, ranks, drafter)
    own = flags.object("speculative-config").get("model") is None
    drafts_as = _own_class(method, a, version)
    without_stages = does.drafter_has_stages and lacks(drafts_as, "supports_pp", version)
    if engine == "V1" and stages > 1 and own and without_stages:
        yield Refusal("--pipeline-parallel-size", str(stages), f"1: vLLM {version} makes no stages of {drafts_as}")
    if engine == "V1" and drafter is not None and does.names_drafters_by_model:
        yield from _unknown_class(method, drafter, version)
    bare = method == "mtp" and own and not a.mtp_layers
    if bare and does.names_unknown_methods and _drafts_nothing(flags, a, version):
        yield Refusal(
            "--speculative-config", "method mtp", f"another method: {a.model_type} has no layers that predict more"
        )
    if v2 and drafter is not None and drafter.whole_type == _ASSISTANT and flags.on(_WHOLE_EXPERTS, default=False):
        # The second runner checks it as the model itself (v1/worker/gpu/spec_decode/gemma4, read in 0.23.0 to 0.33.0).
        needed = f"no --{_WHOLE_EXPERTS} beside this drafter: it has no experts, and {version} asks it for them"
        yield Refusal(f"--{_WHOLE_EXPERTS}", "set", needed)
    if method == "draft_model" and does.refuses_draft_models:
        yield Refusal("--speculative-config", "a separate model", "another method, such as ngram or eagle3; or 0.15")
    ahead = flags.on("async-scheduling", default=False)
    goes = method in _AHEAD and (method != "draft_model" or does.draft_models_ahead)
    if ahead and not goes and does.drafts_ahead_by_some and not (v2 and does.v2_drafts_ahead):
        yield Refusal("--async-scheduling", "set", f"no --async-scheduling: {method} drafts need the step's end")
    if method in _BEYOND and does.reserves_drafts and step <= drafts:
        yield Refusal("--max-num-batched-tokens", str(step), f"more than {drafts}, the drafted tokens of one request")
    least = seqs * (drafts + 1)
    if does.step_holds_drafts_of_adapters and flags.on("enable-lora", default=False) and step < least:
        needed = f"at least {least}: --max-num-seqs {seqs}, each with {drafts} drafted tokens, with adapters"
        yield Refusal("--max-num-batched-tokens", str(step), needed)


def _own_class(method: str, a: Architecture, version: Version) -> str:
    """The class that drafts with layers of the model's own checkpoint; empty where there is none or it is not told."""
    if method == "dspark":
        return "DSparkDraftModel" if a.model_type == "deepseek_v4" else ""
    if method != "mtp":
        return ""
    turned = (history("mtp", "mtp").text(name, version) or "" for name in (a.name, a.whole_type))
    return next((words[1] for told in turned if len(words := told.split()) > 1), "")


def _drafts_nothing(flags: Flags, a: Architecture, version: Version) -> bool:
    """Is it known that the release turns neither the class nor the model type into one that drafts for itself
    (config/speculative.py hf_config_override)? The Transformers backend has layers of its own."""
    own = flags.text("model-impl") in {None, "auto", "vllm"} and history("models", "architectures").exists(
        a.name, version
    )
    table = history("mtp", "mtp")
    types = table.around("*", version)
    names = (a.name, a.whole_type)
    if not own or types is None or any(table.exists(name, version) is not False for name in names):
        return False
    return not any(a.whole_type in told.split() for told in types)


def _unknown_class(method: str, drafter: Architecture, version: Version) -> Iterator[Refusal]:
    """A drafter of EAGLE or DFlash whose class, which is named after its model's (EAGLEConfig), the release has not
    got."""
    name, mark = drafter.name, {"eagle": "Eagle", "eagle3": "Eagle3", "dflash": "DFlash"}.get(method)
    own = mark is not None and not drafter.drafts_as and (name.endswith("ForCausalLM") or name.startswith(mark))
    if mark is None or not own or drafter.model_type in history("mtp", "mtp"):
        return  # a name of its own, or speculators' format, which is translated, or a type that is renamed before
    drafts_as = name if name.startswith(mark) else mark + name
    table = history("models", "architectures")
    if table.exists(drafts_as, version) is False:
        when = f", which {table.span(drafts_as)[0]} is the first to have" if drafts_as in table else ""
        yield Refusal("--speculative-config", f"a drafter of class {drafts_as}", f"one that {version} has{when}")


# Methods without a drafter's weights.
_WITHOUT_WEIGHTS = frozenset({"ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states"})


def _ranks(  # noqa: PLR0917
    flags: Flags,
    method: str,
    version: Version,
    does: Behaviour,
    engine: Engine,
    ranks: int,
    drafter: Architecture | None,
) -> Iterator[Refusal]:
    """The ranks that a drafter is split over: one, or those of the model (config/speculative.py
    _verify_and_get_draft_tp, alike from 0.6.4 to 0.33.0); of a model of its own, V1 takes the model's alone
    (v1/spec_decode/draft_model.py _raise_if_draft_tp_mismatch, read in 0.15.1, 0.20.2 and 0.33.0)."""
    option, key = "speculative-draft-tensor-parallel-size", "draft_tensor_parallel_size"
    asked = flags.int(option, 0, 0, 4096) or flags.object("speculative-config").get(key)
    split = asked if isinstance(asked, int) and asked else 1 if does.drafts_on_one_rank else ranks
    if drafter is not None and drafter.heads % split:
        # As of any model, before a weight is loaded (verify_with_parallel_config, read in 0.4.1 to 0.33.0).
        alone = engine == "V0" or method != "draft_model"
        instead = f"; or {key} 1 in it" if alone and split == ranks else ""
        needed = f"a drafter whose heads {split} ranks divide{instead}"
        yield Refusal("--speculative-config", f"a drafter with {drafter.heads} attention heads", needed)
    if not isinstance(asked, int) or not asked or method in _WITHOUT_WEIGHTS:
        return
    given = option in flags.values
    flag, found = (f"--{option}", str(asked)) if given else ("--speculative-config", f"{key} {asked}")
    if does.drafts_on_one_rank and asked != 1:
        yield Refusal(flag, found, f"1: a drafter of {version} runs on one rank")
    elif not does.drafts_on_one_rank and asked not in {1, ranks}:
        yield Refusal(flag, found, f"1 or --tensor-parallel-size, {ranks}")
    elif engine == "V1" and method == "draft_model" and not does.refuses_draft_models and asked != ranks:
        yield Refusal(flag, found, f"--tensor-parallel-size, {ranks}")
