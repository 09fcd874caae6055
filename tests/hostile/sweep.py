"""The real command on all that a stranger may write, as processes of their own; what went wrong is counted.

`make hostile` runs it last: every text of `texts.py` in every place, every end of an output, files
that were named and cannot be read, starts after an orderly stop, launches that no release serves with, and every canary
of tests/redact/canaries.yaml in every format. Exit 1 where any count but the first is not nought.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.hostile import texts
from tests.hostile.forker import waited

MOST_MIB = 300
MOST_S = 15.0
HANGS_S = 120.0
FORMATS = ("human", "json", "html", "prometheus")
ENDS = ("a file", "a reader that went away", "a full disk", "closed streams")
COUNTS = (
    "invocations", "escapes", "VD0001", "wrong ok", f"above {MOST_MIB} MiB", f"over {MOST_S:g} s of processor time",
    "canaries through", "other ends", "hangs", "files made",
)  # fmt: skip
_WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
# So many run in a copy of a process that has the modules; the next one is started as a user starts it.
_COPIES = 19
_DOCTOR = (sys.executable, "-I", "-c", "from vllm_doctor.cli.main import entry; entry()")
_TAGS = frozenset({
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "div", "strong", "p", "table", "tr", "th", "td",
    "code", "pre", "b", "details", "summary", "section", "ul", "ol", "li", "i", "span", "footer", "header", "main",
})  # fmt: skip
_OF_A_UNIT = re.compile(r"^\s*ExecStart=/bin/false\s*$", re.MULTILINE)
_OURS = ("vllm_doctor", "vllm_gpu_")
_CANARIES = Path(__file__).parents[1] / "redact" / "canaries.yaml"
_MARKS = ("cAnArY", "anary", "CANARY", "c0ffee", "Q2Fu")


class Asked(NamedTuple):
    """One invocation. `unheard`: no canary may be heard in its answer."""

    what: str
    words: tuple[str, ...]
    files: Mapping[str, bytes]
    form: str = "human"
    end: str = "a pipe"
    stdin: bytes = b""
    may_be_ok: bool = False
    unheard: bool = False


def invocations() -> Iterator[Asked]:
    """All of them, in an order that never changes."""
    yield from _texts()
    yield from _ends()
    yield from _unread()
    yield from _starts()
    yield from _canaries()


def _formats(words: tuple[str, ...]) -> tuple[str, ...]:
    return {"diagnose": FORMATS, "explain": ("human", "human"), "fleet": ("html", "json")}.get(words[0], FORMATS[:2])


def _texts() -> Iterator[Asked]:
    """Each text in each place in half of the formats, and each place in all of them, by turns."""
    for place, put in texts.PLACES.items():
        for number, (text, written) in enumerate(texts.TEXTS.items()):
            given = put(texts.TOLD + written)
            for form in _formats(given.words)[number % 2 :: 2]:
                what = f"{text} as {place}, {form}"
                yield Asked(what, given.words, given.files, form, "a pipe", given.stdin, place in texts.MAY_BE_OK)


def _ends() -> Iterator[Asked]:
    for number, (place, put) in enumerate(texts.PLACES.items()):
        text = list(texts.TEXTS)[number % len(texts.TEXTS)]
        given = put(texts.TOLD + texts.TEXTS[text])
        for form in dict.fromkeys(_formats(given.words)):
            for end in ENDS:
                if end != "a file" or given.words[0] == "diagnose":
                    may = place in texts.MAY_BE_OK
                    yield Asked(
                        f"{text} as {place}, {form} to {end}", given.words, given.files, form, end, given.stdin, may
                    )


_KINDS = {"missing": None, "a folder": None, "empty": b"", "binary": bytes(range(256)) * 64, "a link to itself": None,
          "a device": None, "nested": b"[" * 200_000, "cut short": b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc"}  # fmt: skip
_OPTIONS = ("--log", "--kernel-log", "--metrics", "--nvidia-smi", "--model-config", "--from")


def _unread() -> Iterator[Asked]:
    """Beside a log of a server that served, so that only what was not read keeps it from being ok."""
    for option in _OPTIONS:
        for kind, content in _KINDS.items():
            files = {"good": texts.SERVED.encode()} | ({"given": content} if content is not None else {})
            beside = () if option == "--from" else ("--log", "good")
            for form in FORMATS:
                name = {"a folder": "folder", "a link to itself": "itself", "a device": "/dev/zero"}.get(kind, "given")
                # Noise in a log that follows another is no failure of a server; it is alone that it must not be ok.
                told = () if option == "--log" and kind in {"binary", "nested"} else beside
                yield Asked(f"{option} {kind}, {form}", ("diagnose", *told, option, name), files, form)
    for option in ("--model-config", "--learn"):
        for kind, content in _KINDS.items():
            name = {"a folder": "folder", "a link to itself": "itself", "a device": "/dev/zero"}.get(kind, "given")
            words = ("plan", *texts.ON, option, name, "--", "vllm", "serve", "m")
            yield Asked(f"plan {option} {kind}", words, {"given": content} if content is not None else {})


def _starts() -> Iterator[Asked]:
    for stopped, before in {"a stop": texts.STOPPED, "two stops": texts.STOPPED * 2, "a service": texts.SERVED}.items():
        for tail, lines in texts.TAILS.items():
            for form in FORMATS:
                yield Asked(
                    f"{tail} after {stopped}, {form}", ("diagnose", "log"), {"log": (before + lines).encode()}, form
                )
    for line in texts.REFUSED:
        for words in (("diagnose", *texts.ON, "--launch", line), ("diagnose", *texts.ON, "--launch", line, "--why"),
                      ("plan", *texts.ON, "--", *line.split(" "))):  # fmt: skip
            for form in _formats(words)[:2]:
                yield Asked(f"{line[:60]}, {words[0]}, {form}", words, {}, form)


def canaries() -> Iterator[str]:
    """Every line of canaries.yaml with its canary."""
    species = yaml.safe_load(_CANARIES.read_text(encoding="utf-8"))
    for kind in ("named", "asked"):
        for number, line in enumerate(species[kind]):
            canary = f"cAnArY{number}xQ7"
            address = line.replace("@@@", f"@{canary}\0").replace("@@", f"{canary}\0") if "://" in line else line
            yield address.replace("@", canary).replace("\0", "@") if "\0" in address else line.replace("@", canary)
    yield from (f"cannot load {shape} from hub" for shape in species["shapes"])


_SAYS = ("an exception", "a failure's line", "standard input", "a packed log", "a bundle", "a bundle with a change")


def _canaries() -> Iterator[Asked]:
    """Each in every format, its place by turns; the whole flock in a bundle is test_canaries.py's."""
    for number, line in enumerate(canaries()):
        for turn, form in enumerate(FORMATS):
            place = _SAYS[(number + turn) % len(_SAYS)]
            given = texts.PLACES[place](line)
            words = (*given.words, "--why") if form == "human" else given.words
            yield Asked(
                f"{line[:60]} as {place}, {form}", words, given.files, form, "a pipe", given.stdin, unheard=True
            )


