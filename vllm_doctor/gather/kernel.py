"""The kernel's log of this boot: the OOM killer, NVIDIA's Xid lines, version mismatches."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from vllm_doctor.gather import journal
from vllm_doctor.gather.bounded import end_of, text_of_start, title
from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.records.host import Kernel, KernelEvent
from vllm_doctor.records.reading import Known, Reading, Unknown

MATTERS = re.compile(
    r"NVRM|Xid|nvidia|oom-kill|oom_kill|Out of memory|Killed process|invoked oom-killer|blocked for more than|nouveau"
    r"|segfault|general protection|Machine check|EDAC|AER:|pcieport|NVLink|fallen off the bus|hung_task"
    r"|page allocation failure"
)
_GREP = "NVRM|Xid|nvidia|oom|[Oo]ut of memory|Killed process|blocked for more than|segfault|AER:|NVLink"
# The newest of them, newest first: with --grep some releases of journalctl turn -n round by themselves, others do not.
_NEWEST = ("--reverse", "-n")
MAX_EVENTS = 2000
# How dmesg, journalctl -k and syslog begin a line; without these, words that the kernel alone says.
_KERNEL = re.compile(
    r"^(?:<\d+>)?\[ *\d+\.\d+\]|^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d |^kern *:|^\d{4}-\d\d-\d\dT\S+,\d{6}[+-]\d\d"
    r"|\bkernel(?:\[\d*\])?: |\"_TRANSPORT\" ?: ?\"kernel\"|^Linux version \d"
    r"|NVRM: |invoked oom-killer|oom-kill:|Killed process \d|blocked for more than \d",
    re.MULTILINE,
)


def read(deadline_s: float) -> Reading[Kernel]:
    """Kernel lines of this boot that matter, from the journal, otherwise from the ring buffer."""
    from_journal = run(
        [
            "journalctl",
            "--no-pager",
            "-k",
            "-b",
            "-o",
            "json",
            "--output-fields=MESSAGE",
            *_NEWEST,
            "5000",
            "--grep",
            _GREP,
        ],
        deadline_s=deadline_s,
    )
    if not isinstance(from_journal, NotRun) and not _no_entries(from_journal.err, from_journal.out):
        return Known(Kernel(_events_of_journal(from_journal.out), boot_id()), "journalctl -k -b")
    ring = run(["dmesg", "--time-format=iso", "--nopager"], deadline_s=deadline_s, max_bytes=8 << 20)
    if not isinstance(ring, NotRun) and ring.code == 0:
        lines = ring.out.decode(errors="replace").splitlines()
        if lines:
            return Known(Kernel(events(lines), boot_id()), "dmesg")
    if _in_container():
        return Unknown("the kernel's log is not visible inside a container", "run vllm-doctor on the host itself")
    return Unknown("kernel log: neither the journal nor dmesg shows it to this user", journal.remedy())


def since(moment: float, deadline_s: float) -> tuple[str, ...]:
    """The kernel's lines that matter since `moment` (seconds since the epoch); none where they cannot be read."""
    words = ["journalctl", "--no-pager", "-k", "-q", "-o", "json", "--output-fields=MESSAGE", f"--since=@{moment:.0f}"]
    got = run([*words, *_NEWEST, "200", "--grep", _GREP], deadline_s=deadline_s, max_bytes=1 << 20)
    return () if isinstance(got, NotRun) else tuple(event.text for event in _events_of_journal(got.out))


def _no_entries(err: str, out: bytes) -> bool:
    """True when the journal holds no kernel lines at all for us (no right to see them, or a container).

    Whatever journalctl complains of (no right, no files, a build without --grep), silence is then no answer.
    """
    return not out.strip() and (bool(err.strip()) or _in_container() or not _kernel_in_journal())


def _kernel_in_journal() -> bool:
    one = run(["journalctl", "--no-pager", "-k", "-b", "-n", "1", "-o", "cat"], deadline_s=0.5, max_bytes=4096)
    return not isinstance(one, NotRun) and bool(one.out.strip()) and b"-- No entries --" not in one.out


def read_kernel_file(path: str) -> Reading[Kernel]:
    """A kernel log from a file or standard input (`dmesg`, `journalctl -k`, /var/log/kern.log)."""
    data = end_of(path, "--kernel-log")
    if isinstance(data, Unknown):
        return data
    give = "give the output of: sudo journalctl -k -b --no-pager"
    if b"\0" in data[:4096]:
        return Unknown(f"{title(path)}: not a text file", give)
    text = data.decode(errors="replace")
    if not text.strip():
        return Unknown(f"{title(path)}: the kernel log is empty", give)
    if not _KERNEL.search(text):
        return Unknown(f"{title(path)}: no line of a kernel log in it", give)
    return Known(Kernel(events(text.splitlines())), title(path))


def events(lines: Iterable[str]) -> tuple[KernelEvent, ...]:
    """The lines that matter, with the number of each line in its source; the newest `MAX_EVENTS`."""
    found = [
        KernelEvent(text=line.strip()[:2000], at=_at(line), number=number)
        for number, line in enumerate(lines, 1)
        if MATTERS.search(line)
    ]
    return tuple(found[-MAX_EVENTS:])


_STAMP = re.compile(
    r"^\s{0,20}(?:\[?\s{0,20})?(\d{4}-\d\d-\d\dT[\d:.,+-]{1,200}|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{1,24}\.\d{6})"
)


def _at(line: str) -> str | None:
    found = _STAMP.match(line)
    return found[1] if found else None


def _events_of_journal(out: bytes) -> tuple[KernelEvent, ...]:
    """In the order in which they happened: a kill follows the kernel's account of whose limit it was."""
    found: list[KernelEvent] = []
    for number, line in enumerate(reversed(out.splitlines()), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        text = row.get("MESSAGE") if isinstance(row, dict) else None
        if isinstance(text, str) and MATTERS.search(text):
            found.append(KernelEvent(text=text[:2000], at=journal.when(row), number=number))
    return tuple(found[-MAX_EVENTS:])


def boot_id() -> str | None:
    """This boot's id, as the journal writes it."""
    return (text_of_start("/proc/sys/kernel/random/boot_id") or "").strip().replace("-", "") or None


def _in_container() -> bool:
    return (
        Path("/run/.containerenv").exists() or Path("/.dockerenv").exists() or Path("/run/systemd/container").exists()
    )
