"""The call that raises in a sentence's words, found without the sentence (knowledge/said_by/)."""

import pytest

from vllm_doctor.knowledge.layers import layer_of
from vllm_doctor.knowledge.library_places import library_place_of
from vllm_doctor.knowledge.said_by import fingerprints, said_by, told_by
from vllm_doctor.knowledge.said_by.short import is_whole, short_rows, whole_of
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.match import says

# Sentences of releases with figures of our own, as people quote them, and the function that says them.
QUOTED = [
    ("AssertionError", "Sinks are only supported in FlashAttention 3", "v1/attention/backends/flash_attn.py"),
    (
        "ValueError",
        "The output_size of gate's and up's weight = 96 is not divisible by weight quantization block_n = 64.",
        "model_executor/layers/quantization/",
    ),
    (
        "ValidationError",
        "Value error, max_num_batched_tokens (64) must be greater than or equal to max_num_seqs (65).",
        "config/scheduler.py",
    ),
    ("RuntimeError", "custom allreduce only supports float32, float16 and bfloat16", "csrc/custom_all_reduce.cu"),
    (
        "NotImplementedError",
        "No compiled nvfp4 mm kernel for SM 75. Recompile with CUDA >= 12.8 and CC >= 100.",
        "csrc/quantization/fp4/",
    ),
]


@pytest.mark.parametrize(("kind", "message", "file"), QUOTED)
def test_a_quoted_sentence_tells_the_file_that_raises_it(kind: str, message: str, file: str) -> None:
    told = said_by(kind, message)
    assert told is not None
    assert told.file.startswith(f"vllm/{file}")
    assert says(f"/site-packages/{told.file}", "call-of-vllm")


# The same of libraries, whose place tells what they read for vLLM.
_TOOL = "Function name was a but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64."
OF_LIBRARIES = [
    ("ValueError", "Argument label2id should be a dictionary.", "model-config-file"),
    ("TypeError", "runtime_env['uv']['uv_version'] must be of type str, got <class 'float'>", "ray-environment"),
    ("ValidationError", "Value error, group_size requires strategy to be set to 'group'", "quantization-config"),
    ("InvalidToolException", _TOOL, "mistral-message"),
]


# Compiled code of FlashInfer lies in its wheel; each check tells by its own words of which part it is.
_CUDA = "Check failed: (status == cudaSuccess) is false: "
OF_FLASHINFER = [
    (f"{_CUDA}Failed to plan MLA, error: no kernel image", "batch_mla_", "attention"),
    ("Assertion failed: swap_ab must be true for mixed dtype WS grouped GEMM", "moe_gemm/", "experts"),
    (
        "Check failed: mat1.dtype() == FLOAT4_E2M1X2 (1 vs. 2) : mat1 must be FLOAT4_E2M1X2 (uint8)",
        "fp4_gemm",
        "quantized",
    ),
    (f"{_CUDA}allreduce_fusion_op failed with error code999", "trtllm_allreduce_fusion", "ranks"),
]


@pytest.mark.parametrize(("message", "file", "part"), OF_FLASHINFER)
def test_a_check_of_flashinfers_compiled_code_tells_its_kernel(message: str, file: str, part: str) -> None:
    told = said_by("RuntimeError", message)
    assert told is not None
    assert told.file.startswith("flashinfer/data/")
    assert file in told.file
    path = f"/site-packages/{told.file}"
    place = library_place_of(path, told.function, told.kind, serving=None)
    layer = layer_of((), (path,))
    assert (place.layer if place is not None else layer.id if layer is not None else "") == part


def test_a_check_that_every_kernel_of_flashinfer_has_tells_none() -> None:
    assert said_by("RuntimeError", _CUDA) is None


@pytest.mark.parametrize(("kind", "message", "place"), OF_LIBRARIES)
def test_a_librarys_sentence_tells_the_place_that_raises_it(kind: str, message: str, place: str) -> None:
    told = said_by(kind, message)
    assert told is not None
    assert not told.own
    found = library_place_of(f"/site-packages/{told.file}", told.function, told.kind, serving=None)
    assert found is not None
    assert found.id == place
    assert said_by(kind, message, libraries=False) is None


def test_a_check_that_several_kernels_copy_tells_that_it_is_compiled_code() -> None:
    told = said_by("RuntimeError", "Computation type must be float16 (half) when using float zero points.")
    assert told is not None
    assert (told.file, told.function) == ("vllm/csrc/", "")


def test_calls_of_a_library_that_are_answered_alike_are_one() -> None:
    """Transformers' cache and its loader say so of a file that a folder lacks; what to do is the same."""
    told = said_by("OSError", "acme/chat does not appear to have a file named config.json.")
    assert told is not None
    found = library_place_of(f"/site-packages/{told.file}", told.function, told.kind, serving=None)
    assert found is not None
    assert ("os", ("model-files",)) in [(answer.kind, answer.options) for answer in found.answers]