class _Tags(HTMLParser):
    bad = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS or any(name.startswith("on") or name in {"src", "href"} for name, _ in attrs):
            self.bad = f"<{tag}>"


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def escape(told: str, form: str) -> str:
    """What acts on a terminal, a page or a reader of metrics; nothing where all is well."""
    for sign in told:
        at = ord(sign)
        if (at < 0x20 and sign not in "\n\t") or 0x7F <= at < 0xA0 or sign in "\u061c\u200e\u200f\u2028\u2029" or (
            0x202A <= at <= 0x202E or 0x2066 <= at <= 0x2069 or 0xD800 <= at < 0xE000
        ):  # fmt: skip
            return f"U+{at:04X}"
    unit = _OF_A_UNIT.search(told) if form == "human" else None
    if unit is not None and told.count("'", 0, unit.start()) % 2 == 0:
        return "a line of a unit"
    try:
        if form == "json" and told.strip():
            json.loads(told, parse_constant=_no_number)
        if form == "prometheus":
            names = {family.name for family in text_string_to_metric_families(told)}
            return next((name for name in names if not name.startswith(_OURS)), "")
    except ValueError as error:
        return f"its reader says {error}"
    if form == "html":
        tags = _Tags()
        tags.feed(told)
        return tags.bad
    return ""


