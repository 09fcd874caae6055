"""How many images and videos a prompt may have, as each release takes it."""

import json

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import json_with

# Pairs (`image=1,video=0`) before this sample, JSON in it and after it (engine/arg_utils.py).
_JSON_FROM = Version((0, 8, 5))


def limit(case: Case, **most: int) -> str:
    """The value of `--limit-mm-per-prompt`; what the launch says of other kinds stays."""
    if case.version is not None and case.version < _JSON_FROM:
        return ",".join(f"{kind}={count}" for kind, count in most.items())
    return json_with(case, "limit-mm-per-prompt", most)


def per_prompt(case: Case) -> dict[str, int]:
    """How many items of each kind the launch allows; empty where it does not say so."""
    given = case.effective("limit-mm-per-prompt")
    if not isinstance(given, str):
        return {}
    try:
        told = json.loads(given.replace("'", '"'))
    except ValueError:
        told = dict(pair.split("=", 1) for pair in given.split(",") if "=" in pair)
    counts = (
        ((str(k), v.get("count") if isinstance(v, dict) else v) for k, v in told.items())
        if isinstance(told, dict)
        else ()
    )
    return {kind: int(str(count)) for kind, count in counts if str(count).isdecimal() and len(str(count)) < 6}
