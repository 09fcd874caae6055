"""What stands in front of vLLM's own words: colours, journald, containers, Ray, ranks, process tags, the log header."""

import json
import re
from http import HTTPStatus

import msgspec

from vllm_doctor.log.read.status_page import StatusPage
from vllm_doctor.records.log import LogLine

LINE_LIMIT = 32_768
EXCERPT_LIMIT = 600
# Lines of one entry of a structured log: a traceback is written as one.
_ENTRY_LINES = 400

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\-_])")
# The escape character is often lost when a log is pasted; what is left looks like "[0;36m".
_BARE_COLOUR = re.compile(r"\[(?:0|\d{1,3}(?:;\d{1,3}){1,4}|3\d|9\d|1|2|4|22)m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

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
# A server's refusal as clients in JavaScript word it: the status, and the sentence of the answer's body.
_TOLD_CLIENT = re.compile(
    r"\W{0,4}(?P<head>(?:\w{1,20} )?Error: |(?:\w{1,20} ){0,3}HTTP )?(?P<code>4(?:0[0134]|09|22|29))(?(head):?) "
    r"(?!Client Error)"
    r"(?P<what>(?(head)|['\"{]?\w+(?: [^ ]+){4}).*)"
)
# The same as litellm passes it on, with its own class for the status.
_PASSED_ON = re.compile(r".{0,300}?litellm\.BadRequestError: Hosted_vllmException - (?!Error code)(?P<what>.+)")
# What an actor of xoscar (Xinference) puts before the words of an exception that it passes on, once for each call.
_ACTOR = re.compile(r"(?P<before>^|: |- )(?:\[address=[\w.:\[\]-]{1,80}?, pid=\d{1,10}\] )+")
# An access line of uvicorn's in another format than its own, which alone writes the phrase (AccessFormatter).
_STATUS_ALONE = re.compile(r'\S{1,80}:\d{1,5} - "[A-Z]{3,7} \S{1,2000} HTTP/[\d.]{1,3}" (?P<status>[1-5]\d\d)$')
UVICORN = re.compile(r"(INFO|WARNING|ERROR|CRITICAL):\s{1,10}")


# With this begins what is read of an answer that the text has in another form: none of its lines says so.
REWORDED = "openai."
# So much a client writes before the body that it prints.
_LEAD = 60
_DECODER = json.JSONDecoder()
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def printable_text(text: str) -> str:
    """The text without escape sequences and control characters: what may be printed on a terminal."""
    if "0m" in text:  # every colour is switched off again
        text = _BARE_COLOUR.sub("", _ANSI.sub("", text))
    if text.isprintable():
        return text
    return _CONTROL.sub("\ufffd", _ANSI.sub("", text))


def shorten(text: str, limit: int = LINE_LIMIT) -> str:
    """A line of any length as at most `limit` characters: its head and its tail with the count of what is left out."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    tail = limit - head
    return f"{text[:head]} [… {len(text) - limit} characters left out …] {text[-tail:]}"


# Where an entry of journald, docker, a cloud's log service or a logger has its text, and where its time.
ENTRIES = (
    ("MESSAGE", "__REALTIME_TIMESTAMP"), ("log", "time"), ("textPayload", "timestamp"), ("message", "timestamp"),
    ("msg", "ts"), ("LogEntry", "TimeGenerated"), ("LogMessage", "TimeGenerated"), ("event", "timestamp"),
    ("line", "timestamp"), ("body", "timestamp"),
)  # fmt: skip


# Between an entry and these fields, where a collector or a logger sets them apart.
PAYLOADS = ("jsonPayload", "fields", "record")


class Head(msgspec.Struct, frozen=True):
    """What stood around a line that was taken out of it before: when it was written, by whom, its logger's fields."""

    at: str | None = None
    stream: str | None = None
    level: str | None = None
    module: str | None = None


_NO_HEAD = Head()


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
        at = head.at
        pid: int | None = None
        unit: str | None = None
        stream = head.stream
        named: str | None = None
        quoted = False
        if text[:1] == "{":
            text, stamp, pid = _json_line(text)
            at = stamp or at
            # an entry that is cut is no JSON any more: of a long one its words are shown
            excerpt = excerpt if "\n" in text or len(excerpt) == len(raw) else shorten(text, EXCERPT_LIMIT)
        elif text.startswith(("__CURSOR=", "__REALTIME_TIMESTAMP=")):
            self._export_format = True
            return
        elif self._export_format:
            if not text.startswith("MESSAGE="):
                return
            text = text[8:]
        text = _refusal(_passed_on(_once(text)))
        of_systemd = self._status.reworded(text)
        for _ in range(3):
            outer = OUTER.match(text)
            if outer is None:
                break
            at = (
                at
                or outer["short"]
                or outer["iso"]
                or outer["cri"]
                or outer["braced"]
                or outer["logged"]
                or outer["java"]
                or outer["own"]
                or outer["numbered"]
            )
            if (outer["before"] or outer["after"] or "").startswith("vllm."):
                # vLLM's own logger, which is named after a module of it (init_logger(__name__)); the level of a program
                # that passes lines on says nothing.
                named = outer["level"]
            unit = unit or outer["unit"] or outer["iunit"]
            quoted = quoted or outer["glog"] is not None
            stream = stream or outer["pod"] or outer["service"]
            mine = outer["jpid"] or outer["ipid"]
            pid = int(mine) if mine else pid
            text = text[outer.end() :]
        if quoted and text[:1] == '"':
            text = _unquoted(text)
        process = "systemd" if of_systemd is not None else unit if unit in {"systemd", "kernel"} else None
        begun = len(found)
        text = of_systemd or text
        for part in text.split("\n")[:_ENTRY_LINES] if "\n" in text else (text,):
            self._inner(part, number, at, pid, process, excerpt, found)
        named = named or head.level
        if named is not None:
            found[begun:] = [
                msgspec.structs.replace(line, level=line.level or named, module=line.module or head.module)
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
            if at is None and text[:1] == "[" and (c10 := _C10.match(text)) is not None:
                at = f"{int(c10['month']):02d}-{c10['day']} {c10['time']}"
            header = HEADER.match(text)
            level: str | None = None
            module: str | None = None
            if header is not None:
                level, module = header["level"], header["module"]
                at = at or header["at"]
                text = text[header.end() :]
            elif process is not None and (stamp := _STAMP.match(text)) is not None:
                level, at = stamp["level"], at or stamp["at"]
                text = text[stamp.end() :]
            elif (uvicorn := UVICORN.match(text)) is not None:
                level, module = uvicorn[1], "uvicorn"
                text = text[uvicorn.end() :]
            elif text[:1] == "[" and (cached := _LMCACHE.match(text)) is not None:
                level, module, at = cached["level"], "lmcache/logging.py", at or cached["at"]
                text = text[cached.end() :]
            elif (bare := text.lstrip(" "))[:1] == "[" and (short := SHORT_HEADER.match(bare)) is not None:
                module = short["module"]
                text = bare[short.end() :]
            text = _with_phrase(text)
            torn = _TORN.search(text, 1) if " pid=" in text or ("] " in text and header is None) else None
            bar = _BAR.match(text) if "%|" in text else None
            at_bar = bar.end() if bar is not None and (torn is None or bar.end() <= torn.start()) else None
            split = at_bar if at_bar is not None else torn.start() if torn is not None else None
            rest = text[split:] if split is not None else None
            left = text[:split]
            if torn is not None and header is None and process is None and self._is_prefix(left):
                continue  # the operator's own prefix: the process before it, if any, is still the speaker
            if torn is None or left.strip():
                found.append(LogLine(number, left, level, process, pid, at, module, excerpt))
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


def _refusal(text: str) -> str:
    if "Hosted_vllmException - " in text and (passed := _PASSED_ON.match(text)) is not None:
        return f"{REWORDED}APIStatusError: Error code: 400 - {passed['what']}"
    if '"code"' in text and (body := _body_behind(text)) is not None:
        return body
    client = _TOLD_CLIENT.match(text) if "4" in text[:40] else None
    return text if client is None else f"{REWORDED}APIStatusError: Error code: {client['code']} - {client['what']}"


def _body_behind(text: str) -> str | None:
    """The body of a server's answer behind a few words of the client that prints it."""
    at = text.find('{"')
    if not 0 < at <= _LEAD:
        return None
    try:
        row, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return _answer(row) if isinstance(row, dict) else None


def _passed_on(text: str) -> str:
    """Without the addresses of the actors that an exception went through."""
    return _ACTOR.sub(r"\g<before>", text) if "[address=" in text else text


def _once(text: str) -> str:
    """The line as its worker wrote it."""
    return _REPEATED.sub("", text) if "x across cluster]" in text else text


def _answer(row: dict[str, object]) -> str | None:
    """The body of an answer with an error, as a client's package words it; None for any other object."""
    inner = row.get("error")
    told = inner if isinstance(inner, dict) else row
    kind, message, code = told.get("type"), told.get("message"), told.get("code")
    if not (isinstance(message, str) and isinstance(code, int) and 400 <= code < 600):
        return None
    if kind is None and inner is told:
        kind = "APIStatusError"  # a router's own answer: it names no type
    if not isinstance(kind, str) or re.fullmatch(r"[A-Za-z]{1,60}Error", kind) is None:
        return None
    return f"{REWORDED}{kind}: Error code: {code} - {printable_text(shorten(message))}"


def _unquoted(text: str) -> str:
    """A message that was written as one JSON string, its lines apart; the same text where it is none."""
    try:
        told = json.loads(text)
    except ValueError:
        return text
    return told.rstrip() if isinstance(told, str) else text


def _json_line(text: str) -> tuple[str, str | None, int | None]:
    """journalctl -o json, docker's json-file driver, or a structured logger; any other text as it is."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return text, None, None
    if not isinstance(row, dict):
        return text, None, None
    if (refusal := _answer(row)) is not None:
        return refusal, None, None
    for payload in PAYLOADS:
        if isinstance(inner := row.get(payload), dict) and not row.keys() & {"message", "textPayload"}:
            row = {**row, **inner}
    for key, stamp in ENTRIES:
        value = row.get(key)
        if isinstance(value, list) and all(isinstance(b, int) and 0 <= b < 256 for b in value):
            value = bytes(value).decode("utf-8", "replace")  # journald writes a message that is no UTF-8 as bytes
        if isinstance(value, str):
            pid = row.get("_PID")
            at = row.get(stamp)
            owner = int(pid) if isinstance(pid, str) and pid.isdecimal() and len(pid) < 11 else None
            return printable_text(shorten(value.rstrip("\n"))), at if isinstance(at, str) else None, owner
    return text, None, None
