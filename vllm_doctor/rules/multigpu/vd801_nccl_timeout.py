"""VD801: a collective operation did not end: one rank did not take part."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.rank_wait import at_loopback, known, ways_out
from vllm_doctor.rules.say import environment, finding, set_flag, thing

# Half an hour: compiling takes minutes, and what has not ended then does not.
_LONG = 1800
_IDS = (
    "nccl-watchdog",
    "nccl-heartbeat",
    "rendezvous",
    "store-wait",
    "call-timeout",
    "gloo-silent",
)


def judge(case: Case) -> Outcome:
    """Did the watchdog fire?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere) and case.root is not None and _queue_stayed_empty(case.root):
        return _no_answer(case, case.root)
    if isinstance(fault, NotHere | Unseen):
        return fault
    if "nccl-heartbeat" in fault.ids and "nccl-watchdog" not in fault.ids:
        return _hung(case, fault)
    if "gloo-silent" in fault.ids:
        return _silent(case, fault)
    if not fault.ids & {"nccl-watchdog", "call-timeout"}:
        return _never_met(case, fault)
    if "nccl-watchdog" not in fault.ids:
        return _no_answer(case, fault)
    if (bar := _still_loads(case, fault)) is not None:
        return _loads(case, fault, bar)
    fields = fault.fields("nccl-watchdog")
    op, limit = fields.get("op"), fields.get("limit")
    return finding(
        RULE,
        title=f"{op} did not end within {int(limit) // 1000} s" if op and limit else RULE.title,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(_longer(case, fault), *ways_out(case)),
        refute="another rank failed first: its traceback is above, or in that rank's log",
    )


def _still_loads(case: Case, fault: Fault) -> Hit | None:
    """The bar of the weights' files where it was the start's last step before the watchdog fired: the ranks that are
    through wait in a collective for those that still read."""
    run = case.run
    before = [] if run is None else [hit for hit in run.all("weights-shards") if hit.index < fault.index]
    if run is None or not before or says(run.lines[before[-1].index].text, "bar-complete"):
        return None
    between = [stage for index, stage in run.miles if before[-1].index < index < fault.index]
    return before[-1] if set(between) <= {StartupPhase.WEIGHTS} else None


def _loads(case: Case, fault: Fault, bar: Hit) -> Finding:
    """Some ranks had read their part, and waited for the others longer than a collective may take."""
    limit = int(fault.fields("nccl-watchdog").get("limit") or 600_000) // 1000
    why = f"a rank that has its weights waits for the others in a collective, which may take {limit} s"
    return finding(
        RULE,
        title=f"The ranks read their weights more than {limit} s apart",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=(case.line(bar.index), *shown(case, fault, *_IDS)),
        changes=(
            *known(case, bar),
            set_flag(case, "distributed-timeout-seconds", _LONG * 2, Direction.RAISE, why),
        ),
        refute="another rank failed first: its traceback is above, or in that rank's log",
    )


def _hung(case: Case, fault: Fault) -> Finding:
    """The thread that watches the collectives hangs itself, in a call of NCCL or CUDA: no limit is too short."""
    seconds = fault.fields("nccl-heartbeat")["seconds"]
    return finding(
        RULE,
        title=f"A call of NCCL or CUDA hangs: its watchdog made no step for {seconds} s",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=ways_out(case),
        refute="another rank failed first: its traceback is above, or in that rank's log",
    )


def _silent(case: Case, fault: Fault) -> Finding:
    """Gloo's connection stands, and the other rank says nothing: a longer limit would only make the wait longer."""
    seconds = int(fault.fields("gloo-silent")["limit"]) // 1000
    why = (
        "the connection to the other rank stood, and nothing came over it: that rank stands still, ended, or had "
        "nothing to do (as V0's workers while no request comes); its own log says which"
    )
    return finding(
        RULE,
        title=f"A rank waited {seconds} s for another, which sent nothing",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "missing-rank",
                Direction.REPAIR,
                why,
                command="grep -nE 'ERROR|Error' WORKER-LOG | head; nvidia-smi   # on each host: is it alive and busy?",
            ),
            *ways_out(case),
        ),
        refute="another rank failed first: its traceback is above, or in that rank's log",
    )


