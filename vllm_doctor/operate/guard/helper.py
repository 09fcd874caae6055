"""Root's half of the guard, started by systemd for each request on its socket: reads one request from standard input,
judges it by root's own files, answers and ends.

The guard's user can ask for nothing else than a restart of a unit that the policy names, within the policy's budget,
and whether such a unit completes.
"""

import sys

import msgspec

from vllm_doctor.gather import look
from vllm_doctor.operate.guard import policy as policies
from vllm_doctor.operate.guard.restart import Ask, NotPermitted, here
from vllm_doctor.records.reading import Known
from vllm_doctor.redact.text import without_secrets

_MOST = 4096


def answered(said: bytes) -> dict[str, object]:
    """Do what is asked: whether it was done, and why not; for a completion whether it came."""
    try:
        ask = msgspec.json.decode(said, type=Ask)
        policy = policies.load()
        if ask.what == "complete":
            if ask.unit not in policy.units:
                return {"done": False, "why": f"{ask.unit} is not among the policy's units"}
            seen = look.looks((ask.unit,), cards=False, canaries={ask.unit: ask.within_s})
            return {"done": True, "came": seen.value[0].canary if isinstance(seen, Known) and seen.value else None}
        here(ask, policy)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        return {"done": False, "why": f"not a request: {wrong}"}
    except (policies.PolicyProblem, NotPermitted) as why:
        return {"done": False, "why": str(why)}
    return {"done": True}


def main() -> None:
    """One request on standard input, one answer on standard output."""
    sys.stdout.write(without_secrets(msgspec.json.encode(answered(sys.stdin.buffer.read(_MOST))).decode()) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
