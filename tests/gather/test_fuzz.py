"""Whatever a host says, it becomes a reading; no text of it breaks the doctor."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from vllm_doctor.gather import journal, kernel, nvidia_smi, nvml_said, systemd
from vllm_doctor.gather.launch import is_vllm, parse_argv
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.redact.visible import visible

TEXT = st.text(max_size=200)
WORDS = st.lists(
    st.one_of(TEXT, st.sampled_from(["vllm", "serve", "--max-model-len", "--api-key", "-tp", "-", "--", "="]))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda s: st.lists(s) | st.dictionaries(TEXT, s), max_leaves=8
)


@given(WORDS)
def test_command_lines(words: list[str]) -> None:
    is_vllm(words)
    parse_argv(words, {"A": "b"})


@given(TEXT)
@example('{ path=/x ; argv[]=/x {"a" [ ; ignore_errors=no }')
def test_exec_start(text: str) -> None:
    assert all(systemd.exec_start(text)) or systemd.exec_start(text) == ()


@given(st.lists(JSON, max_size=6))
def test_journal_rows(rows: list[object]) -> None:
    data = "\n".join(json.dumps(row) for row in rows).encode() + b'\n{"MESSAGE": "cut'
    for row in journal._rows(data):
        assert isinstance(journal._line(row), str)


@given(st.lists(TEXT, max_size=10))
def test_kernel_lines(lines: list[str]) -> None:
    assert len(kernel.events([*lines, "NVRM: Xid"])) >= 1


@given(TEXT)
@example("GPU 00000000:00:00.0\n    FB Memory Usage\n")
def test_nvidia_smi(text: str) -> None:
    assert isinstance(nvidia_smi.gpus(text, "f"), Known | Unknown)


@given(st.lists(JSON, max_size=4), st.binary(max_size=50))
def test_what_a_dying_child_leaves(rows: list[object], rest: bytes) -> None:
    nvml_said.parse_said("\n".join(json.dumps(row) for row in rows).encode() + b"\n" + rest)


@given(TEXT)
def test_nothing_invisible_or_moving_is_shown(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable() or not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert "\x1b" not in shown
