"""What `explain` says of a name that is no option: a metric, an architecture, a quantization, a backend."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.rules.explain import _named, about, nearest_option
from vllm_doctor.rules.launch import vd526_known_issue as vd526
from vllm_doctor.rules.order import INTERNAL


@pytest.mark.parametrize(
    ("name", "at", "lines"),
    [
        ("vllm_num_requests_running", None,
         ["vllm:num_requests_running", "A gauge, with the labels model_name, engine."]),
        ("vllm:prompt_tokens_total", "0.6.0",
         ["vllm:prompt_tokens_total", "A counter, with the labels model_name, engine.", "vLLM 0.6.0 has it."]),
        ("vllm:prompt_tokens", "0.9.0",
         ["vllm:prompt_tokens", "A counter, with the labels model_name, engine.", "vLLM 0.9.0 has it."]),
        ("vllm:e2e_request_latency_seconds_bucket", None,
         ["vllm:e2e_request_latency_seconds", "A histogram, with the labels model_name, engine."]),
        ("LlamaForCausalLM", "0.20.0", ["LlamaForCausalLM", "An architecture of models.", "vLLM 0.20.0 has it."]),
        ("awq_marlin", "0.9.0",
         ["awq_marlin",
          "A quantization; it asks for compute capability 8.0; activations in float16, bfloat16.",
          "vLLM 0.9.0 has it."]),
        ("FLASH_ATTN", None, ["FLASH_ATTN", "An attention backend; it asks for compute capability >=8.0."]),
        ("TRITON_MLA", "0.4.0", ["TRITON_MLA", "An attention backend.", "vLLM 0.4.0 does not have it."]),
    ],
)  # fmt: skip
def test_a_name_is_told_with_what_it_is_and_whether_a_release_has_it(
    name: str, at: str | None, lines: list[str]
) -> None:
    told = _named(name, as_version(at) if at else None)
    assert [told[0], "", told[2], *told[4:]] == [f"# {lines[0]}", "", *(f"- {line}" for line in lines[1:])]
    assert told[3].startswith("- In vLLM 0.")
    assert told[3].endswith(" (of the releases that were read).")


def test_a_metric_that_was_replaced_names_its_releases_and_the_note() -> None:
    told = _named("vllm:gpu_cache_usage_perc", as_version("0.10.0"))
    assert told[3:5] == ["- In vLLM 0.2.3 to 0.11.2 (of the releases that were read).", "- vLLM 0.10.0 has it."]
    assert told[5].startswith("- From 0 to 1 in spite of its name;")
    assert _named("nothing", None) == []


@pytest.mark.parametrize(
    ("typed", "meant"), [("--max-model-length", "max-model-len"), ("max_num_seq", "max-num-seqs"), ("zzzz", None)]
)
def test_a_mistyped_option_is_told_by_the_nearest_one(typed: str, meant: str | None) -> None:
    assert nearest_option(typed) == meant


def _crash(first: int, message: str) -> SimpleNamespace:
    return SimpleNamespace(first=first, root=SimpleNamespace(message=message))


@pytest.mark.parametrize(
    ("crashes", "found"),
    [
        ([_crash(4, "it broke")], None),  # before the line that says it
        ([_crash(5, "it broke")], None),
        ([_crash(6, "it broke")], 0),
        ([_crash(6, "it broke\nand more")], 0),
        ([_crash(6, "and more\nit broke")], None),
        ([_crash(6, "")], None),
        ([_crash(6, "other"), _crash(7, "it broke"), _crash(8, "it broke")], 1),
        ([*(_crash(6, "other") for _ in range(49)), _crash(7, "it broke")], 49),
        ([*(_crash(6, "other") for _ in range(50)), _crash(7, "it broke")], None),
    ],
)
def test_the_traceback_of_a_line_is_a_later_one_that_ends_with_it(
    crashes: list[SimpleNamespace], found: int | None
) -> None:
    lines = [SimpleNamespace(text="") for _ in range(9)]
    lines[5] = SimpleNamespace(text="ERROR it broke (EngineCore)")
    run = SimpleNamespace(lines=lines, crashes=crashes)
    root = SimpleNamespace(crash=None, index=5)
    own = SimpleNamespace(crash=_crash(1, ""), index=5)
    asked: Callable[[object, object], object] = vd526._crash  # type: ignore[assignment]
    assert asked(run, root) is (None if found is None else crashes[found])
    assert asked(run, own) is own.crash
    assert asked(None, root) is None


def test_the_code_of_a_failed_rule_is_explained() -> None:
    told = about(INTERNAL.lower(), None)
    assert told is not None
    assert told.startswith(f"# {INTERNAL}")
