"""What stands in front of vLLM's own words: colours, journald, containers, Ray, ranks, process tags, the log header."""

import re
from http import HTTPStatus

import msgspec

from vllm_doctor.log.read.client_answer import as_client
from vllm_doctor.log.read.entry import LogEntry, entry_of, unquoted
from vllm_doctor.log.read.printable import EXCERPT_LIMIT, printable_text, shorten
from vllm_doctor.log.read.status_page import StatusPage
from vllm_doctor.records.log import LogLine

# Lines of one entry of a structured log: a traceback is written as one.
_ENTRY_LINES = 400

OUTER = re.compile(
    r"(?:"
    r"(?P<short>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?) "
    r"(?P<host>[\w.-]+) (?P<unit>[^\s\[\]:]+)\[(?P<jpid>\d{1,10})\]: "
    r"|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[+-]\d\d:?\d\d|Z)?) "
    r"(?P<ihost>[\w.-]+) (?P<iunit>[^\s\[\]:]+)\[(?P<ipid>\d{1,10})\]: "
    r"|\[ *\d+\.\d+\] [\w.-]+ [^\s\[\]:]+\[\d+\]: "
    r"|\[(?P<pod>pod/[^\]\s]+)\] ?"
    # mpirun --tag-output, and torchrun where it passes on what its processes print (TorchElastic's tail log)
    r"|\[\d{1,4},\d{1,5}\](?:<std(?:out|err)>)?: ?|\[(?:default|worker)\d{1,4}\]: ?"
    # what DJL Serving and TorchServe pass on of a worker's streams (PyProcess, WorkerLifeCycle: log4j's layouts)
    r"|(?:(?P<java>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}) )?\[?(?:DEBUG|INFO|WARN|ERROR) {0,2}\]? {1,2}"
    r"(?:PyProcess (?:- )?W-\d{1,6}-[\w./-]{1,80}?-std(?:out|err): "
    r"|W-\d{1,6}-[\w.-]{1,80}?-std(?:out|err) MODEL_LOG - )"
    r"|(?P<service>[\w.-]{1,60}) +\| "
    # the stream as a level, which a host of serverless workers puts before each line (RunPod)
    r"|\[(?:debug|info|warning|warn|error|critical)\] ?(?=\S)"
    # with a space, no fraction and nothing else it is put before each line by a program that pipes a log (`ts`)
    r"|\[(?P<braced>\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)| \d\d:\d\d:\d\d))\] "
    # uvicorn's loggers in a server with a format of its own (KServe)
    r"|(?P<logged>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) uvicorn\.(?:error|access) (?=[A-Z]{4,8}:)"
    # Xinference's loggers: time, name, process, level
    r"|(?P<numbered>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?:xinference|uvicorn)\.[\w.]{1,80} {1,12}\d{1,10} "
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) {1,5}"
    # A formatter of somebody's own: time, level and logger's name in any of their usual orders.
    r"|(?P<own>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?:Z|[+-]\d\d:?\d\d)?"
    r"(?: [|-] (?P<before>[\w.]{1,60}))?"
    r" ?[|\[ -] ?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) {0,5}[|\]:-]"
    r"(?: (?!\w{0,60}(?:Error|Exception|Timeout|Exit): )(?P<after>[\w.:]{1,80})(?: [|-]|:)(?= |$))?(?: |$)"
    # glog and klog, of Triton Server, Kubernetes and XLA: level and day, time, thread, file and line
    r"|(?P<glog>[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6}) {1,7}\d{1,10} [\w./-]{1,120}:\d{1,6}\] "
    r"|(?P<cri>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)) (?:std(?:out|err) [FP] )?"
    r")"
)
# The groups that hold a time, the surest first.
_TIMES = ("short", "iso", "cri", "braced", "logged", "java", "own", "numbered")
# An actor may print its own name, with an argument in brackets, and an address that is empty (ROLL). Ray's worker has
# no name yet while it imports what it is to run. A worker of 0.10.1 has its rank behind its name (`VllmWorker TP0`).
# People who paste shorten the number, or leave it out of vLLM's own.
TAG = re.compile(
    r"\s?\((?:(?P<own>(?:APIServer|EngineCore|Worker|VllmWorker)(?:_\w{1,40}|Process)?)\)"
    r"|(?:(?P<name>[A-Za-z][\w.:-]*(?: [DPTE]P\d\w{0,20})?)(?:\([\w.-]{1,60}\))?(?: rank=(?P<rank>\d{1,6}))? )?"
    r"pid=(?:(?P<pid>\d{1,10})|\.{2,3}|…|[xXnN*#]{1,8}|<\w{1,8}>)(?:, (?:ip=[\w.:]+)?)?\))"
    r"(?: \[repeated \d+x[^\]]*\])? ?"
)
# Ray prints a line once for all workers that wrote it, and says so behind it (RAY_DEDUP_LOGS).
_REPEATED = re.compile(r" \[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates logs .*)?$")
RANK = re.compile(r"\[rank(\d+)\]: ?")
# How c10 stamps what torch's C++ logs (c10/util/Logging.cpp): level, month without its zero, day, time.
_C10 = re.compile(r"\[[IWEF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)\.\d{1,9} \w")
# A formatter of one's own puts the level in brackets, names the year, or no time; people who paste leave the time out.
HEADER = re.compile(
    r"(?P<open>\[)?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)(?(open)\]) {1,4}"
    r"(?:(?:\d{4}-)?(?P<at>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) )?"
    r"\[?(?P<module>[\w./<>-]{1,120}:\d{1,6})\] ?"
)
# The same without its place, as people shorten it, behind the tag of its process.
_STAMP = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<at>\d\d-\d\d \d\d:\d\d:\d\d) (?=\S| {2})")
# LMCache's logger, which names its place behind what it says (lmcache/logging.py).
_LMCACHE = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] LMCache (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL): ?"
)
# The same without its level and time, as people shorten it: the first line of a call's record tells it from a list.
SHORT_HEADER = re.compile(r"\[(?P<module>[\w./<>-]{1,80}\.py:\d{1,6})\] ?(?=\S| {2})")
# What most lines of a V1 server look like, in one step.
_QUICK = re.compile(
    r"(?:\((?P<name>[A-Za-z]\w*) pid=(?P<pid>\d{1,10})\) )?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<at>\d\d-\d\d \d\d:\d\d:\d\d) \[(?P<module>[\w./]+:\d+)\] ?"
    r"|(?P<plain>INFO): {1,10})(?P<text>.*)"
)
_TORN = re.compile(
    r"\((?:APIServer|ApiServer_\d+|EngineCore\w*|Worker\w*|VllmWorker\w*(?: [DPTE]P\d\w{0,20})?|RayWorkerWrapper)"
    r"(?: rank=\d+)? pid=\d+(?:, ip=[\w.:]+)?\) "
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?[\w./<>-]+:\d+\]"
)
# A bar of tqdm, which ends its line only when it is done, and the first letter of what another program wrote behind it.
_BAR = re.compile(r".{0,400}?%\|.{0,200}?\| \d{1,10}/\d{1,10} \[[^\[\]]{1,200}\](?=[\w(\[/])")
# An access line of uvicorn's in another format than its own, which alone writes the phrase (AccessFormatter).
_STATUS_ALONE = re.compile(r'\S{1,80}:\d{1,5} - "[A-Z]{3,7} \S{1,2000} HTTP/[\d.]{1,3}" (?P<status>[1-5]\d\d)$')
UVICORN = re.compile(r"(INFO|WARNING|ERROR|CRITICAL):\s{1,10}")