def _queue_stayed_empty(fault: Fault) -> bool:
    """The wait for a worker's answer ends without words; "RPC call to … timed out" stands below it, in what was cut."""
    root = fault.crash.root if fault.crash is not None and fault.crash.root.frames else None
    return (
        root is not None
        and root.kind == "TimeoutError"
        and not root.message.strip()
        and says(root.frames[-1].file, "call-of-message-queue")
    )


def _no_answer(case: Case, fault: Fault) -> Finding:
    """The executor alone gave up: the worker may wait for another rank, still compile, or hang in a kernel, and nothing
    says which."""
    return finding(
        RULE,
        title="A worker did not answer the engine in time",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(*ways_out(case), _longer(case, fault))
        if _has_computed(case, fault)
        else (_longer(case, fault), *ways_out(case)),
        refute="py-spy dump of the workers, during the hang, shows no worker that waits for another rank or compiles",
    )


def _has_computed(case: Case, fault: Fault) -> bool:
    """Did the engine make tokens before, and nothing say that it compiles still? Then a step that does not end waits
    or hangs, and a longer limit only makes the wait longer."""
    run = case.run
    if run is None or any(hit.index < fault.index for hit in run.all("compiles-in-a-step")):
        return False
    told = (hit for hit in run.all("stats") if hit.index < fault.index)
    return any(float(hit.fields["generation"]) > 0 for hit in told)


def _never_met(case: Case, fault: Fault) -> Finding:
    """No call was made yet: the ranks wait for each other at the first one's address."""
    why = (
        "the other ranks waited for one rank at the first rank's address: that rank ended, still loads, or cannot "
        "reach the address and port; its log shows which"
    )
    return finding(
        RULE,
        title="A rank did not come to the meeting point in time",
        severity=severity(case, fault),
        confidence=Confidence.CONFIRMED if "rendezvous" in fault.ids else Confidence.LIKELY,
        evidence=shown(case, fault, *_IDS),
        changes=(
            _new_engine(case),
            *at_loopback(case),
            thing(
                ChangeKind.OS,
                "missing-rank",
                Direction.REPAIR,
                why,
                command="grep -nE 'ERROR|Error' WORKER-LOG | head; nc -vz FIRST-NODE PORT   # from the missing rank",
            ),
            environment(
                "VLLM_HOST_IP",
                Direction.SET,
                "set it on each node to the address by which the other nodes reach that node",
                command="ip -brief address",
            ),
        ),
        refute="all ranks wrote that they joined",
    )


def _new_engine(case: Case) -> Change | None:
    """V0 counts the replicas into its ranks (distributed/parallel_state.py), and starts those of one alone."""
    if case.env("VLLM_USE_V1") != "0" or (case.count("data-parallel-size") or 1) == 1:
        return None
    why = "the V0 engine, which this variable selects, starts one of the replicas and waits for the others"
    return environment("VLLM_USE_V1", Direction.REMOVE, why)


def _longer(case: Case, fault: Fault) -> Change | None:
    """The executor's own limit for one step: the first steps of a shape compile kernels, which may take longer."""
    if fault.fields("call-timeout").get("call") not in {"execute_model", "sample_tokens"}:
        return None
    name = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
    fact = case.has_env(name)
    if fact is None:
        return None
    limit = case.env(name) or str(fact.default)
    why = (
        f"one step may now take {limit} s; raise the limit if the first steps compile kernels (a busy nvcc, "
        "ptxas or hipcc shows it)"
    )
    return environment(name, Direction.RAISE, why, to=_LONG)


RULE = rule("VD801", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
