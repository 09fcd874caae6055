"""What the doctor says: a cause with evidence, arithmetic and the change that follows from them."""

import msgspec

from vllm_doctor.records.container import Made
from vllm_doctor.records.verdict import (
    Applicability,
    Cause,
    ChangeKind,
    Confidence,
    Direction,
    Phase,
    Severity,
    Verdict,
)

SCHEMA_VERSION = 1

Scalar = str | int | float | bool | None


class Evidence(msgspec.Struct, frozen=True, omit_defaults=False):
    """A verbatim excerpt and where it stands, so that a reader can go and look."""

    source: str
    locator: str
    excerpt: str
    observed_at: str | None = None


class Arithmetic(msgspec.Struct, frozen=True):
    """One figure: `value` in `unit`, how it was computed and from what."""

    name: str
    value: float
    unit: str
    formula: str
    source: str


class Change(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """One exact change. `name` is the option without dashes, the variable, the package or the thing.

    `after` is the value to write. Where the present value is not known, and so no new one can be, `by` says how far to
    move it (down where `direction` is lower), and `unset` the value to write where the launch leaves it at its default.
    `variable` is the environment variable that carries the setting in a release that has no option for it; `command`
    what to type where the change is a deed and no setting, or first where it is a decision. `predicted`
    holds figures by name (GiB of one GPU, tokens) and, where the changed launch was planned, its `outcome` in the words
    of `plan`. `together`: it is made with the finding's first change, for one of them alone does not do.
    """

    kind: ChangeKind
    name: str
    before: Scalar
    after: Scalar
    direction: Direction
    applicability: Applicability
    inventory_var: str | None = None
    predicted: dict[str, float | str] = {}
    why: str = ""
    by: float | None = None
    variable: str | None = None
    command: str | None = None
    together: bool = False
    unset: Scalar = None


class Subject(msgspec.Struct, frozen=True):
    """Whom a finding is about; what is not known is None. `place` is where it runs that is no unit of this host's, as
    `diagnose` takes it: docker:NAME, pod/NAMESPACE/NAME, pid:N, a URL."""

    host: str | None = None
    unit: str | None = None
    gpu: str | None = None
    place: str | None = None


def subject(who: Subject) -> str:
    """`vllm.service on gpu7 (GPU-…)`, as far as it is known."""
    text = who.unit or who.place or ""
    if who.host:
        text += f" on {who.host}" if text else who.host
    return f"{text} ({who.gpu})" if who.gpu else text


class Finding(msgspec.Struct, frozen=True):
    """A cause, proved. `title` is the problem in 70 characters at most, `detail` what it could not hold. `refute` is
    what one would see if it were wrong. Of a failure that no rule knows `layer` is the part that failed, and `next` the
    step where no setting cures it, with what to send along."""

    code: str
    cause: Cause
    phase: Phase
    title: str
    severity: Severity
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    refute: str
    subject: Subject = Subject()
    arithmetic: tuple[Arithmetic, ...] = ()
    changes: tuple[Change, ...] = ()
    explained_by: str | None = None
    doc: str = ""
    detail: str = ""
    layer: str = ""
    next: str = ""


class Step(msgspec.Struct, frozen=True):
    """One box of the flowchart that was visited, and why it was entered or refused."""

    node: str
    question: str
    answer: str
    because: str


class Missing(msgspec.Struct, frozen=True):
    """A signal that could not be read: what it is, why, and how to grant it."""

    signal: str
    reason: str
    remedy: str


class Part(msgspec.Struct, frozen=True):
    """Who has how much of a GPU's memory."""

    name: str
    gib: float


class Memory(msgspec.Struct, frozen=True):
    """A memory of `total_gib` and its parts, which are the whole of it; `asked` is what wanted room in it, or None."""

    of: str
    total_gib: float
    parts: tuple[Part, ...]
    asked: Part | None = None


class MemoryTerm(msgspec.Struct, frozen=True):
    """One term of a GPU's memory, GiB: as measured and as planned, each None where nothing tells it. `source` says
    where the measured figure stands, or why there is none."""

    name: str
    measured: float | None
    planned: float | None
    source: str


class GpuHolders(msgspec.Struct, frozen=True):
    """Who holds how much of a GPU now, GiB, as NVML tells it; None where it does not."""

    gpu: str
    total: float | None
    own: float | None
    others: float | None
    free: float | None


class MemoryUse(msgspec.Struct, frozen=True):
    """Where the memory of a server's GPUs went. `terms` are those of one rank: of several the largest figure, of the KV
    cache the smallest. `why_no_plan` is empty where there is one."""

    terms: tuple[MemoryTerm, ...]
    gpus: tuple[GpuHolders, ...] = ()
    why_no_plan: str = ""


class Repair(msgspec.Struct, frozen=True):
    """The repair on this very host: where the value stands, what is true now (after the last run's log), and commands
    that work as pasted, in their order. `deed` is what they do, where it is not what the first change says.
    `inventory_keeps` says that the value comes from the rendered unit, so that the inventory's line makes the repair
    last."""

    where: str = ""
    now: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    inventory_keeps: bool = True
    deed: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """The whole answer for one subject. The first finding is the root cause; `others` are the host's other units.

    `launch` is the command line in effect, as far as it is known, and `medium` what starts it (`unit`, `compose` …).
    `made` is how its container was made.
    """

    verdict: Verdict
    phase: Phase | None
    findings: tuple[Finding, ...]
    path: tuple[Step, ...]
    unknown: tuple[Missing, ...] = ()
    subject: Subject = Subject()
    facts: dict[str, Scalar] = {}
    others: tuple["Diagnosis", ...] = ()
    memory: Memory | None = None
    launch: tuple[str, ...] = ()
    medium: str = "command"
    repair: Repair | None = None
    memory_use: MemoryUse | None = None
    made: Made | None = None
    schema_version: int = SCHEMA_VERSION
