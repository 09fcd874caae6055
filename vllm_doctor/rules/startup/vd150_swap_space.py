"""VD150: the CPU swap pool that was asked for does not fit the host's memory."""

from vllm_doctor.knowledge.version import Version
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, gib, set_flag, thing

# vLLM refuses above this share of the host's memory and warns above 0.4 (config.py).
_WARNED = 0.4
# The last release with the check, and with the option.
_LAST = Version((0, 17, 1))


def judge(case: Case) -> Outcome:
    """Was the start refused because of the swap space?"""
    run, root = case.run, case.root
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if root is None or root.fields("swap-too-large").get("refused") != "Too large":
        return NotHere("the check of the swap space did not fail")
    fields = root.fields("swap-too-large")
    swap, ram = float(fields["swap"]), float(fields["ram"])
    parts = case.count("tensor-parallel-size") or (1 if case.launched else None)
    to = int(ram * _WARNED / parts) if parts is not None else 0
    return finding(
        RULE,
        title=f"{swap:.2f} GiB of swap space do not fit {ram:.2f} GiB of host memory",
        evidence=(case.line(root.hits[0].index),),
        arithmetic=(
            gib("swap space asked for", swap, f"--swap-space × {parts or 'all'} GPUs", "the error line"),
            gib("host memory", ram, "as vLLM sees it", "the error line"),
            gib("allowed without a warning", ram * _WARNED, f"{_WARNED:g} × {ram:.2f}", "config.py"),
        ),
        changes=(
            set_flag(
                case,
                "swap-space",
                to,
                Direction.LOWER,
                f"{_WARNED:g} × {ram:.2f} / {parts}; the V1 engine never swaps, so 0 is right for it"
                if parts is not None
                else "the V1 engine never swaps, and V0 then recomputes the requests that it would have swapped out",
                until=_LAST,
            ),
            thing(
                ChangeKind.HARDWARE,
                "host-ram",
                Direction.RAISE,
                "give the host (or the container) more memory instead",
            ),
        ),
        refute="the same start fails with --swap-space 0 as well",
    )


RULE = rule("VD150", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
