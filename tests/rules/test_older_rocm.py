"""ROCm before V1: its attention is Triton's or CK's, by one variable, and NVIDIA's backends are none of its choices."""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("file", "offered"),
    [
        ("vllm/attention/ops/triton_flash_attention.py", ("VLLM_USE_TRITON_FLASH_ATTN", "0")),
        ("vllm/v1/attention/backends/triton_attn.py", ("attention-backend", "ROCM_ATTN")),
    ],
)
def test_what_triton_cannot_compile_for_amd(file: str, offered: tuple[str, str]) -> None:
    lines = [
        "INFO 03-14 09:01:00 model_runner.py:1060] Starting to load model example/model-8b...",
        "Traceback (most recent call last):",
        f'  File "{SITE}/{file}", line 806, in forward',
        "    attn_fwd[grid](",
        f'  File "{SITE}/triton/backends/amd/compiler.py", line 255, in make_hsaco',
        "    hsaco = amd.assemble_amdgcn(src)",
        "RuntimeError: this kernel is not for the card",
    ]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert [(c.name, c.after) for c in judged.findings[0].changes][:1] == [offered]