_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Head(msgspec.Struct, frozen=True):
    """What stood around a line that was taken out of it before: when it was written, by whom, its logger's fields."""

    at: str | None = None
    stream: str | None = None
    level: str | None = None
    module: str | None = None


_NO_HEAD = Head()


class _Outer(msgspec.Struct, frozen=True):
    """What collectors put before a line: when, whose unit and stream, which process; `level` of vLLM's own logger."""

    text: str
    at: str | None = None
    pid: int | None = None
    unit: str | None = None
    stream: str | None = None
    level: str | None = None


def _outer(text: str) -> _Outer:
    """The line behind at most three of them; what the first says of a thing stands, of the process the last."""
    at = pid = unit = stream = level = None
    quoted = False
    for _ in range(3):
        found = OUTER.match(text)
        if found is None:
            break
        at = at or next((found[name] for name in _TIMES if found[name]), None)
        if (found["before"] or found["after"] or "").startswith("vllm."):
            # vLLM's own logger, which is named after a module of it (init_logger(__name__)); the level of a program
            # that passes lines on says nothing.
            level = found["level"]
        unit = unit or found["unit"] or found["iunit"]
        stream = stream or found["pod"] or found["service"]
        mine = found["jpid"] or found["ipid"]
        pid = int(mine) if mine else pid
        quoted = quoted or found["glog"] is not None
        text = text[found.end() :]
    return _Outer(unquoted(text) if quoted and text[:1] == '"' else text, at, pid, unit, stream, level)


