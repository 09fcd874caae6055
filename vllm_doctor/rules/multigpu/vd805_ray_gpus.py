"""VD805: Ray has not got the GPUs that the launch asks for, and the start waits for them."""

from vllm_doctor.log.match import Hit
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.last_wait import final_run
from vllm_doctor.rules.gates.named_fault import named, shown
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, set_flag, thing

_IDS = ("ray-placement", "ray-node-empty", "ray-node-outside")


def judge(case: Case) -> Outcome:
    """Does it wait for GPUs, or did it give up waiting?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    fault = named(case, *_IDS)
    over = not isinstance(fault, NotHere | Unseen)
    waits = final_run(run, run.all("ray-wait")) if case.root is None else ()
    if not over and not waits:
        return NotHere("nothing waits for a placement group")
    gpus = case.gpus
    if (asked := next(reversed(run.all("ray-no-such-node")), None)) is not None:
        return _no_such_node(case, asked)
    return finding(
        RULE,
        title=RULE.title if over else f"{RULE.title}: waited {waits[-1].fields['seconds']} s and longer",
        confidence=Confidence.CONFIRMED if over else Confidence.LIKELY,
        evidence=(
            shown(case, fault, *_IDS)
            if not isinstance(fault, NotHere | Unseen)
            else (case.line(waits[0].index), case.line(waits[-1].index))
        ),
        changes=(
            set_flag(
                case,
                "tensor-parallel-size",
                len(gpus) if gpus else None,
                Direction.LOWER,
                "at most as many ranks as the cluster has GPUs",
            ),
            thing(ChangeKind.OS, "ray-nodes", Direction.ADD, "let the other nodes join first", command="ray status"),
        ),
        refute="`ray status` shows as many free GPUs as ranks",
    )


def _no_such_node(case: Case, asked: Hit) -> Finding:
    """vLLM puts its first rank on the node of its own address, and Ray has no node of that name with a GPU: Ray knows
    each by the address that `ray start` took, never by a host's name."""
    node = asked.fields["node"]
    why = "the address by which Ray knows this node (`ray list nodes`), on each node that node's own"
    return finding(
        RULE,
        title="Ray knows no node of the address that vLLM gives as its own",
        detail=f"vLLM asks for node:{node}",
        confidence=Confidence.LIKELY,
        evidence=(case.line(asked.index),),
        changes=(
            environment(
                "VLLM_HOST_IP",
                Direction.CHANGE if case.env("VLLM_HOST_IP") is not None else Direction.SET,
                why,
                command="ray list nodes; ip -br addr",
            ),
            thing(ChangeKind.OS, "ray-nodes", Direction.ADD, "let the other nodes join first", command="ray status"),
        ),
        refute=f"`ray list nodes` shows {node} alive with a free GPU",
    )


RULE = rule("VD805", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
