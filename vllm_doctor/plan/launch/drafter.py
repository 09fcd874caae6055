"""Which way of drafting a launch asks for, and how many tokens."""

from __future__ import annotations

from vllm_doctor.plan.launch.flags import Flags, SettingError
from vllm_doctor.plan.model.architecture import Architecture

# What a drafter's name says of it, in vLLM's order.
_DRAFTERS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))

# Methods whose drafter may be a model of its own.
SEPARATE = frozenset({"draft_model", "dflash", "dspark", "eagle", "eagle3", "mtp", "medusa", "mlp_speculator"})


def drafting_asked(flags: Flags, arch: Architecture, drafter: Architecture | None = None) -> tuple[str | None, int]:
    """The method, None without drafting, and how many tokens it drafts; the config of a drafter tells it where neither
    launch nor name does. Raises SettingError."""
    method, tokens = _asked(flags, arch)
    if method == "draft_model" and drafter is not None and drafter.drafts_as:
        method = drafter.drafts_as
    return method, tokens


def _asked(flags: Flags, arch: Architecture) -> tuple[str | None, int]:
    config = flags.object("speculative-config")
    if config:
        method = config.get("method")
        tokens = config.get("num_speculative_tokens", 1)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 < tokens <= 1000:
            raise SettingError(
                f"--speculative-config: num_speculative_tokens is {tokens!r}; needed: a whole number from 1 to 1000"
            )
        drafter = config.get("model")
        return _drafts(method if isinstance(method, str) else "", drafter, arch), tokens
    drafter = flags.text("speculative-model")
    if drafter:
        method = "ngram" if drafter == "[ngram]" else ""  # as 0.5 to 0.8 spelled it
        return _drafts(method, drafter, arch), flags.int("num-speculative-tokens", 1, 1, 1000)
    # 0.7 and 0.8 take a number alone for the model's own layers (config.py SpeculativeConfig.maybe_create_spec_config).
    tokens = flags.int("num-speculative-tokens", 0, 0, 1000)
    return ("mtp", tokens) if tokens and arch.mtp_layers else (None, 0)


def _drafts(method: str, drafter: object, arch: Architecture) -> str:
    """The method as vLLM itself takes it (config/speculative.py): each model's own name of MTP is one, and where none
    is given the drafter's name tells it."""
    if method == "mtp" or method.endswith("_mtp"):
        return "mtp"
    if method:
        return method
    if not isinstance(drafter, str):
        return "mtp" if arch.mtp_layers else "draft_model"
    name = drafter.lower()
    return next((said for mark, said in _DRAFTERS if mark in name), "draft_model")
