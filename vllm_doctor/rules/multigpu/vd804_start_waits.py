"""VD804: the start waits for a rank that does not come, and says so until it is ended."""

from collections.abc import Mapping, Sequence

from vllm_doctor.log import silence
from vllm_doctor.log.clock import seconds_between, seconds_of
from vllm_doctor.log.match import Hit, read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.last_wait import final_run, minutes_of, unbroken
from vllm_doctor.rules.gates.profile_run import weights_by_name
from vllm_doctor.rules.gates.ranks import ranks
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.layer import first_of_each
from vllm_doctor.rules.remedies.rank_wait import known, ways_out
from vllm_doctor.rules.say import environment, finding, thing

# Each of these lines stands for a minute; compiling and autotuning take some of them.
_MINUTES = 10
# A server that has made tokens has compiled what its steps need.
_OF_A_STEP = 3
_RETRIES = 2
# VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, where nobody set it (envs.py).
_STEP_S = 300
# A disk that turns reads 150 MiB/s, a network file system in order more; below a third of it the start is long.
_SLOW_MIB_S = 50.0
_SLOW_S = 120.0
# Of 120 starts two took more than an hour for their weights (log/silence.py).
_FILES, _SLOW_WHOLE_S = 2, 3600.0
# The last lines after which a start in order goes on within seconds, and what the ranks do next.
_SOON = {
    "wait-nccl": "NCCL opens its paths between the GPUs",
    "wait-peer-test": "vLLM tries direct copies between the GPUs",
    "wait-queue": "the ranks connect to their message queue",
    "wait-graph-addresses": "the ranks exchange addresses of graphs",
}


def judge(case: Case) -> Outcome:
    """Does the run end in a wait?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if case.root is not None:
        return NotHere("the log shows a failure that ended the run")
    tries = final_run(run, run.all("store-retry"))
    # Nothing listens yet where a rank comes early; what takes a connection and closes it at once is another program.
    if len(tries) >= _RETRIES or any("closed" in t.fields for t in tries):
        return _store(case, tries)
    waits = unbroken(run, final_run(run, run.waits))
    minutes = minutes_of(run, waits)
    if minutes >= _MINUTES and any(stage is not StartupPhase.CONFIG for _, stage in run.miles):
        return _ranks(case, waits, minutes)
    if minutes >= _OF_A_STEP and (files := _of_files(case, run, waits, minutes)) is not None:
        return files
    behind = [hit for hit in run.waits if hit.index > run.worked]
    computed = any(stats.generation for stats in run.stats) or _of_the_engine(run, behind)
    if len(behind) >= _OF_A_STEP and run.stopped is None and computed:
        return _ranks(case, behind, minutes_of(run, behind))
    if (met := _did_not_meet(case, run)) is not None:
        return met
    if (silent := _stands_still(case, run)) is not None:
        return silent
    if (bare := _only_waits(case, run, waits, minutes)) is not None:
        return bare
    if (slow := _slow_files(case, run) or _slow_bar(case, run)) is not None:
        return slow
    return NotHere("the last lines of the run do not show ranks that wait")


def _of_the_engine(run: AnalysedRun, waits: Sequence[Hit]) -> bool:
    """Does the engine wait for its workers' answer to a step of a server that prints no statistics? An idle engine asks
    nothing; its workers wait for it (v1/executor/multiproc_executor.py: get_response, worker_busy_loop)."""
    own = (run.lines[hit.index].process or "" for hit in waits)
    asked = run.served() and run.answered and not run.stats
    return asked and all(says(name, "process-of-engine") for name in own)


def _slow_files(case: Case, run: AnalysedRun) -> Finding | None:
    """A start that is not through, and whose weights came far slower than a local disk gives them: of a server that
    serves it is past."""
    size, (at, seconds) = run.number("weights-took", "size"), _reading(run)
    if not size or size < 0 or run.served() or run.stopped is not None or run.deaths:
        return None
    whole = size * ranks(case)
    rate = whole * 1024 / max(seconds, 1.0)
    if seconds < _SLOW_S or rate >= _SLOW_MIB_S:
        return None
    return _slow_storage(
        case,
        run,
        f"The weights were read at {rate:.0f} MiB/s: their storage is slow",
        at=at,
        arithmetic=Arithmetic("read", round(rate), "MiB/s", f"{whole:.2f} GiB / {seconds:.0f} s", "the log"),
        changes=(_storage(case), *known(case, run.last("weights-shards"))),
        refute="the weights are quantized while they are loaded, or another load reads from the same disk meanwhile",
    )


def _reading(run: AnalysedRun) -> tuple[int, float]:
    """The line that ends the reading of the weights and its seconds: as printed, else by the clock, since the line of a
    step before it (releases before 0.8 print the size alone)."""
    if (read_in := run.last("weights-read")) is not None:
        return read_in.index, float(read_in.fields["seconds"])
    took = run.first("weights-took")
    if took is None:
        return 0, 0.0
    if (own := read("loading-seconds", run.lines[took.index].text)) is not None:
        return took.index, float(own["seconds"])
    before = next((line.at for line in reversed(run.lines[: took.index]) if line.at), None)
    return took.index, seconds_between(before, run.lines[took.index].at) or 0.0


def _slow_bar(case: Case, run: AnalysedRun) -> Finding | None:
    """A log that ends in the bar of the weights' files, which counts what is left in hours, or in minutes of a model
    that its name calls small: files differ in size, so the pace of one says little, and that of several with the time
    of all of them does. The bar's own estimate weighs the last files: twice in a row it tells a disk that got slow."""
    last = silence.wait(run)
    if last is None or last.id != "weights-shards" or run.served() or run.stopped is not None or run.deaths:
        return None
    told = read("shards-progress", run.lines[last.index].text)
    if told is None or int(told["done"]) < _FILES:
        return None
    took = seconds_of(told["took"])
    whole = took * int(told["total"]) / int(told["done"])
    size = weights_by_name(case)
    slow = size is not None and size * ranks(case) * 1024 / max(whole, 1.0) < _SLOW_MIB_S
    if took < _SLOW_S or (whole < _SLOW_WHOLE_S and not slow and _estimated(run) < _SLOW_WHOLE_S):
        return None
    if whole < _SLOW_WHOLE_S and not slow:
        return _got_slow(case, run, last, told)
    return _slow_storage(
        case,
        run,
        f"The weights take {whole / 3600:.1f} hours at this pace: their storage is slow",
        at=last.index,
        arithmetic=Arithmetic(
            "all files", round(whole), "s", f"{took:.0f} s / {told['done']} × {told['total']}", "the log"
        ),
        changes=(*known(case, last), _storage(case)),
        refute="the files are downloaded meanwhile, or quantized while they are loaded",
    )


