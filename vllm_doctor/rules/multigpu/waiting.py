"""VD804: the start waits for a rank that does not come, and says so until it is ended."""

import itertools
from collections.abc import Sequence

from vllm_doctor.knowledge.messages import Hit
from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.stages import Stage
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Confidence, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.multigpu._hang import ways_out
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import environment, finding
from vllm_doctor.rules.story import Story

# Each of these lines stands for a minute; compiling and autotuning take some of them.
_MINUTES = 10
_RETRIES = 2
_CUT = Pattern(r"\s*\W{0,3}(?:\.{3}|…)[^:]{0,60}$")
_CLOCK = Pattern(r"\b(\d\d):(\d\d):\d\d")
_DAY = 24 * 60


def judge(case: Case) -> Outcome:
    """Does the life end in a wait?"""
    story = case.story
    if story is None:
        return Unseen(frozenset({Signal.LOG}))
    if case.root is not None:
        return NotHere("something failed for good")
    tries = final_run(story, story.all("store-retry"))
    # Nothing listens yet where a rank comes early; what takes a connection and closes it at once is another program.
    if len(tries) >= _RETRIES or any("closed" in t.fields for t in tries):
        return _store(case, tries)
    run = _unbroken(story, final_run(story, story.all("broadcast-wait")))
    minutes = _minutes(story, run)
    if minutes >= _MINUTES and any(stage is not Stage.CONFIG for _, stage in story.miles):
        return _ranks(case, run, minutes)
    return NotHere("the life does not end in a wait")


def final_run(story: Story, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """The hits after which no step of the start was reached any more; none once it served."""
    if story.served(-1):
        return ()
    last = max((i for i, stage in story.miles if stage is not Stage.CONFIG), default=-1)
    return tuple(h for h in hits if h.index > last)


def _unbroken(story: Story, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Those of the hits with which the life ends: nothing else was written between them (a progress bar would be).

    A mark where somebody cut the log is nothing that was written.
    """
    end = len(story.lines) if story.stopped is None else story.stopped
    at = {h.index: h for h in hits}
    lines = story.lines
    spoken = (i for i in range(end - 1, -1, -1) if lines[i].text.strip() and not _CUT.match(lines[i].text))
    return tuple(at[i] for i in itertools.takewhile(at.__contains__, spoken))[::-1]


def _minutes(story: Story, run: Sequence[Hit]) -> int:
    """How long the run is, by its count, and by its clock where lines between were cut out."""
    if len(run) < _RETRIES:
        return len(run)
    first, last = (_CLOCK.search(story.lines[h.index].at or "") for h in (run[0], run[-1]))
    if first is None or last is None:
        return len(run)
    begin, end = ((int(c[1]) * 60 + int(c[2])) for c in (first, last))
    return max(len(run), (end - begin) % _DAY + 1)


def _store(case: Case, run: Sequence[Hit]) -> Outcome:
    host, port = (run[-1].fields[k] for k in ("host", "port"))
    return finding(
        RULE,
        title=f"The rank cannot reach its own meeting point {host}:{port}",
        confidence=Confidence.LIKELY,
        evidence=(case.line(run[0].index), case.line(run[-1].index)),
        changes=(
            environment(
                "VLLM_HOST_IP",
                Direction.SET,
                "an address of this host that its firewall and VPN let through; 127.0.0.1 for a single host",
                to="127.0.0.1" if _alone(case) else None,
                command="ip -br addr",
            ),
        ),
        refute=f"a connection to {host}:{port} from this host is accepted while the server starts",
    )


def _alone(case: Case) -> bool:
    """Does the launch say that all ranks are of this host?"""
    nodes, executor = case.effective("nnodes"), case.effective("distributed-executor-backend")
    return case.launched and nodes in {None, "1"} and executor != "ray"


def _ranks(case: Case, run: Sequence[Hit], minutes: int) -> Outcome:
    return finding(
        RULE,
        title=f"Ranks have waited for one another for {minutes} minutes, and nothing else happened",
        confidence=Confidence.LIKELY,
        evidence=(case.line(run[0].index), case.line(run[-1].index)),
        changes=ways_out(case),
        refute="a rank computes meanwhile: its GPU is busy in `nvidia-smi`, its memory changes",
    )


RULE = Rule(
    code="VD804",
    slug="start-waits",
    title="The start waits for a rank that does not come",
    node="multigpu",
    cause=Cause.NCCL_TIMEOUT,
    phase=Phase.NCCL_OR_MULTIGPU,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}),
    judge=judge,
    rank=54,
)
