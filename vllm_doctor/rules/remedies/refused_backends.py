"""Which setting keeps every attention backend out, where vLLM says of each what it lacks.

vLLM asks each backend in turn and lists the reasons (`validate_configuration`, v1/attention/backend.py): some are of
the model or the card (head size, compute capability, latent or sparse attention, sinks), others of a setting. A backend
that only settings keep out serves as soon as they are gone.
"""

from vllm_doctor.log.match import each
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import set_flag

# A reason, and what takes it away: the option, and the value that every backend takes (None: without the option).
_SETTINGS: dict[str, tuple[str, str | None]] = {
    "kv_cache_dtype not supported": ("kv-cache-dtype", "auto"),
    "block_size not supported": ("block-size", None),
    "dtype not supported": ("dtype", "bfloat16"),
    "KV connector not supported": ("kv-transfer-config", None),
    "DCP not supported": ("decode-context-parallel-size", "1"),
    "PCP not supported": ("prefill-context-parallel-size", "1"),
}


def without_settings(case: Case, told: str) -> tuple[Change, ...]:
    """What to take back so that a backend serves; empty where the model or the card keeps each of them out."""
    reasons = [
        (said["backend"], [r.strip() for r in said["reasons"].split(", ") if r.strip()])
        for said in each("refused-backend", told)
    ]
    fit = [(name, why) for name, why in reasons if why and all(one in _SETTINGS for one in why)]
    if not fit:
        return ()
    name, why = min(fit, key=lambda one: len(one[1]))
    changes = (_without(case, reason, name) for reason in why)
    return tuple(change for change in changes if change is not None)


def _without(case: Case, reason: str, backend: str) -> Change | None:
    option, to = _SETTINGS[reason]
    why = f"this keeps {backend} out, which can serve the model on this card"
    return set_flag(case, option, to, Direction.REMOVE if to is None else Direction.CHANGE, why)
