"""The installed command on hosts that are not in order: programs on PATH replay what such a host says."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import tests.doctor
from vllm_doctor.gather import processes, procfs
from vllm_doctor.gather.unit_runs import since_start
from vllm_doctor.records.host import Kernel, KernelEvent
from vllm_doctor.records.log import Log, LogLine, RunLines
from vllm_doctor.records.reading import Known

Put = Callable[[str, str], None]

UNIT = """Id=vllm.service
LoadState=loaded
ActiveState={active}
SubState={sub}
Result={result}
InvocationID=0123456789abcdef0123456789abcdef
MainPID=0
NRestarts=0
ExecStart={{ path=/opt/vllm/bin/vllm ; argv[]=/opt/vllm/bin/vllm serve m --port 1 ; ignore_errors=no }}
"""
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold]x[/bold] <script>alert(1)</script> $(touch /tmp/owned) \u202e\r\n"


def doctor(*arguments: str) -> tuple[int, str]:
    command = tests.doctor.command(processes.PATH, "diagnose", *arguments, proc=procfs.PROC)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def host(
    put: Put, *, active: str = "failed", sub: str = "failed", result: str = "exit-code", journal: str = ""
) -> None:
    shown = UNIT.format(active=active, sub=sub, result=result)
    put("systemctl", f"""[ "$1" = list-unit-files ] && exit 0\ncat <<'EOF'\n{shown}\nEOF""")
    put("journalctl", journal or "exit 0")
    put("dmesg", "exit 1")


def lines(tmp_path: Path, *messages: str) -> str:
    rows = tmp_path / "rows"
    told = [
        {
            "MESSAGE": m,
            "_PID": "7",
            "SYSLOG_IDENTIFIER": "vllm",
            "__REALTIME_TIMESTAMP": "1770000000000000",
            "__CURSOR": str(n),
        }
        for n, m in enumerate(messages)
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in told))
    return f'case "$*" in *_PID=1*|*-k*) exit 0;; esac; cat {rows}'


def test_a_forbidden_journal_is_incomplete_and_never_ok(on_path: Put) -> None:
    host(on_path, journal="echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1")
    code, out = doctor("--format", "json")
    told = json.loads(out)
    assert (code, told["verdict"]) == (3, "unknown")
    assert "usermod -aG systemd-journal" in next(m["remedy"] for m in told["unknown"] if m["signal"] == "log")


def test_a_hung_journal_and_a_hung_systemd_end_in_time(on_path: Put) -> None:
    host(on_path, journal="sleep 600")  # longer than `doctor` waits
    code, _ = doctor()
    assert code == 3
    on_path("systemctl", "sleep 600")
    code, out = doctor("--format", "json")
    assert (code, json.loads(out)["verdict"]) == (3, "unknown")


def test_no_systemd_and_no_vllm_are_not_applicable(on_path: Put) -> None:
    on_path("systemctl", "echo 'System has not been booted with systemd as init system' >&2; exit 1")
    code, out = doctor()
    assert code == 0
    assert out.startswith("NOT APPLICABLE")
    assert "--log FILE" in out


def test_a_hostile_log_is_shown_and_does_nothing(on_path: Put, tmp_path: Path) -> None:
    message = f"ERROR 01-01 10:00:00 [core.py:1] ValueError: {HOSTILE} No available memory for the cache blocks."
    host(on_path, journal=lines(tmp_path, message, message))
    for form in ("human", "html", "json", "prometheus"):
        _, out = doctor("--format", form)
        assert "\x1b" not in out
        assert "\u202e" not in out
        if form == "html":
            assert "<script>alert" not in out
    assert not Path("/tmp/owned").exists()


def test_a_failed_unit_without_a_known_reason_is_never_ok(on_path: Put, tmp_path: Path) -> None:
    host(on_path, journal=lines(tmp_path, "a line of something"))
    code, out = doctor("--format", "json")
    assert json.loads(out)["verdict"] != "ok"
    assert code in {1, 3}


@pytest.mark.parametrize("output", ["/no/such/folder/x", "/proc/version"])
def test_an_output_that_cannot_be_written_is_a_usage_error(on_path: Put, output: str) -> None:
    host(on_path, active="inactive", sub="dead", result="success")
    code, _ = doctor("--output", output)
    assert code == 2


def test_an_out_of_memory_kill_of_an_earlier_life_is_not_of_this_one() -> None:
    def at(hour: int, text: str) -> KernelEvent:
        return KernelEvent(text, f"2026-01-01T{hour:02}:00:00,123456+00:00", hour)

    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    kernel = Kernel(
        (at(1, "Out of memory: Killed process 3 (python)"), at(2, xid), at(9, "Out of memory: Killed process 4"))
    )
    log = Log("journal", RunLines((LogLine(1, "Started", at="2026-01-01T08:00:00+00:00"),)))
    found = since_start(Known(kernel, "dmesg"), Known(log, "journal"))
    assert isinstance(found, Known)
    assert [event.number for event in found.value.events] == [2, 9]


def test_a_unit_that_is_not_there_is_a_usage_error(on_path: Put) -> None:
    on_path(
        "systemctl", """[ "$1" = list-unit-files ] && exit 0\nprintf 'Id=vllm@typo.service\\nLoadState=not-found\\n'"""
    )
    code, _ = doctor("--unit", "vllm@typo")
    assert code == 2


def test_memory_that_shrinks_from_run_to_run_is_seen_over_the_journal_s_runs(on_path: Put, tmp_path: Path) -> None:
    def start(gib: float) -> list[str]:
        return [
            "(APIServer pid=7) INFO 03-14 09:01:00 [api_server.py:1839] vLLM API server version 0.11.0",
            "(APIServer pid=7) INFO 03-14 09:01:00 [utils.py:233] non-default args: {'model': 'm'}",
            f"(EngineCore_DP0 pid=8) INFO 03-14 09:08:00 [gpu_worker.py:298] Available KV cache memory: {gib} GiB",
            "(APIServer pid=7) INFO:     Application startup complete.",
        ]

    runs = {"a" * 32: 50.1, "b" * 32: 44.0, "0123456789abcdef0123456789abcdef": 38.5}
    for run, gib in runs.items():
        lines(tmp_path, *start(gib))
        (tmp_path / "rows").rename(tmp_path / run)
    said = tmp_path / "systemd"
    told = [{"MESSAGE": "Started vLLM.", "INVOCATION_ID": run, "__REALTIME_TIMESTAMP": "1"} for run in runs]
    said.write_text("".join(json.dumps(row) + "\n" for row in told))
    asked = f'case "$*" in *_PID=1*) cat {said}; exit;; *-k*) exit 0;; esac'
    journal = f"{asked}; for last; do :; done; cat {tmp_path}/${{last##*=}}"
    host(on_path, active="inactive", sub="dead", result="success", journal=journal)
    _, out = doctor("--format", "json")
    found = {f["code"]: f for f in json.loads(out)["findings"]}
    assert "50.10 → 44.00 → 38.50" in found["VD312"]["arithmetic"][0]["formula"]
