"""How many images and videos a prompt may have, as each release takes it."""

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import merged

# Pairs (`image=1,video=0`) before this sample, JSON in it and after it (engine/arg_utils.py).
_JSON_FROM = Version((0, 8, 5))


def limit(case: Case, **most: int) -> str:
    """The value of `--limit-mm-per-prompt`; what the launch says of other kinds stays."""
    if case.version is not None and case.version < _JSON_FROM:
        return ",".join(f"{kind}={count}" for kind, count in most.items())
    return merged(case, "limit-mm-per-prompt", most)
