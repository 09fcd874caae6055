"""What is fuzzed: each target takes bytes, lets the doctor judge them as a user would, and checks what must hold.

A target raises for a traceback, for a rule that broke (VD0001), for text that could act on a terminal or a page, and
for output that its own reader refuses.
"""

import contextlib
import copy
import io
import json
import re
import shlex
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tests.plan.models import LLAMA_8B
from tests.scenarios.loading import names, snapshot
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import journal, live, logfile, procfs, release, systemd
from vllm_doctor.gather.bundle import read_bundle, write_bundle
from vllm_doctor.gather.kernel import read_kernel_file as read_kernel
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.metrics import parse
from vllm_doctor.gather.nvidia_smi import read_both
from vllm_doctor.gather.processes import Ran
from vllm_doctor.launch.command import parse_line
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.log.read import pieces, window
from vllm_doctor.plan.usage.allocator import allocator
from vllm_doctor.plan.usage.kv_use import kv_use
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.host import Metrics, Scrape
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.redact.identities import SiteNames
from vllm_doctor.redact.ledger import Redactor
from vllm_doctor.redact.records import answer_to_show
from vllm_doctor.redact.text import scrub, without_secrets
from vllm_doctor.render import fragmentation, human, prometheus
from vllm_doctor.render.html import page
from vllm_doctor.render.machine import dumps
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.order import INTERNAL
from vllm_doctor.rules.registry import rules

_NOW = "2026-01-01T00:00:00+00:00"
_TAGS = frozenset({
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "div", "strong", "p", "table", "tr", "th", "td",
    "code", "pre", "details", "summary", "section", "ul", "ol", "li", "i", "span", "footer", "header", "main",
})  # fmt: skip
# Without the name, a process tag of vLLM's or a header of its logger nothing in a text is vLLM's.
_OURS = re.compile(rb"vllm| pid=|INFO|WARNING|ERROR|CRITICAL|DEBUG|EngineCore|APIServer|Worker", re.IGNORECASE)


_CARD = "NVIDIA H100 80GB HBM3"
_ENDINGS = {Exit.OK, Exit.FINDINGS, Exit.USAGE, Exit.INCOMPLETE}


