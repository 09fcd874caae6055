"""The call of which NCCL says that it failed, and the setting on which that call hangs: rows of nccl_call.toml."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.finding import Change
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.answer import changes_of

TABLE = Path(__file__).with_suffix(".toml")
BUFFER = "NCCL_BUFFSIZE"
# From this release on host memory that ranks share is taken through the driver (cuMem) rather than from /dev/shm.
_CUMEM_HOST = (2, 24)
_OVER_HOST, _OVER_CUMEM = "no-peer-copies", "no-cumem-host"


class NcclCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A warning from one of NCCL's `files` (any where empty) with the words of `message`, an id of the catalogue.

    `title` is the problem; `changes` are named in the table. `ends`: no communicator survives it; not `sure`: it may
    also stand before a failure of another kind.
    """

    message: str
    title: str
    changes: tuple[str, ...]
    files: tuple[str, ...] = ()
    ends: bool = False
    sure: bool = True


class NcclCalls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table: changes by their name, and the calls, of which the first that fits answers."""

    changes: dict[str, Answer]
    calls: tuple[NcclCall, ...]


class NcclWarning(msgspec.Struct, frozen=True):
    """The line in which NCCL names the call, what it hangs on, and whether the communicator ends with it."""

    index: int
    changes: tuple[Change, ...]
    ends: bool
    title: str = ""
    sure: bool = True


@cache
def nccl_calls() -> NcclCalls:
    """The rows. Raises msgspec.ValidationError for a key or a value that a row may not have."""
    return msgspec.toml.decode(TABLE.read_bytes(), type=NcclCalls)


def call_told(case: Case) -> NcclWarning | None:
    """The warning, or else torch's last line about it, that names a call; None if none does."""
    run = case.run
    if run is None:
        return None
    told = [(hit, call) for hit in run.all("nccl-warning") if (call := _call_of(hit)) is not None]
    # The one that torch quotes as the last, where it ends a communicator, is what the failing call stopped at. A
    # communicator survives some of them: one that it does not comes before those, wherever it stands.
    quoted = {words for _, words in _quoted(run)}
    ends = [one for one in told if one[1].ends]
    last = [one for one in ends if one[0].fields["words"].strip() in quoted]
    first = next(iter(last or ends or told), None)
    if first is not None:
        hit, call = first
        return NcclWarning(hit.index, _wanted(case, call.changes), call.ends, call.title, call.sure)
    if (peer := run.first("nccl-peer-access")) is not None:
        return NcclWarning(peer.index, _wanted(case, _peer(run)), True)
    alone = _last_error(run)
    if alone is None:
        return None
    index, call = alone
    return NcclWarning(index, _wanted(case, call.changes), call.ends, call.title, call.sure)


def _last_error(run: AnalysedRun) -> tuple[int, NcclCall] | None:
    """The call that torch's sentence quotes as NCCL's last warning; its file is not in it, so what depends on the file
    is left out."""
    told = ((at, _call("", words)) for at, words in _quoted(run))
    return next(((at, call) for at, call in told if call is not None), None)


def _quoted(run: AnalysedRun) -> Iterator[tuple[int, str]]:
    """NCCL's last warning, as torch quotes it behind its sentence or below it."""
    for hit in run.all("nccl-last-error"):
        behind = hit.fields.get("words", "").strip()
        at = hit.index if behind else min(hit.index + 1, len(run.lines) - 1)
        yield at, behind or run.lines[at].text.strip()


def _call_of(hit: Hit) -> NcclCall | None:
    return _call(hit.fields.get("file", ""), hit.fields["words"])


def _call(file: str, words: str) -> NcclCall | None:
    return next((c for c in nccl_calls().calls if _in(c, file) and says(words, c.message)), None)


def _in(call: NcclCall, file: str) -> bool:
    return not call.files or file in call.files


def _peer(run: AnalysedRun) -> tuple[str, ...]:
    """Torch's message lacks NCCL's file: which of the two ways needs peer access is a matter of NCCL's release."""
    told = run.first("nccl-version")
    if told is None:
        return (_OVER_HOST, _OVER_CUMEM)
    return (_OVER_CUMEM,) if (int(told.fields["major"]), int(told.fields["minor"])) >= _CUMEM_HOST else (_OVER_HOST,)


def _wanted(case: Case, names: tuple[str, ...]) -> tuple[Change, ...]:
    """The changes of these names, without a buffer size that nobody set."""
    named = changes_of(case, [nccl_calls().changes[name] for name in names], "")
    return tuple(c for c in named if c.name != BUFFER or case.launch is None or case.env(BUFFER) is not None)