def test_a_sentence_of_a_parser_of_vllm_and_of_a_library_tells_neither() -> None:
    """vLLM's tool parsers took XGrammar's check and its words."""
    assert said_by("ValueError", "The tool with name 'find_room' is not found in the tools list.") is None


def test_a_sentence_that_every_model_of_a_library_copies_tells_their_part() -> None:
    told = said_by("ValueError", "backbone_config must be a dictionary or a `PretrainedConfig`, got <class 'list'>.")
    assert told is not None
    assert told.file.startswith("transformers/models/")


def test_a_sentence_of_several_releases_is_told_of_the_one_that_runs() -> None:
    """0.9.2 has the whole configuration in one file, later releases each part in its own."""
    kind, message, _ = QUOTED[2]
    old, new = (said_by(kind, message, as_version(version)) for version in ("0.9.2", "0.33.0"))
    assert old is not None
    assert new is not None
    assert (old.file, new.file) == ("vllm/config.py", "vllm/config/scheduler.py")
    assert old.last < new.first


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("TypeError", QUOTED[0][1]),  # nobody raises it as this
        ("AssertionError", "Sinks are only supported in"),  # cut
        ("RuntimeError", "the room has no door"),
        ("ValueError", ""),
        ("NotImplementedError", "rolling_median is not implemented"),  # what whoever leaves a method open says
        ("TypeError", "QuerySet indices must be integers or slices, not str."),  # Python's own of a list
        ("ValueError", "attempt to assign sequence of size 3 to extended slice of size 2"),
    ],
)
def test_what_no_release_says_tells_nothing(kind: str, message: str) -> None:
    assert said_by(kind, message) is None


def test_words_that_hold_a_value_are_no_sign() -> None:
    assert told_by("block of \0 is too small", "\0") == ""  # one run of three words
    whole = told_by("this release takes no block of \0 tokens", "\0")
    assert len(whole) == 18
    said = fingerprints("ERROR this release takes no block of 17 tokens at all")
    assert all(whole[i : i + 6] in said for i in (0, 6, 12))


# Too short for three fingerprints: the whole sentence, with figures of our own.
SHORT = [
    ("AttributeError", "Invalid attention type seventh", "vllm/v1/attention/backends/"),
    ("RuntimeError", "Profiler is not enabled.", "vllm/v1/worker/"),
    ("KeyError", "'Backend cute not supported'", "flashinfer/"),
    ("TokenizerException", "Unrecognized tokenizer filename: tokenizer.model.v99", "mistral_common/tokens/"),
    ("ValueError", "Unsupported tokenizer type: <class 'acme.Tok'>", "xgrammar/tokenizer_info.py"),
]


@pytest.mark.parametrize(("kind", "message", "file"), SHORT)
def test_a_short_sentence_is_told_by_the_whole_of_it(kind: str, message: str, file: str) -> None:
    told = said_by(kind, message)
    assert told is not None
    assert told.file.startswith(file)
    assert said_by(kind, f"{message} and so on") is None
    assert said_by(kind, f"so {message}") is None


@pytest.mark.parametrize(
    ("sentence", "text", "fits"),
    [
        ("Unknown role: {}", "Unknown role: developer", True),
        ("Unknown role: {}", "Unknown role: ['a', 'b c']", True),
        ("Unknown role: {}", "Unknown role: <class 'acme.Role'>", True),
        ("Unknown role: {}", "Unknown role: this server has no roles", False),  # a sentence, no value
        ("Unknown role: {}", "Unknown role: ", False),
        ("only {} of the ranks came in", "only 3 (of 4) of the ranks came in", True),  # four words tell enough
        ("{} is not divisible by {}", "28 is not divisible by 3", True),
        ("{} is not divisible by {}", "is not divisible by 3", False),
        ("rows {} of {}", "rows 7 of 9 of 11", False),
        ("Executor failed", "Executor failed", True),
        ("Executor failed", "Executor failed again", False),
        ("kind={}; one of {}", "kind='int3'; one of ('fp4', 'fp8')", True),
    ],
)
def test_a_value_stands_in_each_hole(sentence: str, text: str, fits: bool) -> None:
    assert is_whole(sentence, text) is fits


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("received \0.", ""),  # one word
        ("bad \0 or it", ""),  # few letters
        ("Unknown  role:\n\0.", "Unknown role: {}"),
    ],
)
def test_too_little_is_no_sentence(text: str, whole: str) -> None:
    assert whole_of(text, "\0") == whole


def test_a_reason_that_pydantic_quotes_is_a_sentence_too() -> None:
    rows = ["max seats {} is odd\t1", "{} is odd of all\t2", "seats={} are odd\t3"]
    quoted = "1 validation error for Room\n  Value error, max seats 7 is odd [type=value_error, input_value=7]"
    assert list(short_rows(sorted(rows), "ValidationError", quoted)) == [rows[0]]
    assert list(short_rows(sorted(rows), "ValueError", "seats=7 are odd.")) == [rows[2]]
    assert list(short_rows(sorted(rows), "ValueError", "7 is odd of all")) == [rows[1]]
