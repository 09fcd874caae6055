"""Every failure has a layer: told by what its exception says, else by its innermost call."""

import re

import pytest

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.layers import layer_of, layers
from vllm_doctor.knowledge.layers.headings import named_parts

SITE = "/opt/v/lib/python3.12/site-packages"


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.id)
def test_it_says_what_to_do_next_and_its_patterns_are_sound(layer: object) -> None:
    told = next(one for one in layers() if one is layer)
    assert told.next
    assert told.name[0].isupper()
    by_titles = {row.layer for row in named_parts()}  # what no program says, a person does
    assert told.said or told.files or told.symbols or told.id in by_titles
    for regex in (told.said, told.files, told.symbols, *(a.said for a in told.answers)):
        re.compile(regex)


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.id)
def test_a_release_has_one_of_the_options_that_it_answers_with(layer: object) -> None:
    told = next(one for one in layers() if one is layer)
    for answer in told.answers:
        if answer.kind == "flag":
            assert any(versions.flag(option, at) is not None for option in answer.options for at in ("0.9.2", "0.33.0"))


@pytest.mark.parametrize(
    ("said", "files", "layer"),
    [
        ("AssertionError: ", [f"{SITE}/vllm/engine/llm_engine.py", f"{SITE}/xgrammar/matcher.py"], "structured-output"),
        (
            "IndexError: x",
            [f"{SITE}/vllm/v1/engine/core.py", f"{SITE}/vllm/v1/core/sched/scheduler.py"],
            "cache-blocks",
        ),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
            [f"{SITE}/torch/cuda/__init__.py"],
            "processes",
        ),
        ("ValueError: Attempted to assign 3 x 7 = 21 multimodal tokens to 20 placeholders", [], "multimodal"),
        ("ValueError: Ray does not allocate any GPUs on the driver node.", [f"{SITE}/vllm/x.py"], "ray"),
        (
            "RuntimeError: x",
            [f"{SITE}/vllm/model_executor/models/a.py", f"{SITE}/torch/nn/modules/conv.py"],
            "model-code",
        ),
        ("RuntimeError: x", [f"{SITE}/vllm/model_executor/layers/fused_moe/layer.py"], "experts"),
    ],
)
def test_the_layer_of_a_failure(said: str, files: list[str], layer: str) -> None:
    found = layer_of((said,), files)
    assert found is not None
    assert found.id == layer


def test_what_the_first_exception_says_weighs_more_than_calls_and_they_more_than_what_followed() -> None:
    calls = [f"{SITE}/vllm/v1/engine/core.py"]
    first = layer_of(("RuntimeError: NCCL error", "Failure: ray::x"), calls)
    then = layer_of(("RuntimeError: x", "Failure: ray::x"), calls)
    assert first is not None
    assert first.id == "ranks"
    assert then is not None
    assert then.id == "engine"


def test_what_nothing_tells_has_no_layer() -> None:
    assert layer_of(("LookupError: x",), ["/srv/app/main.py"]) is None


def test_an_answer_for_one_message_is_not_given_to_another() -> None:
    part = next(one for one in layers() if one.id == "structured-output")
    broken = "OSError: /root/.cache/torch_extensions/py310/xgrammar/xgrammar.so: cannot open shared object file"
    assert "torch-extensions-cache" in {o for a in part.answers if applies(a, broken) for o in a.options}
    assert "torch-extensions-cache" not in {o for a in part.answers if applies(a, "AssertionError") for o in a.options}


RANKS, CPU = f"{SITE}/torch/distributed/distributed_c10d.py", f"{SITE}/vllm/model_executor/layers/linear.py"


@pytest.mark.parametrize(
    ("said", "files", "layer", "option"),
    [
        ("RuntimeError: Cannot find ptxas", [f"{SITE}/triton/common/backend.py"], "compiler", "TRITON_PTXAS_PATH"),
        ("RuntimeError: HIP error: invalid argument", [f"{SITE}/torch/cuda/x.py"], "cuda", "AMD_SERIALIZE_KERNEL"),
        ("DistBackendError: [2] reads from [0] via c10d key-value store by key '0', but store->get('0') got error: x",
         [RANKS], "ranks", "rank-0"),
        ("RuntimeError: [07:01:02] /project/cpp/grammar_parser.cc:9: EBNF parse error at line 4, column 2: Expect x",
         [f"{SITE}/vllm/v1/structured_output/backend_xgrammar.py"], "structured-output", "client-input"),
        ("ValueError: acme/chat is not a multimodal model", [f"{SITE}/vllm/entrypoints/chat_utils.py"], "multimodal",
         "client-input"),
        ("ValueError: t:1 must be larger than temporal_factor:4",
         [f"{SITE}/transformers/models/a/video_processing_a.py"], "multimodal", "client-input"),
        ("RuntimeError: Unable to get JIT kernel for brgemm. Params: M=8", [CPU], "libraries", "dtype"),
        ("ValueError: a 9-D mesh", [f"{SITE}/vllm/distributed/weight_transfer/m2n_common.py"], "weight-transfer",
         "weight-transfer-config"),
        ("ValueError: must be unique", [f"{SITE}/vllm/distributed/ec_transfer/ec_connector/x.py"], "ec-transfer",
         "ec-transfer-config"),
        ("RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at", [f"{SITE}/torch/cuda/__init__.py"],
         "cuda", "CUDA_VISIBLE_DEVICES"),
        ("RuntimeError: cannot read 'x' from env var ACME_HOSTS", [], "environment", "{variable}"),
        ("ZMQError: Address family not supported by protocol", [f"{SITE}/zmq/sugar/socket.py"], "system",
         "RestrictAddressFamilies"),
        ("Exception: HTTP status client error (403 Forbidden) for url (https://models.example.org/a)", [], "hub",
         "hub-access"),
        ("AssertionError: ", [f"{SITE}/prometheus_client/mmap_dict.py"], "metrics", "PROMETHEUS_MULTIPROC_DIR"),
        ("SnapshotRestoreError: a process ended", [f"{SITE}/vllm/snapshot/runtime.py"], "snapshot", "snapshot"),
    ],
)  # fmt: skip
def test_the_first_answer_of_a_failure(said: str, files: list[str], layer: str, option: str) -> None:
    part = layer_of((said,), files)
    assert part is not None
    assert part.id == layer
    assert (
        next(a.options[0] for a in part.answers if applies(a, f"{said}\n" + "\n".join(files)) and a.options) == option
    )


def test_what_names_a_call_on_nvidia_s_cards_is_not_asked_of_amd_s() -> None:
    part = next(one for one in layers() if one.id == "cuda")
    of = {maker: {o for a in part.answers if applies(a, f"{maker} error: invalid argument") for o in a.options}
          for maker in ("CUDA", "HIP")}  # fmt: skip
    assert "CUDA_LAUNCH_BLOCKING" in of["CUDA"] - of["HIP"]
    assert "AMD_SERIALIZE_KERNEL" in of["HIP"] - of["CUDA"]
