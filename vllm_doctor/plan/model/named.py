"""Which modules the lists of a checkpoint name, as each quantizer of vLLM reads their entries.

Read in 0.11 to 0.33: compressed-tensors takes whole names and `re:` expressions (compressed_tensors/utils.py), fp8
whole names (quant_utils.py is_layer_skipped), AWQ any part of the text (match_mode "substring"), modelopt both and
shell wildcards (modelopt.py is_layer_excluded), GPTQ's `dynamic` expressions from the start (gptq_utils.py
get_dynamic_override), auto-round whole names, their ends and expressions anywhere (inc/config_parser.py). An entry that
names a parent names its whole tree: makers of checkpoints mean it so, and one that vLLM reads otherwise does not load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache

from vllm_doctor.plan.model.config_json import ConfigError
from vllm_doctor.records import excerpt


@lru_cache(maxsize=4096)
def expression(pattern: str) -> re.Pattern[str]:
    """A regular expression of a checkpoint. Raises ConfigError for one that is none, or that may take forever."""
    if len(pattern) > 400 or re.search(r"[+*}]\s*\)\s*[+*{]", pattern):
        raise ConfigError(
            f"quantization_config: pattern {excerpt.value(pattern)} is too long or nests repetitions; "
            "needed: a plain pattern"
        )
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ConfigError(
            f"quantization_config: pattern {excerpt.value(pattern)} is not a regular expression ({problem})"
        ) from None


@lru_cache(maxsize=8192)
def spellings(name: str) -> tuple[str, ...]:
    """A module's name in the checkpoint and as vLLM has it: the text model of a multimodal one stands under
    `language_model.model`, towers under no `model` (hf_to_vllm_mapper of each model). Gemma 4's checkpoints have
    experts in the layer itself, vLLM in its `moe` (gemma4.py)."""
    if ".moe.experts." in name:
        return _spelled(name) + _spelled(name.replace(".moe.experts.", ".experts."))
    return _spelled(name)


def _spelled(name: str) -> tuple[str, ...]:
    text = name.removeprefix("model.language_model.")
    if text != name:
        kept = (name, f"language_model.model.{text}", f"model.{text}", f"language_model.{text}")
        return (*kept, f"thinker.model.{text}")  # Qwen's Omni models (qwen2_5_omni_thinker.py)
    bare = name.removeprefix("model.")
    # Nemotron-H's checkpoints say `backbone` where vLLM says `model` (nemotron_h.py hf_to_vllm_mapper).
    return (name, bare, f"backbone.{bare}") if bare != name else (name,)


_FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
    **dict.fromkeys(("in_proj_qkv", "in_proj_z"), "in_proj_qkvz"),
    **dict.fromkeys(("in_proj_a", "in_proj_b"), "in_proj_ba"),
}


def fused(name: str) -> str:
    """The name of vLLM's layer that holds this matrix: experts are one layer, and what is computed at once is one."""
    head, experts, _ = name.partition(".experts.")
    if experts:
        return f"{head}.experts"
    parent, _, last = name.rpartition(".")
    return f"{parent}.{_FUSED[last]}" if last in _FUSED else name


class ModuleNames:
    """A set of modules: whole names with what is below them, `re:` expressions, and what the quantizer reads besides:
    `parts` of the text, shell `wildcards`, single `components` of a path."""

    def __init__(
        self, entries: Iterable[str], *, parts: bool = False, wildcards: bool = False, components: bool = False
    ) -> None:
        listed = list(entries)
        plain = [e for e in listed if not e.startswith("re:")]
        shell = [e for e in plain if wildcards and "*" in e]
        self._whole = frozenset(e for e in plain if e not in shell)
        self._components = self._whole if components else frozenset[str]()
        self._parts = tuple(e for e in plain if e and "*" not in e) if parts else ()
        self._expressions = [expression(e[3:]) for e in listed if e.startswith("re:")]
        # "tree*" stands for the tree and for what is below it (modelopt.py apply_vllm_mapper).
        ends = [w for e in shell for w in ((e[:-1], e[:-1] + ".*") if e.endswith("*") and e[-2:-1] != "." else (e,))]
        self._parts += tuple(w for w in ends if "*" not in w and w)
        self._expressions += [re.compile(translate(w)) for w in ends if "*" in w]
        self._known: dict[str, bool] = {}
        self._empty = not (self._whole or self._parts or self._expressions)

    def __contains__(self, name: str) -> bool:
        if self._empty:
            return False
        found = self._known.get(name)
        if found is None:
            # A checkpoint that keeps such a layer as one names it so (Qwen3-Next's in_proj_ba, Phi-3's qkv_proj).
            asked = dict.fromkeys((name, *([] if ".experts." in name else [fused(name)])))
            found = self._known[name] = any(self._names(s) for one in asked for s in spellings(one))
        return found

    def _names(self, name: str) -> bool:
        tree = name
        while tree:  # the module itself, and each that it is below
            if tree in self._whole:
                return True
            tree = tree.rpartition(".")[0]
        if self._components and not self._components.isdisjoint(name.split(".")):
            return True
        return any(p in name for p in self._parts) or any(e.match(name) for e in self._expressions)


class Dynamic:
    """GPTQ's exceptions: expressions that match from the start of vLLM's own, fused names; the first one decides.
    `-:` leaves a module unquantized, `+:` or nothing gives it other settings."""

    def __init__(self, rules: Mapping[str, object]) -> None:
        self._rules = [
            (key.startswith("-:"), expression(key.removeprefix("-:").removeprefix("+:")), value)
            for key, value in rules.items()
        ]

    def of(self, name: str) -> Mapping[str, object] | bool | None:
        """False where it stays unquantized, its own settings where it has some, None where no rule names it."""
        for less, pattern, value in self._rules:
            if any(pattern.match(s) for s in spellings(fused(name))):
                return False if less else value if isinstance(value, Mapping) else None
        return None


class Exceptions:
    """auto-round's settings of single modules: by the whole name, by its end, by an expression found in it."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = list(keys)
        self._expressions = [(k, expression(k)) for k in self._keys if set(k) & set("*+?^$()[]{}|\\")]
        self._whole = frozenset(self._keys)

    def of(self, name: str) -> str | None:
        """The key whose settings a module has, or None."""
        for spelled in spellings(name):
            if spelled in self._whole:
                return spelled
            end = spelled
            while "." in end:
                end = end.partition(".")[2]
                if end in self._whole:
                    return end
        tried = spellings(name)
        return next((k for k, e in self._expressions if any(e.search(s) for s in tried)), None)