class _Tags(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _TAGS, f"<{tag}> came through"
        assert not any(name.startswith("on") or name in {"src", "href"} for name, _ in attrs), attrs


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[str]:
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(data)
        file.flush()
        yield file.name


def judged(shot: Snapshot) -> Verdict:
    """The verdict on a snapshot, told, with what is told checked."""
    told = diagnose(shot)
    broken = [f.evidence[0] for f in told.findings if f.code == INTERNAL]
    assert not broken, broken
    argv = shot.launch.value.argv if isinstance(shot.launch, Known) else ()
    told_json = dumps(told)
    assert told_json.isascii()
    json.loads(told_json, parse_constant=_no_number)
    # Telling takes longer than judging, so each input is told in one format, which its own bytes choose.
    for tell in TELLERS if EVERY_FORMAT else TELLERS[zlib.crc32(told_json.encode()) % len(TELLERS) :][:1]:
        tell(told, argv)
    return told.verdict


def _no_number(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def _on_a_terminal(told: Diagnosis, argv: tuple[str, ...]) -> None:
    _harmless(human.text(told, width=40, argv=argv))


def _on_a_page(told: Diagnosis, argv: tuple[str, ...]) -> None:
    _Tags().feed(page([(told, argv)]))


def _to_prometheus(told: Diagnosis, argv: tuple[str, ...]) -> None:
    list(text_string_to_metric_families(prometheus.text([told], 1.0, [rule.code for rule in rules()])))


TELLERS = (_on_a_terminal, _on_a_page, _to_prometheus)
EVERY_FORMAT = False


def _harmless(text: str) -> None:
    acting = [c for c in text if (ord(c) < 0x20 and c != "\n") or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E]
    assert not acting, acting[:5]


def log(data: bytes) -> None:
    """A log file of any kind, judged alone."""
    with _file(data) as name:
        verdict = judged(Snapshot(taken_at=_NOW, log=read_logs([name])))
    if not _OURS.search(data) and b"\0" not in data and data[:2] not in {b"\x1f\x8b", b"BZ", b"\xfd7"}:
        assert verdict is not Verdict.OK, "ok for a log in which nothing comes from vLLM"


def long_log(data: bytes) -> None:
    """The same by the way that large files take, with its measures made small."""
    small = {"SMALL": 4096, "HEAD": 1024, "TAIL": 1536}
    with (
        mock.patch.multiple(window, BACK=2048, _SAMPLE=256, **small),
        mock.patch.multiple(pieces, **small),
        mock.patch.object(logfile, "CHUNK", 512),
        mock.patch.object(logfile, "_HEAD", 512),
    ):
        log(data)


def metrics(data: bytes) -> None:
    """One or two scrapes (a line `----` between them): judged, and asked for the use of KV blocks."""
    scrapes = []
    for at, text in enumerate(data.decode("utf-8", "replace").split("----\n")[:2]):
        samples = parse(text)
        if isinstance(samples, str):
            _harmless(human.visible(samples))
            return
        scrapes.append(Scrape(1000.0 + at, samples))
    told = Metrics("http://127.0.0.1:8000/metrics", tuple(scrapes))
    shot = Snapshot(taken_at=_NOW, metrics=Known(told, "--metrics"))
    judged(shot)
    for version in (None, "0.9.2", "0.33.0"):
        use = kv_use(told, max_model_len=32768, version=version)
        for output in ("human", "json"):
            _harmless(fragmentation.report(use, allocator(shot), output, shot.subject))


def bundle(data: bytes) -> None:
    """A file given as a bundle."""
    with _file(data) as name:
        read = read_bundle(name)
    for shot in read if isinstance(read, tuple) else ():
        judged(shot)


class _Choices:
    """Decisions drawn from bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, count: int) -> int:
        drawn = int.from_bytes(self._data[self._at : self._at + 2].ljust(2, b"\0"), "big")
        self._at += 2
        return drawn % count if count else 0

    def text(self) -> str:
        found = self._data[self._at : self._at + 24].decode("utf-8", "replace")
        self._at += 24
        return found


_ODD: tuple[Any, ...] = (
    None, 0, -1, 1, 1 << 40, 1 << 70, 0.0, -0.5, 1e308, True, False, "", "0", "-1", "nan", "1e999", "x" * 5000,
    "vllm", "--", "-tp=", "\x1b[2J", "<script>alert(1)</script>", "$(reboot)", "%n\n[Service]", "{}", [], {}, [None],
    {"": ""}, '"} 1\nx{a="', "٣", "²",
)  # fmt: skip


@cache
def _shots() -> tuple[bytes, ...]:
    return tuple(msgspec.json.encode([snapshot(name)]) for name in names())


def snapshots(data: bytes) -> None:
    """A well-formed snapshot of a scenario with some of its values replaced by odd ones, read as a bundle."""
    choose = _Choices(data)
    tree = json.loads(_shots()[choose.below(len(_shots()))])
    for _ in range(1 + choose.below(8)):
        _spoil(tree, choose)
    bundle(json.dumps(tree).encode())


def _spoil(tree: Any, choose: _Choices) -> None:
    """Replace or remove one value, at a place that the bytes choose."""
    here = tree
    for _ in range(12):
        keys: list[Any] = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = keys[choose.below(len(keys))]
        if isinstance(here[key], dict | list) and here[key] and choose.below(8):
            here = here[key]
            continue
        odd = choose.below(len(_ODD) + 4)
        if odd < len(_ODD):
            here[key] = copy.deepcopy(_ODD[odd])
        elif odd == len(_ODD) and isinstance(here, dict):
            del here[key]
        elif odd == len(_ODD) + 1 and isinstance(here, dict):
            here[choose.text()] = here[key]
        elif odd == len(_ODD) + 2 and isinstance(here[key], str):
            here[key] += choose.text()
        else:
            here[key] = choose.text()
        return


def _run(words: list[str]) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run(words)
    return code, out.getvalue(), err.getvalue()


def launch(data: bytes) -> None:
    """A launch line: diagnosed, and made into a drop-in and an inventory line."""
    text = data.decode("utf-8", "replace")
    code, told, complaint = _run(["diagnose", "--launch", text, "--vllm-version", "0.33.0", "--gpu", _CARD])
    assert code in _ENDINGS, complaint
    _harmless(told + complaint)
    try:
        parsed = parse_line(text)
    except (ValueError, LaunchError):
        return
    judged(Snapshot(taken_at=_NOW, launch=Known(parsed, "--launch"), version=Known("0.8.5", "--vllm-version")))


def plan(data: bytes) -> None:
    """A launch line, planned; after a line `----` a config.json may follow."""
    line, _, config = data.partition(b"\n----\n")
    try:
        words = shlex.split(line.decode("utf-8", "replace"))
    except ValueError:
        return
    with _file(config or json.dumps(LLAMA_8B).encode()) as name:
        asked = ["plan", "--gpu", _CARD, "--vllm-version", "0.33.0", "--model-config", name, "--explain", "--"]
        code, told, complaint = _run([*asked, *words])
    assert code in _ENDINGS, complaint
    _harmless(told + complaint)


def host(data: bytes) -> None:
    """The same bytes as a kernel log and as an output of nvidia-smi."""
    with _file(data) as name:
        gpus, driver = read_both(name)
        judged(Snapshot(taken_at=_NOW, kernel=read_kernel(name), gpus=gpus, driver=driver))


def written(data: bytes) -> None:
    """A log goes into a bundle and out of it, and what is judged afterwards is a log still."""
    with _file(data) as name:
        shot = Snapshot(taken_at=_NOW, log=read_logs([name]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.tar.gz"
        write_bundle([shot], path, [diagnose(shot)])
        again = read_bundle(path)
    assert isinstance(again, tuple), again
    assert type(again[0].log) is type(shot.log)


def config(data: bytes) -> None:
    """A config.json: given to `diagnose` and `plan`, and read beside a served model."""
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder, "config.json")
        name.write_bytes(data)
        read = release.model_config(parse_line(f"vllm serve {folder}"), {}, None)
        judged(Snapshot(taken_at=_NOW, launch=Known(parse_line("vllm serve m"), "--launch"), model_config=read))
        for words in (
            ["diagnose", "--launch", f"vllm serve {folder}", "--model-config", str(name)],
            [
                "plan",
                "--gpu",
                _CARD,
                "--vllm-version",
                "0.33.0",
                "--model-config",
                str(name),
                "--",
                "vllm",
                "serve",
                "m",
            ],
        ):
            code, told, complaint = _run(words)
            assert code in _ENDINGS, complaint
            _harmless(told + complaint)


_UNIT = """Id=vllm.service
LoadState=loaded
ActiveState=failed
SubState=failed
Result=exit-code
InvocationID=0123456789abcdef0123456789abcdef
ExecStart={ path=/v ; argv[]=/opt/vllm/bin/vllm serve m --uds /run/m --api-key PlAnTeD7Key ; ignore_errors=no }
Environment=DB_PASS=PlAnTeD7Pass
"""


def unit(data: bytes) -> None:
    """A unit's own words, its environment file and its journal (between lines `----`), as a live diagnosis reads them.

    Two secrets of the unit's are planted at the end of the journal; neither may be told.
    """
    words, environment, text = ([*data.split(b"\n----\n", 2), b"", b""])[:3]
    with _file(environment) as name:
        shown = (
            _UNIT.encode() + words.replace(b"\n\n", b"\n") + f"\nEnvironmentFiles={name} (ignore_errors=no)\n".encode()
        )
        lines = [*text.splitlines()[-500:], b"ValueError: PlAnTeD7Key and PlAnTeD7Pass"]
        rows = [
            {"MESSAGE": line.decode("utf-8", "replace"), "_PID": "7", "SYSLOG_IDENTIFIER": "vllm"} for line in lines
        ]
        written = "".join(json.dumps(row) + "\n" for row in rows).encode()

        def answers(argv: list[str], **_: object) -> Ran:
            if argv[0] == "systemctl":
                return Ran(0, shown if argv[1] == "show" else b"", "")
            return Ran(0, b"" if "_PID=1" in argv else written, "")

        with contextlib.ExitStack() as patched:
            for module in (journal, systemd):
                patched.enter_context(mock.patch.object(module, "run", answers))
            patched.enter_context(mock.patch.object(procfs, "processes", return_value=()))
            found = systemd.find(None, 1.0)
            if not isinstance(found, Known):
                return
            for one in found.value:
                shot, _ = live._snapshot(one, 5.0, canary=False)
                judged(shot)
                told = dumps(diagnose(shot)) + msgspec.json.encode(shot).decode()
                assert "PlAnTeD7" not in told or b"PlAnTeD7" in data


def redaction(data: bytes) -> None:
    """Any text, many times over: redacted in time, whole again in each format, and what a name told is gone."""
    text = data.decode("utf-8", "replace")
    began = time.process_time()
    told = scrub(text * (1 + (1 << 16) // (1 + len(text))))
    assert time.process_time() - began < 5, len(text)
    del told
    names = SiteNames([text[:60]], [text[:20]])
    Redactor(names).tree({text[:40]: [text]}, "file")
    planted = scrub(f"{text}\nDB_PASS=PlAnTeD")
    assert planted.count("PlAnTeD") <= text.count("PlAnTeD")  # what the fuzzer has learnt to write is its own
    shot = Diagnosis(Verdict.UNKNOWN, None, (), (), facts={"log_note_1": f"judged {text}"})
    json.loads(without_secrets(dumps(answer_to_show(shot, Snapshot(taken_at=_NOW)))))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "log": log,
    "long_log": long_log,
    "metrics": metrics,
    "bundle": bundle,
    "snapshot": snapshots,
    "launch": launch,
    "plan": plan,
    "host": host,
    "written": written,
    "redaction": redaction,
    "config": config,
    "unit": unit,
}
