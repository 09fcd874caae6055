"""A library's own refusal: the place in its code tells what it read (a file, a setting, a request), or its sentence."""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages"
LOADS = [
    ("vllm/v1/worker/gpu_worker.py", "load_model"),
    ("vllm/model_executor/model_loader/base_loader.py", "load_model"),
]


def _finding(file: str, function: str, raised: str) -> Finding:
    prefix = "(EngineCore pid=812) ERROR 03-14 09:12:44 [core.py:1124] "
    lines = ["(APIServer pid=640) INFO 03-14 09:11:58 [api_server.py:1977] vLLM API server version 0.33.0"]
    lines += [prefix + "EngineCore failed to start.", prefix + "Traceback (most recent call last):"]
    for called, name in LOADS:
        lines += [f'{prefix}  File "{SITE}/{called}", line 210, in {name}', f"{prefix}    return self.inner(*args)"]
    lines += [
        f'{prefix}  File "{SITE}/{file}", line 77, in {function}',
        f"{prefix}    raise ValueError(",
        prefix + raised,
    ]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    return judged.findings[0]


@pytest.mark.parametrize(
    ("file", "function", "raised", "title", "changes"),
    [
        (
            "transformers/generation/configuration_utils.py", "validate",
            "ValueError: `num_return_sequences` (4) has to be smaller or equal to `num_beams` (1).",
            "Transformers refuses a value of generation_config.json",
            [("generation-config", "vllm"), ("model-files", None)],
        ),
        (
            "ray/util/placement_group.py", "check_placement_group_index",
            "ValueError: placement group bundle index 4 is invalid. Valid placement group indexes: 0-4",
            "Ray: placement group bundle index 4 is invalid",
            [("VLLM_RAY_BUNDLE_INDICES", None), ("ray-resources", None)],
        ),
        (
            "torch/_dynamo/package.py", "initialize",
            "RuntimeError: Source code changes detected for vllm.model_executor.models.llama (line 380 - line 431)",
            "What an earlier start compiled does not fit this code",
            [("torch-compile-cache", None), ("VLLM_DISABLE_COMPILE_CACHE", "1"), ("VLLM_USE_AOT_COMPILE", "0")],
        ),
        (
            "lmcache/v1/config.py", "_from_file", "ValueError: Invalid remote storage url: redis-1:6379",
            "The KV connector: Invalid remote storage url: redis-1:6379", [("lmcache-config", None)],
        ),
        (  # nobody has read the place: the sentence itself names what is read
            "torch/cuda/__init__.py", "_parse_visible_devices",
            "RuntimeError: HIP_VISIBLE_DEVICES contains more devices than ROCR_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES contains more devices than ROCR_VISIBLE_DEVICES",
            [("HIP_VISIBLE_DEVICES", None), ("ROCR_VISIBLE_DEVICES", None)],
        ),
    ],
    ids=lambda one: one if isinstance(one, str) and one.endswith(".py") else "",
)  # fmt: skip
def test_the_place_tells_what_to_change(
    file: str, function: str, raised: str, title: str, changes: list[tuple[str, str | None]]
) -> None:
    found = _finding(file, function, raised)
    assert (found.title, [(c.name, c.after) for c in found.changes]) == (title, changes)


def test_a_hint_for_debugging_is_no_change() -> None:
    found = _finding("triton/knobs.py", "from_env", "RuntimeError: broken. Set TORCHDYNAMO_VERBOSE=1 and TRITON_DEBUG")
    assert not [c for c in found.changes if c.name.startswith(("TORCHDYNAMO", "TRITON"))]


def _quoted(*lines: str) -> Finding:
    """What is answered to a last line that somebody quotes without its calls."""
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(list(lines), "log"), "log")))
    return judged.findings[0]


@pytest.mark.parametrize(
    ("said", "code", "part", "changes"),
    [
        ("ValueError: Argument label2id should be a dictionary.", "VD527", "model-config",
         ["model-files", "hf-overrides"]),
        ("TypeError: runtime_env['pip']['pip_check'] must be of type bool, got <class 'str'>", "VD527", "ray",
         ["runtime-env"]),
        ("ValueError: Casting a Quark quantized model to a new `dtype` is not supported.", "VD527", "model-code",
         ["dtype", "model-impl", "transformers"]),
        ("ValueError: Could not make batched video from [None]", "VD527", "multimodal", ["client-input"]),
        # two parts say it: neither is told
        ("ValueError: The tool with name 'find_room' is not found in the tools list.", "VD599", "", []),
    ],
    ids=lambda one: one[:40] if isinstance(one, str) else "",
)  # fmt: skip
def test_a_quoted_line_of_a_library_is_answered_by_its_place(
    said: str, code: str, part: str, changes: list[str]
) -> None:
    found = _quoted(said)
    assert (found.code, found.layer, [c.name for c in found.changes]) == (code, part, changes)
    assert found.confidence is Confidence.LIKELY


def test_pydantics_heading_hides_no_place_of_a_library() -> None:
    found = _quoted(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for AudioChunk",
        "input_audio",
        "  Value error, `input_audio` should not be empty. [type=value_error, input_value='', input_type=str]",
    )
    assert (found.code, found.layer, found.changes[0].name) == ("VD527", "requests", "client-input")


@pytest.mark.parametrize(
    ("said", "name", "command"),
    [
        ("accelerate is required when loading a GGUF file `pip install accelerate`.", "accelerate",
         "pip install accelerate"),
        ('you need to install the hf_xet package. Try `pip install "huggingface_hub[hf_xet]"` or `pip install hf_xet`.',
         "huggingface-hub", "pip install 'huggingface-hub[hf_xet]'"),
        ("TorchAoConfig requires torchao > 0.9.0 for construction from dict", "torchao", "pip install torchao"),
    ],
)  # fmt: skip
def test_a_package_that_a_library_asks_for_comes_first(said: str, name: str, command: str) -> None:
    found = _finding("transformers/modeling_utils.py", "from_pretrained", f"ValueError: {said}")
    assert (found.changes[0].name, found.changes[0].command) == (name, command)


def test_a_package_that_nobody_has_read_is_named_in_no_command() -> None:
    found = _finding("transformers/modeling_utils.py", "from_pretrained", "ValueError: please `pip install reqeusts`")
    assert not [c for c in found.changes if "reqeusts" in f"{c.name} {c.command}"]