def _estimated(run: AnalysedRun) -> float:
    """The least of what the last two states of the bar estimate for all files, in seconds; 0 where it stands once."""
    bars = [read("shards-progress", run.lines[hit.index].text) for hit in run.all("weights-shards")][-_FILES:]
    sums = [seconds_of(bar["took"]) + seconds_of(bar["left"]) for bar in bars if bar is not None and bar.get("left")]
    return min(sums) if len(sums) == _FILES else 0.0


def _got_slow(case: Case, run: AnalysedRun, last: Hit, told: Mapping[str, str]) -> Finding:
    """The first files came in time: what they came from, a cache or a disk with room, is used up."""
    whole = _estimated(run)
    return _slow_storage(
        case,
        run,
        f"Reading the weights got slow on its way: {told['left']} are left for the last files",
        at=last.index,
        arithmetic=Arithmetic("all files", round(whole), "s", f"{told['took']} + {told['left']}", "the log"),
        changes=(_storage(case), *known(case, last)),
        refute="one file is far larger than the others, or another program reads from the same storage meanwhile",
    )


def _slow_storage(
    case: Case,
    run: AnalysedRun,
    title: str,
    *,
    at: int,
    arithmetic: Arithmetic,
    changes: tuple[Change | None, ...],
    refute: str,
) -> Finding:
    """A start that goes on, and whose weights come slowly."""
    return finding(
        RULE,
        title=title,
        phase=Phase.NOT_MEMORY,
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(at),),
        arithmetic=(arithmetic,),
        changes=changes,
        refute=refute,
        then=silence.usual(run).look,
    )


def _only_waits(case: Case, run: AnalysedRun, waits: Sequence[Hit], minutes: int) -> Finding | None:
    """An excerpt of nothing but the engine's waits for its workers: no step of the start, no request.

    A step of the running engine is waited for at most VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, a call of the start without
    a limit (v1/executor/multiproc_executor.py), so beyond those minutes it is the start that does not go on.
    """
    if minutes < _OF_A_STEP or run.miles or run.stats or run.served() or run.stopped is not None:
        return None
    told = case.env("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS") or ""
    limit = int(told) if told.isdigit() else _STEP_S
    start = minutes * 60 > limit
    return finding(
        RULE,
        title=f"The engine has waited {minutes} minutes for its workers",
        detail="longer than it waits for a step, so the start does not go on"
        if start
        else f"a step of the running engine ends after {limit} s with a TimeoutError, a call of the start does not",
        confidence=Confidence.POSSIBLE,
        evidence=(case.line(waits[0].index), case.line(waits[-1].index)),
        changes=ways_out(case),
        refute=f"a worker computes meanwhile: its GPU is busy in `{maker_tool(case).name}`, or it compiles on the CPU",
        then="py-spy dump --pid PID of each worker names the call in which it stands: NCCL, a compiler, a file, a lock",
    )


