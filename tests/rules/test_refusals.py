"""Refusals of vLLM at the end of a start: the option, variable or package that they name is the change.

The sentences are ours, built the way that vLLM's are; files and functions are vLLM's own.
"""

import itertools

import pytest

from vllm_doctor.knowledge.parser import knows
from vllm_doctor.knowledge.versions import flag_names, newest_known
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import ChangeKind, Phase
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.order import INTERNAL

SITE = "/opt/vllm/lib/python3.12/site-packages"
LAUNCH = {
    "model": "example/model-8b",
    "max_model_len": 32768,
    "tensor_parallel_size": 8,
    "pipeline_parallel_size": 2,
    "enable_lora": True,
    "kv_cache_dtype": "fp8",
}
# Where a step of the start fails, outermost call first.
STEPS = {
    "config": (("entrypoints/openai/api_server.py", "run_server"), ("engine/arg_utils.py", "create_engine_config")),
    "weights": (("v1/engine/core.py", "run_engine_core"), ("v1/worker/gpu_worker.py", "load_model")),
    "profile": (("v1/engine/core.py", "run_engine_core"), ("v1/worker/gpu_worker.py", "determine_available_memory")),
    "serving": (("v1/engine/core.py", "run_busy_loop"), ("v1/worker/gpu_model_runner.py", "execute_model")),
}
MEMORY = {p for p in Phase if p.startswith(("startup-", "runtime-"))} | {
    Phase.HOST_RAM,
    Phase.MULTIMODAL_ENCODER,
    Phase.OTHER_PROCESS_ON_GPU,
}


def judged(
    sentence: str, file: str, kind: str = "ValueError", *, step: str = "config", version: str = "0.19.1"
) -> Diagnosis:
    api, core = "(APIServer pid=41) ", "(EngineCore pid=42) "
    lines = [
        f"{api}INFO 03-14 09:01:00 [api_server.py:18] vLLM API server version {version}",
        f"{api}INFO 03-14 09:01:00 [utils.py:23] non-default args: {LAUNCH}",
    ]
    if step != "config":
        lines += [
            f"{core}INFO 03-14 09:03:00 [core.py:105] Initializing a V1 LLM engine (v{version}) with config: a='b'",
            f"{core}INFO 03-14 09:04:00 [gpu_model_runner.py:47] Starting to load model example/model-8b...",
        ]
    if step == "serving":
        lines.append(f"{api}INFO:     Application startup complete.")
    calls = [*STEPS[step], (file, "check")]
    trace = ["Traceback (most recent call last):"]
    for path, function in calls:
        trace += [f'  File "{SITE}/vllm/{path}", line 100, in {function}', "    call()"]
    own = api if step == "config" else f"{core}ERROR 03-14 09:05:00 [core.py:11] "
    lines += [own + t for t in (*trace, f"{kind}: {sentence}")]
    if step != "config":
        ended = "Engine core initialization failed. See root cause above." if step != "serving" else "EngineCore died"
        lines.append(f"{api}RuntimeError: {ended}")
    return diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")))


def changes(diagnosis: Diagnosis) -> list[tuple[str, str, object]]:
    return [(c.name, c.direction.value, c.after) for c in diagnosis.findings[0].changes]


