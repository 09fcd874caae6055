"""One diagnosis with everything in it, and one that an attacker wrote."""

from vllm_doctor.records.finding import (
    Arithmetic,
    Change,
    Diagnosis,
    Evidence,
    Finding,
    GpuHolders,
    MemoryTerm,
    MemoryUse,
    Missing,
    Step,
    Subject,
)
from vllm_doctor.records.verdict import (
    Applicability,
    Cause,
    ChangeKind,
    Confidence,
    Direction,
    Phase,
    Severity,
    Verdict,
)

ARGV = ("/opt/vllm/current/bin/vllm", "serve", "m/tiny", "--max-model-len", "4096")


def finding(code: str = "VD131", **over: object) -> Finding:
    fields: dict[str, object] = {
        "code": code,
        "cause": Cause.KV_TOO_SMALL,
        "phase": Phase.STARTUP_KV_CACHE,
        "title": "the KV cache cannot hold one request of 4096 tokens",
        "severity": Severity.BLOCKS_START,
        "confidence": Confidence.CONFIRMED,
        "evidence": (
            Evidence("journal", "line 17", "ValueError: To serve at least one request", "2026-11-20T10:00:00+00:00"),
        ),
        "refute": "the log says that the engine started",
        "arithmetic": (Arithmetic("tokens that fit", 2048, "tokens", "0.5 GiB / 256 KiB", "log"),),
        "changes": (
            Change(
                ChangeKind.FLAG, "max-model-len", 4096, 2048, Direction.LOWER, Applicability.NEEDS_REVIEW,
                "vllm_max_model_len", {"max concurrency": 1.0}, "requests longer than this are refused",
            ),
        ),
        "doc": code,
    }  # fmt: skip
    fields.update(over)
    return Finding(**fields)  # type: ignore[arg-type]


def diagnosis(*findings: Finding, verdict: Verdict = Verdict.FINDING, unit: str | None = "vllm.service") -> Diagnosis:
    return Diagnosis(
        verdict=verdict,
        phase=findings[0].phase if findings else None,
        findings=findings,
        path=(Step("startup", "Did it fail while starting?", "yes", "the log ends before readiness"),),
        unknown=(Missing("kernel", "no permission", "sudo usermod -aG systemd-journal ops"),),
        subject=Subject(host="gpu7", unit=unit),
    )


MEMORY = MemoryUse(
    (
        MemoryTerm("weights", 12.54, 12.6, "the log"),
        MemoryTerm("CUDA graphs", None, 0.5, "not seen: no log of this start was read"),
        MemoryTerm("KV cache", 40.25, 41.5, "/metrics | cache_config_info"),
    ),
    (GpuHolders("0", 79.19, 60.1, 2.5, 16.59),),
)

HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold]<script>alert(1)</script>{{ 7*7 }}$(reboot)\u202etxt.exe\r\n\x00 :smile: end"