def _of_files(case: Case, run: AnalysedRun, waits: Sequence[Hit], minutes: int) -> Finding | None:
    """Did the bar of the weights' files stop on its way? It grows with each file, so a rank waits for the storage."""
    last = silence.wait(run)
    if last is None or last.id != "weights-shards" or says(run.lines[last.index].text, "bar-complete"):
        return None
    return finding(
        RULE,
        title=f"Loading the weights has not gone on for {minutes} minutes",
        phase=Phase.NOT_MEMORY,
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(i) for i in (last.index, waits[0].index, waits[-1].index)),
        changes=(*known(case, last), _storage(case)),
        refute="the bar of the files goes on: then the storage is slow, and the start only late",
        then=silence.usual(run).look,
    )


def _storage(case: Case) -> Change:
    why = (
        "on a local disk, not on a network's or a Windows drive's (9p, drvfs: WSL, Docker Desktop): copy the files "
        "into the host's own file system, or a volume"
    )
    model = case.model or ""
    command = f"df -hT {model if model.startswith('/') else '~/.cache/huggingface'}; dmesg | tail"
    return thing(ChangeKind.OS, "model-files", Direction.CHANGE, why, command=command)


def _did_not_meet(case: Case, run: AnalysedRun) -> Finding | None:
    """Some ranks are through NCCL's set-up, and others that began it are not: those wait for a connection."""
    if run.served() or run.stopped is not None or run.deaths:
        return None
    began: dict[str, dict[str, Hit]] = {}
    through: dict[str, set[str]] = {}
    for hit in run.all("nccl-init"):
        told = hit.fields
        if told["state"] == "START":
            began.setdefault(told["comm"], {})[told["rank"]] = hit
        else:
            through.setdefault(told["comm"], set()).add(told["rank"])
    for comm, begun in began.items():
        left = sorted(int(rank) for rank in begun if rank not in through.get(comm, ()))
        if not left or comm not in through:
            continue
        last = begun[str(left[-1])]
        return finding(
            RULE,
            title=f"NCCL's set-up does not end for {len(left)} of {last.fields['ranks']} ranks",
            detail=f"rank {', '.join(map(str, left))} began it and did not end it; the others are through",
            confidence=Confidence.LIKELY,
            evidence=(case.line(begun[str(left[0])].index), case.line(last.index)),
            changes=ways_out(case),
            refute="these ranks write that their set-up is complete",
            then=silence.usual(run).look,
        )
    return None


def _stands_still(case: Case, run: AnalysedRun) -> Finding | None:
    """Does a file end at a line after which starts are known to stand still, where the next one comes in seconds?

    On a host the clock tells (VD906). A file has none; but nobody hands one in while it is seconds old, and its own
    last time says so.
    """
    last = silence.wait(run)
    if case.live or last is None or last.id not in _SOON or run.served() or run.stopped is not None or run.deaths:
        return None
    if 0 < silence.minutes(run, case.taken_at) < _MINUTES or silence.behind(run) is not None:
        return None
    text = run.lines[last.index].text
    if text.count("(") > text.count(")"):
        return None  # whoever copied the log cut it within this line: it went on
    return finding(
        RULE,
        title=f"The start stands still where {_SOON[last.id]}",
        confidence=Confidence.LIKELY,
        evidence=(case.line(last.index),),
        changes=first_of_each((*known(case, last), *ways_out(case))),
        refute="the log goes on: the next line of a start in order comes within seconds",
        then=silence.usual(run).look,
    )


def _store(case: Case, waits: Sequence[Hit]) -> Outcome:
    host, port = (waits[-1].fields[k] for k in ("host", "port"))
    return finding(
        RULE,
        title=f"The rank cannot reach its own rendezvous address {host}:{port}",
        confidence=Confidence.LIKELY,
        evidence=(case.line(waits[0].index), case.line(waits[-1].index)),
        changes=(
            environment(
                "VLLM_HOST_IP",
                Direction.SET,
                "set an address of this host that its firewall and VPN allow; 127.0.0.1 for a single host",
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


def _ranks(case: Case, waits: Sequence[Hit], minutes: int) -> Outcome:
    late = silence.behind(case.run) if case.run is not None else None
    last = silence.wait(case.run) if case.run is not None else None
    return finding(
        RULE,
        title=f"Ranks have waited {minutes} minutes for each other",
        detail=str(late) if late is not None else "",
        severity=Severity.WILL_FAIL_UNDER_LOAD if case.run is not None and case.run.served() else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(
            *((case.line(late.index),) if late is not None else ()),
            case.line(waits[0].index),
            case.line(waits[-1].index),
        ),
        changes=first_of_each((*known(case, last), *ways_out(case))),
        refute=f"a rank computes meanwhile: its GPU is busy in `{maker_tool(case).name}`, its memory changes",
    )


RULE = rule("VD804", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
