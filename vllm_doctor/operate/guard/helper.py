"""Root's half of the guard, started by systemd for each request on its socket: reads one request from standard input,
judges it by root's own files, answers and ends.

The guard's user can ask for nothing else than a restart of a unit that the policy names, within the policy's budget.
"""

import sys

import msgspec

from vllm_doctor.operate.guard import policy as policies
from vllm_doctor.operate.guard.restart import Ask, NotPermitted, here

_MOST = 4096


def answered(said: bytes) -> tuple[bool, str]:
    """Do what is asked: whether it was done, and why not."""
    try:
        ask = msgspec.json.decode(said, type=Ask)
        here(ask, policies.load())
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        return False, f"not a request: {wrong}"
    except (policies.PolicyProblem, NotPermitted) as why:
        return False, str(why)
    return True, ""


def main() -> None:
    """One request on standard input, one answer on standard output."""
    done, why = answered(sys.stdin.buffer.read(_MOST))
    sys.stdout.buffer.write(msgspec.json.encode({"done": done, "why": why}) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