class _Stamp(msgspec.Struct, frozen=True):
    """What a logger put before its words, up to `end`. `full`: with its level and its place, as vLLM's is."""

    end: int = 0
    level: str | None = None
    at: str | None = None
    module: str | None = None
    full: bool = False


def _stamp(text: str, *, signed: bool) -> _Stamp:
    """A logger's stamp, in whichever form; without its place it is one only behind the tag of its process."""
    bracket = text[:1] == "["
    c10 = _C10.match(text) if bracket else None
    at = f"{int(c10['month']):02d}-{c10['day']} {c10['time']}" if c10 is not None else None
    if (header := HEADER.match(text)) is not None:
        return _Stamp(header.end(), header["level"], at or header["at"], header["module"], full=True)
    if signed and (short := _STAMP.match(text)) is not None:
        return _Stamp(short.end(), short["level"], at or short["at"])
    if (uvicorn := UVICORN.match(text)) is not None:
        return _Stamp(uvicorn.end(), uvicorn[1], at, "uvicorn")
    if bracket and (cached := _LMCACHE.match(text)) is not None:
        return _Stamp(cached.end(), cached["level"], at or cached["at"], "lmcache/logging.py")
    blanks = len(text) - len(text.lstrip(" "))
    if (placed := SHORT_HEADER.match(text, blanks)) is not None:
        return _Stamp(placed.end(), None, at, placed["module"])
    return _Stamp(at=at)


