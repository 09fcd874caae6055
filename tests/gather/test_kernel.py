"""The kernel's log: what matters of it, and where it could not be read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_doctor.gather import kernel
from vllm_doctor.records.reading import Known, Unknown

Put = Callable[[str, str], None]
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=VLLM::Worker, GPU has fallen off the bus."


def test_lines_that_matter_with_their_place_and_time() -> None:
    found = kernel.events(
        [
            "[    1.000000] Linux version 6.1",
            f"[ 12.345678] {XID}",
            f"2026-01-01T00:00:00,1+00:00 {XID}",
            "usb 1-1: new",
        ]
    )
    assert [(e.number, e.at) for e in found] == [(2, "12.345678"), (3, "2026-01-01T00:00:00,1+00:00")]


def test_the_journal_is_asked_first(on_path: Put) -> None:
    on_path("journalctl", f"""echo '{{"MESSAGE": "{XID}", "__REALTIME_TIMESTAMP": "1770000000000000"}}'""")
    found = kernel.read(60)
    assert isinstance(found, Known)
    assert found.value.events[0].text == XID
    assert found.value.events[0].at == "2026-02-02T02:40:00+00:00"
    assert found.value.boot_id


def test_the_journal_is_read_newest_first_and_told_in_its_order(on_path: Put) -> None:
    # With --grep, systemd 252 turns -n round by itself and 249 does not: the order is asked for, never assumed.
    told = ["Killed process 4242 (python3)", "oom-kill:constraint=CONSTRAINT_MEMCG,pid=4242"]
    rows = " ".join(f"""'{{"MESSAGE": "{text}"}}'""" for text in told)
    on_path("journalctl", f"case \"$*\" in *--reverse*) printf '%s\\n' {rows};; *) exit 1;; esac")
    found = kernel.read(60)
    assert isinstance(found, Known)
    assert [event.text for event in found.value.events] == told[::-1]
    assert kernel.since(0, 60) == tuple(told[::-1])


def test_without_the_right_to_either_it_is_unknown_and_not_clean(on_path: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_in_container", lambda: False)
    on_path("journalctl", "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1")
    on_path("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    found = kernel.read(60)
    assert isinstance(found, Unknown)
    assert "systemd-journal" in found.remedy


@pytest.mark.parametrize(
    "complaint", ["Compiled without pattern matching support", "Failed to open files: Bad message"]
)
def test_a_journal_that_could_not_be_searched_is_not_clean(
    on_path: Put, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> None:
    monkeypatch.setattr(kernel, "_in_container", lambda: False)
    monkeypatch.setattr(kernel, "_kernel_in_journal", lambda: True)
    on_path("journalctl", f"echo '{complaint}' >&2; exit 1")
    on_path("dmesg", "exit 0")
    assert isinstance(kernel.read(60), Unknown)


@pytest.mark.parametrize(
    ("content", "known"),
    [
        ("", False),
        ("-- No entries --\n", False),
        ("hello\nworld\n", False),
        ("(EngineCore pid=7) INFO 03-14 09:11:00 [core.py:1] nvidia-smi says CUDA out of memory\n", False),
        ("[    0.000000] Linux version 6.1\n", True),
        ("<6>[    0.000000] Linux version 6.1\n", True),
        ("[Fri Nov 20 10:00:00 2026] usb 1-1: new device\n", True),
        ("kern  :info  : [    0.000000] usb 1-1: new device\n", True),
        ("2026-11-20T10:00:00,000000+00:00 usb 1-1: new device\n", True),
        ("Nov 20 10:00:00 host kernel: usb 1-1: new device\n", True),
        ("2026-11-20T10:00:00+0000 host kernel: usb 1-1: new device\n", True),
        (f"{XID}\n", True),
    ],
)
def test_only_a_kernel_log_is_one(tmp_path: Path, content: str, *, known: bool) -> None:
    path = tmp_path / "given"
    path.write_text(content)
    assert isinstance(kernel.read_kernel_file(str(path)), Known) is known


def test_the_ring_buffer_where_the_journal_holds_nothing(on_path: Put) -> None:
    on_path("journalctl", "exit 1")
    on_path("dmesg", f"echo '2026-01-01T00:00:00,000000+00:00 {XID}'")
    found = kernel.read(60)
    assert isinstance(found, Known)
    assert found.source == "dmesg"
    assert len(found.value.events) == 1


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_bytes(f"Feb  1 10:00:00 host kernel: {XID}\n\xff\xfe\n".encode("latin-1"))
    found = kernel.read_kernel_file(str(path))
    assert isinstance(found, Known)
    assert found.value.events[0].at == "Feb  1 10:00:00"
    path.write_bytes(b"\0\0\0")
    assert isinstance(kernel.read_kernel_file(str(path)), Unknown)
    assert isinstance(kernel.read_kernel_file(str(tmp_path / "none")), Unknown)
