"""VD006: several ranks share a /dev/shm of the 64 MiB that runtimes give by default."""

from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Change, Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.container import none, source
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, rule
from vllm_doctor.rules.remedies.pod import patch
from vllm_doctor.rules.say import finding, thing

_DEFAULT = 64 << 20
_MIB = 1 << 20


def judge(case: Case) -> Outcome:
    """Is /dev/shm at its default while several ranks talk over it?"""
    container = case.container
    if container is None:
        return none(case)
    if container.state != "running":
        return NotHere("the container does not run; another rule asks what ended it")
    if container.shares_shm or container.shm_bytes is None or container.shm_bytes > _DEFAULT:
        return Clear("its shared memory is larger than the default")
    ranks = (case.count("tensor-parallel-size") or 1) * (case.count("pipeline-parallel-size") or 1)
    if ranks < 2:
        return NotHere("one rank alone needs little shared memory")
    return finding(
        RULE,
        title=f"The container has {container.shm_bytes // _MIB} MiB of shared memory for {ranks} ranks",
        severity=Severity.ADVICE,
        confidence=Confidence.LIKELY,
        evidence=(Evidence(source(container), container.name, f"ShmSize {container.shm_bytes // _MIB} MiB"),),
        changes=(_larger(container),),
        refute="df /dev/shm in the container shows more than 64 MiB",
    )


def _larger(container: Container) -> Change:
    why = "NCCL and vLLM's message queue use shared memory for each rank; a rank that gets none dies of SIGBUS"
    if not container.is_pod:
        why = f"an option of `run`, before the image, or --shm-size=8g; {why}"
        return thing(ChangeKind.OS, "container-shm", Direction.RAISE, why, to="--ipc=host")
    mount: dict[str, object] = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}  # noqa: S108 - the place
    volume: dict[str, object] = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    to = "an emptyDir {medium: Memory} at /dev/shm"
    return thing(ChangeKind.OS, "container-shm", Direction.RAISE, why, to=to, command=patch(container, mount, volume))


RULE = rule("VD006", reads=frozenset({Signal.CONTAINER, Signal.LOG, Signal.LAUNCH}), judge=judge)