class Ended(NamedTuple):
    """How an invocation ended, and what it took."""

    code: int
    out: str
    err: str
    mib: int
    cpu_s: float
    hung: bool
    made: tuple[str, ...]


def ended(asked: Asked, folder: Path, run: "Run") -> Ended:
    """Run it in a folder that is made anew for it."""
    (folder / "folder").mkdir()
    for name, content in asked.files.items():
        (folder / name).write_bytes(content)
    (folder / "itself").symlink_to("itself")
    before = {*asked.files, "folder", "itself"}
    form = ("--format", asked.form) if asked.form != "human" else ()
    words = [*asked.words]
    at = words.index("--") if "--" in words else len(words)
    words[at:at] = [*form, *(("-o", "answer") if asked.end == "a file" else ())]
    with tempfile.TemporaryDirectory() as beside:
        names = [Path(beside, name) for name in ("in", "out", "err")]
        names[0].write_bytes(asked.stdin)
        code, kib, cpu_s, hung = run([os.fsencode(word) for word in words], folder, asked.end, names)
        told, complaint = (
            name.read_bytes().decode("utf-8", "surrogateescape") if name.exists() else "" for name in names[1:]
        )
    answer = folder / "answer"
    if answer.exists():
        told += answer.read_text(encoding="utf-8", errors="surrogateescape")
    made = tuple(sorted({path.name for path in folder.iterdir()} - before - {"answer"}))
    return Ended(code, told, complaint, kib // 1024, cpu_s, hung, made)


Run = Callable[[list[bytes], Path, str, list[Path]], tuple[int, int, float, bool]]


def _environment(folder: Path) -> dict[str, str]:
    # No model's name is asked of a hub: nothing leaves this machine, and no answer waits for a network.
    return {"COLUMNS": "400", "VLLM_DOCTOR_STATE": str(folder / "folder"), "HF_HUB_OFFLINE": "1"}


def anew(words: list[bytes], folder: Path, end: str, names: list[Path]) -> tuple[int, int, float, bool]:
    """In a process that is started for it: how it ended, the most memory in KiB, its seconds, whether it hung."""
    started = [*(os.fsencode(one) for one in _DOCTOR), *words]
    if end == "closed streams":
        started = [b"sh", b"-c", b'exec "$@" <&- >&- 2>&-', b"sh", *started]
    environment = {"PATH": "/usr/bin:/bin", **_environment(folder)}
    with (
        names[0].open("rb") as given,
        names[1].open("wb") as out,
        names[2].open("wb") as err,
        subprocess.Popen(started, cwd=folder, env=environment, stdin=given, stdout=out, stderr=err) as child,
    ):
        code, kib, cpu_s, hung = waited(child.pid, HANGS_S)
        child.returncode = code
    return code, kib, cpu_s, hung


class Forker:
    """A process with the doctor's modules, a copy of which runs a command: a fifth of the time."""

    def __init__(self) -> None:
        (orders, self._orders), (self._answers, answers) = os.pipe(), os.pipe()
        words = [sys.executable, "-I", str(Path(__file__).with_name("forker.py")), str(orders), str(answers)]
        environment = {"PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(words, pass_fds=(orders, answers), cwd="/", env=environment)
        os.close(orders)
        os.close(answers)
        self._told = os.fdopen(self._answers)

    def __call__(self, words: list[bytes], folder: Path, end: str, names: list[Path]) -> tuple[int, int, float, bool]:
        """As `anew`. What only a start shows (streams that are closed) is started."""
        if end == "closed streams":
            return anew(words, folder, end, names)
        to: tuple[str | None, int] = (str(names[1]), _WRITTEN)
        if end == "a full disk":
            to = ("/dev/full", os.O_WRONLY)
        if end == "a reader that went away":
            to = (None, 0)
        order = {"words": [word.hex() for word in words], "folder": str(folder), "seconds": HANGS_S,
                 "streams": [(str(names[0]), os.O_RDONLY), to, (str(names[2]), _WRITTEN)],
                 "environment": _environment(folder)}  # fmt: skip
        os.write(self._orders, json.dumps(order).encode() + b"\n")
        code, kib, cpu_s, hung = json.loads(self._told.readline())
        return code, kib, cpu_s, hung

    def close(self) -> None:
        """End it."""
        os.close(self._orders)
        self._told.close()
        self._process.wait()


def wrong(asked: Asked, done: Ended) -> Iterator[tuple[str, str]]:
    """Each count that this end adds to, and why."""
    if done.hung:
        yield "hangs", ""
        return
    both = done.out + done.err
    if "VD0001" in both or done.code == 4:
        yield "VD0001", done.err[-300:]
    elif done.code not in {0, 1, 2, 3} or "Traceback (most recent call last)" in done.err:
        yield "other ends", f"exit {done.code} {done.err[-300:]}"
    if done.code == 0 and not asked.may_be_ok:
        yield "wrong ok", done.out[:120]
    if bad := escape(done.out, asked.form if done.out else "none") or escape(done.err, "none"):
        yield "escapes", bad
    if done.mib > MOST_MIB:
        yield COUNTS[4], f"{done.mib} MiB"
    if done.cpu_s > MOST_S:
        yield COUNTS[5], f"{done.cpu_s:.1f} s"
    heard = [line for line in both.splitlines() if any(mark in line for mark in _MARKS)] if asked.unheard else []
    if heard:
        yield "canaries through", heard[0][:200]
    if done.made:
        yield "files made", ", ".join(done.made)


def main() -> int:
    """Exit 1 where anything was counted beside the invocations, or not all were run."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--minutes", type=float, default=60.0, help="after which it ends, with what it has")
    given.add_argument("--every", type=int, default=1, help="every n-th invocation alone")
    given.add_argument("--begin", type=int, default=0, help="leave so many out, which another run has had")
    given.add_argument("--only", default="", help="those whose name has this in it")
    asked = given.parse_args()
    began = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    hidden, told, most_mib, most_s, took = 0, 0, 0, 0.0, 0.0
    all_of_them = [one for one in invocations() if asked.only in one.what][asked.begin :: asked.every]
    forker = Forker()
    for number, one in enumerate(all_of_them):
        if time.monotonic() - began > asked.minutes * 60:
            print(f"ended after {asked.minutes:g} min: {len(all_of_them) - counts['invocations']} were not run")
            break
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            done = ended(one, Path(folder), forker if number % (_COPIES + 1) else anew)
        counts["invocations"] += 1
        hidden += one.unheard and "[hidden]" in done.out
        told += texts.TOLD in done.out + done.err
        most_mib, most_s, took = max(most_mib, done.mib), max(most_s, done.cpu_s), took + done.cpu_s
        for count, why in wrong(one, done):
            counts[count] += 1
            print(json.dumps([count, one.what, why]), flush=True)
    forker.close()
    print(", ".join(f"{what}: {counts[what]}" for what in COUNTS))
    print(f"answers that tell the text: {told}, that hide a canary: {hidden}")
    print(f"most memory: {most_mib} MiB; most processor time: {most_s:.1f} s, of all {took:.0f} s")
    print(f"in {(time.monotonic() - began) / 60:.0f} min")
    return 1 if any(counts[what] for what in COUNTS[1:]) or counts["invocations"] < len(all_of_them) else 0


if __name__ == "__main__":
    sys.exit(main())