REFUSED = [
    ("LoRA is not supported with these experts.", "config/lora.py", "config", ("enable-lora", "remove", None)),
    (
        "Pipeline parallelism is not supported for this kind.",
        "config/model.py",
        "config",
        ("pipeline-parallel-size", "lower", 1),
    ),
    ("the backend hasn't FP8: FP8 KV cache is not supported", "v1/attention/backends/x.py", "weights",
     ("kv-cache-dtype", "remove", None)),
    ("Weight input_size_per_partition = 192 is not divisible by block_k = 128.",
     "model_executor/layers/quantization/utils/x.py", "weights", ("tensor-parallel-size", "lower", 4)),
    ("12 is not divisible by 8", "distributed/utils.py", "weights", ("tensor-parallel-size", "lower", 6)),
    ("The sizes are not aligned with the quantized weight shape, by too large tensor parallel size.",
     "model_executor/layers/quantization/awq.py", "weights", ("tensor-parallel-size", "lower", 4)),
    ("relaunch it with VLLM_USE_V2_MODEL_RUNNER=1.", "model_executor/models/x.py", "weights",
     ("VLLM_USE_V2_MODEL_RUNNER", "set", 1)),
    ("Cannot combine these. Please pass --disable-hybrid-kv-cache-manager instead.",
     "distributed/kv_transfer/kv_connector/factory.py", "weights", ("disable-hybrid-kv-cache-manager", "add", True)),
    ("The entries of the rates must be in [0, 1], got 3.", "config/speculative.py", "config",
     ("speculative-config", "change", None)),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "file", "step", "change"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_a_refusal_names_is_the_change(
    sentence: str, file: str, step: str, change: tuple[str, str, object]
) -> None:
    diagnosis = judged(sentence, file, step=step)
    assert diagnosis.findings[0].code == "VD503"
    assert changes(diagnosis)[0] == change


def test_a_check_of_the_configuration_that_names_nothing_is_answered_by_the_option_of_its_file() -> None:
    diagnosis = judged("this method of drafting is unsupported", "config/speculative.py", "NotImplementedError")
    assert diagnosis.findings[0].code == "VD503"
    assert changes(diagnosis) == [("speculative-config", "change", None)]


def test_an_option_that_was_not_given_is_not_taken_out() -> None:
    assert changes(judged("Sleep mode is not supported here.", "config/model.py")) == []


def test_the_option_has_the_name_of_its_release() -> None:
    told = "num_speculative_tokens must be set"
    assert changes(judged(told, "config/speculative.py", version="0.19.1"))[0][0] == "speculative-config"
    assert changes(judged(told, "config.py", version="0.6.6"))[0][0] == "num-speculative-tokens"


def test_an_option_that_vllm_itself_names_was_one_of_that_unknown_release() -> None:
    assert "enable-reasoning" not in flag_names(newest_known())
    lines = [
        "Traceback (most recent call last):",
        f'  File "{SITE}/vllm/entrypoints/openai/cli_args.py", line 285, in validate_parsed_serve_args',
        "    raise TypeError(",
        "TypeError: --enable-lora and --enable-reasoning cannot be enabled together",
    ]
    told = diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")))
    assert told.findings[0].code == "VD503"
    assert all(one.layer != "requests" for one in told.findings)  # the command line answers none
    assert [c for c in changes(told) if c[0] == "enable-reasoning"] == [("enable-reasoning", "remove", None)]


def test_a_missing_package_is_the_environment_and_has_its_name() -> None:
    diagnosis = judged("Please install timm", "model_executor/models/x.py", "ImportError", step="weights")
    assert diagnosis.findings[0].code == "VD514"
    assert changes(diagnosis) == [("timm", "add", None)]


def test_a_part_that_refuses_without_a_name_is_answered_by_its_own_option() -> None:
    diagnosis = judged("Unsupported num_bits = 3", "model_executor/layers/quantization/gptq.py", step="weights")
    assert diagnosis.findings[0].code == "VD599"
    assert changes(diagnosis)[0][:2] == ("model", "change")


@pytest.mark.parametrize(
    ("sentence", "file", "change"),
    [
        ("Selected backend FANCY is not valid here.", "platforms/cuda.py", ("attention-backend", "remove", None)),
        ("CUDART error: peer access is not there", "distributed/device_communicators/cuda_wrapper.py",
         ("disable-custom-all-reduce", "add", True)),
        ("Inductor cache lookup failed.", "compilation/compiler_interface.py",
         ("torch-compile-cache", "remove", None)),
        ("sum(partitions)=30 does not match 32", "distributed/utils.py", ("VLLM_PP_LAYER_PARTITION", "change", None)),
        ("this shape is not supported yet", "model_executor/models/x.py", ("vllm-version", "upgrade", "0.33.0")),
    ],
)  # fmt: skip
def test_each_part_has_an_answer_of_its_own(sentence: str, file: str, change: tuple[str, str, object]) -> None:
    diagnosis = judged(sentence, file, "RuntimeError", step="weights")
    assert diagnosis.findings[0].code in {"VD527", "VD599"}  # by a name of the part's own, or by the part alone
    assert changes(diagnosis)[0] == change


def test_a_model_s_own_code_has_another_code_in_place_of_it_and_a_draft_s_has_not() -> None:
    other = ("model-impl", "set", "transformers")
    assert other in changes(judged("weights have 7 rows", "model_executor/models/x.py", step="weights"))
    assert other not in changes(judged("the draft has 7 rows", "model_executor/models/x.py", step="weights"))
    assert other not in changes(judged("weights have 7 rows", "model_executor/models/transformers/base.py"))
    assert other not in changes(judged("weights have 7 rows", "model_executor/models/x.py", version="0.6.6"))


def test_another_backend_is_one_that_can_do_it_under_the_name_of_the_release() -> None:
    told, file = "Sinks are only supported in another version", "v1/attention/backends/flash_attn.py"
    assert changes(judged(told, file, "AssertionError", step="weights")) == [
        ("attention-backend", "change", "TRITON_ATTN")
    ]
    old = judged(told, file, "AssertionError", step="weights", version="0.10.2")
    assert changes(old)[0][2] == "TRITON_ATTN_VLLM_V1"


def test_what_torch_raises_is_no_refusal() -> None:
    diagnosis = judged("set enable_lora=True", "../torch/nn/modules/module.py", "RuntimeError", step="profile")
    assert diagnosis.findings[0].code == "VD599"


def test_a_variable_that_only_shows_more_is_no_cure() -> None:
    assert changes(judged("it failed; set VLLM_LOGGING_LEVEL=DEBUG to see why", "platforms/cuda.py")) == []


SUBJECTS = (
    "KV cache blocks",
    "the encoder cache",
    "the prefix cache",
    "shared memory of the block",
    "CUDA memory pool",
    "unified memory",
    "the workspace buffer",
    "OOM handling",
    "CPU memory offload",
    "pinned memory",
    "GPU memory utilization of the draft",
    "the free list of blocks",
)
PREDICATES = (
    "must be >= 16, got 8",
    "is not supported with --enable-lora",
    "exceeds the allowed number 12",
    "is out of sync with block_size (16)",
    "requires enable_prefix_caching=True",
    "cannot be used on this platform",
    "was not allocated before it was asked for",
)
FILES = ("config/cache.py", "v1/core/kv_cache_utils.py", "v1/worker/gpu_model_runner.py", "device_allocator/cumem.py")
KINDS = ("ValueError", "AssertionError", "RuntimeError", "NotImplementedError")


@pytest.mark.parametrize("step", STEPS)
def test_words_of_memory_in_a_refusal_are_no_confirmed_lack_of_memory(step: str) -> None:
    """Every subject with every predicate, files and exceptions in turn."""
    turn = itertools.cycle(itertools.product(FILES, KINDS))
    for subject, predicate in itertools.product(SUBJECTS, PREDICATES):
        file, kind = next(turn)
        diagnosis = judged(f"{subject} {predicate}", file, kind, step=step)
        codes = {f.code for f in diagnosis.findings}
        assert INTERNAL not in codes
        assert not {f.phase for f in diagnosis.findings} & MEMORY, (subject, predicate, file, codes)


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
def test_only_options_that_the_release_has_are_offered(version: str) -> None:
    for sentence, file, step, _ in REFUSED:
        for finding in judged(sentence, file, step=step, version=version).findings:
            flags = {c.name for c in finding.changes if c.kind is ChangeKind.FLAG}
            assert flags <= knows(version) | {"model"}, (sentence, flags)