class Stripper:
    """Turns raw lines into LogLines; remembers a VLLM_LOGGING_PREFIX once it has seen it twice."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._export_format = False
        self._status = StatusPage()

    def lines(self, raw: str, number: int, head: Head = _NO_HEAD) -> list[LogLine]:
        """One physical line as the lines it holds: progress bars collapsed, torn lines taken apart."""
        found: list[LogLine] = []
        if "\r" in raw:
            parts = [p for p in raw.split("\r") if p.strip()]
            parts = [p for p in parts[:-1] if "%|" not in p] + parts[-1:]
        else:
            parts = [raw]
        for part in parts:
            self._one(part, number, head, found)
        return found

    def _one(self, raw: str, number: int, head: Head, found: list[LogLine]) -> None:
        quick = _QUICK.match(raw) if raw.isprintable() and len(raw) < EXCERPT_LIMIT else None
        if quick is not None and " pid=" not in quick["text"] and "0m" not in raw:
            owner = int(quick["pid"]) if quick["pid"] else None
            module = quick["module"] or "uvicorn"
            level = quick["level"] or quick["plain"]
            told = _with_phrase(_once(quick["text"]))
            at = head.at or quick["at"]
            found.append(LogLine(number, told, level, quick["name"], owner, at, module, raw, head.stream))
            return
        text = printable_text(shorten(raw))
        excerpt = text if len(text) <= EXCERPT_LIMIT else shorten(text, EXCERPT_LIMIT)
        entry = LogEntry(text)
        if text[:1] == "{":
            entry = entry_of(text)
            # an entry that is cut is no JSON any more: of a long one its words are shown
            whole = "\n" in entry.text or len(excerpt) == len(raw)
            excerpt = excerpt if whole else shorten(entry.text, EXCERPT_LIMIT)
        elif text.startswith(("__CURSOR=", "__REALTIME_TIMESTAMP=")):
            self._export_format = True
            return
        elif self._export_format:
            if not text.startswith("MESSAGE="):
                return
            entry = LogEntry(text[8:])
        text = as_client(_once(entry.text))
        of_systemd = self._status.reworded(text)
        outer = _outer(text)
        text = of_systemd or outer.text
        unit = outer.unit if outer.unit in {"systemd", "kernel"} else None
        at, pid = head.at or entry.at or outer.at, outer.pid or entry.pid
        begun = len(found)
        for part in text.split("\n")[:_ENTRY_LINES] if "\n" in text else (text,):
            self._inner(part, number, at, pid, "systemd" if of_systemd is not None else unit, excerpt, found)
        level, stream = outer.level or head.level, head.stream or outer.stream
        if level is not None:
            found[begun:] = [
                msgspec.structs.replace(line, level=line.level or level, module=line.module or head.module)
                for line in found[begun:]
            ]
        if stream is not None:
            found[begun:] = [msgspec.structs.replace(line, stream=stream) for line in found[begun:]]

    def _inner(  # noqa: PLR0917 - the parts of one line
        self,
        text: str,
        number: int,
        at: str | None,
        pid: int | None,
        process: str | None,
        excerpt: str,
        found: list[LogLine],
    ) -> None:
        """vLLM's own prefixes; a torn line holds several of them, one after another."""
        rest: str | None = text
        while rest is not None:
            text = rest
            while (tag := TAG.match(text)) is not None:
                name = tag["own"] or (tag["name"] and tag["name"].replace(" ", "_"))
                process = f"{name}_{tag['rank']}" if tag["rank"] else name or process
                pid = int(tag["pid"]) if tag["pid"] else pid
                text = text[tag.end() :]
            rank = RANK.match(text)
            if rank is not None:
                process = process or f"rank{rank[1]}"
                text = text[rank.end() :]
            stamp = _stamp(text, signed=process is not None)
            at = at or stamp.at
            text = _with_phrase(text[stamp.end :])
            torn = _TORN.search(text, 1) if " pid=" in text or ("] " in text and not stamp.full) else None
            bar = _BAR.match(text) if "%|" in text else None
            at_bar = bar.end() if bar is not None and (torn is None or bar.end() <= torn.start()) else None
            split = at_bar if at_bar is not None else torn.start() if torn is not None else None
            rest = text[split:] if split is not None else None
            left = text[:split]
            if torn is not None and not stamp.full and process is None and self._is_prefix(left):
                continue  # the operator's own prefix: the process before it, if any, is still the speaker
            if torn is None or left.strip():
                found.append(LogLine(number, left, stamp.level, process, pid, at, stamp.module, excerpt))
            pid, process = None, None

    def _is_prefix(self, left: str) -> bool:
        if len(left) > 80:
            return False
        count = self._seen[left] = self._seen.get(left, 0) + 1
        return count > 1 or not left.strip()


def _with_phrase(text: str) -> str:
    """An access line as uvicorn itself writes it: with the phrase of the status."""
    told = _STATUS_ALONE.match(text) if text[-5:-3] == '" ' else None
    phrase = _PHRASES.get(int(told["status"])) if told is not None else None
    return f"{text} {phrase}" if phrase is not None else text


def _once(text: str) -> str:
    """The line as its worker wrote it."""
    return _REPEATED.sub("", text) if "x across cluster]" in text else text
