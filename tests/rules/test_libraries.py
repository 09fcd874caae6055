"""A library that vLLM calls refuses, or does not fit: the answer names the part, quotes the raise and rules it out.

Composed of calls of 0.33.0 at start and of what the libraries raise, with figures of our own.
"""

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
RUNS = [
    ("vllm/v1/worker/gpu_worker.py", "determine_available_memory"),
    ("vllm/v1/worker/gpu_model_runner.py", "_dummy_run"),
]
READS = [("vllm/engine/arg_utils.py", "create_model_config"), ("vllm/transformers_utils/config.py", "get_config")]
ATTENDS = [*RUNS, ("vllm/v1/attention/backends/flashinfer.py", "forward")]
NAMES = [("vllm/tokenizers/registry.py", "cached_tokenizer_from_config"), ("vllm/tokenizers/hf.py", "from_pretrained")]
RAISES = "raise ValueError("
CALLS = "return self.make(**kwargs)"


def _finding(calls: list[tuple[str, str]], code: str, raised: str) -> Finding:
    prefix = "(EngineCore pid=812) ERROR 03-14 09:12:44 [core.py:1124] "
    lines = ["(APIServer pid=640) INFO 03-14 09:11:58 [api_server.py:1977] vLLM API server version 0.33.0"]
    lines += [prefix + "EngineCore failed to start.", prefix + "Traceback (most recent call last):"]
    for file, function in calls[:-1]:
        lines += [f'{prefix}  File "{SITE}/{file}", line 210, in {function}', f"{prefix}    return self.inner(*args)"]
    file, function = calls[-1]
    lines += [f'{prefix}  File "{SITE}/{file}", line 77, in {function}', f"{prefix}    {code}", prefix + raised]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings, raised
    return judged.findings[0]


REFUSED = [
    (READS, "transformers/utils/quantization_config.py", "ValueError: bits must be 2, 4 or 8, got 7", "quantized"),
    (NAMES, "transformers/models/llama/tokenization_llama.py", "ValueError: Unknown strategy: 7", "tokenizer"),
    (READS, "huggingface_hub/hf_api.py", "ValueError: Invalid repo type, one of 3", "hub"),
    (LOADS, "gguf/gguf_reader.py", "ValueError: Unknown field type 7", "weights"),
    (LOADS, "compressed_tensors/quantization/quant_args.py", "ValueError: Invalid group size 7", "quantized"),
    (RUNS, "bitsandbytes/functional.py", "ValueError: invalid blocksize 7", "quantized"),
    (ATTENDS, "flashinfer/decode.py", "ValueError: head group size 7 has no plan", "attention"),
    (LOADS, "transformers/models/example/modeling_example.py", "ValueError: scale 7 is odd", "model-code"),
]


@pytest.mark.parametrize(
    ("calls", "file", "raised", "part"), REFUSED, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_library_that_refuses_is_named_by_its_part(
    calls: list[tuple[str, str]], file: str, raised: str, part: str
) -> None:
    found = _finding([*calls, (file, "check")], RAISES, raised)
    assert (found.code, found.layer, found.confidence) == ("VD527", part, Confidence.LIKELY)
    assert raised in found.evidence[0].excerpt
    # Where another kernel does the same that comes first. What the place reads (a file, a checkpoint) is to change;
    # where nobody has read the place, the library's own release is the last thing to rule out.
    read = {
        "gguf": "model-files",
        "compressed_tensors": "model",
        "transformers/models/example/modeling": "hf-overrides",
    }
    last = [c.name for c in found.changes][-1]
    assert last == next((name for begun, name in read.items() if file.startswith(begun)), last)
    assert last in {"transformers", "huggingface-hub", "bitsandbytes", "flashinfer-python", *read.values()}
    assert (found.changes[0].name == "attention-backend") == (part == "attention")


@pytest.mark.parametrize(
    ("calls", "file", "raised", "name"),
    [
        (READS, "transformers/base.py", "TypeError: f() got an unexpected keyword argument 'x'", "transformers"),
        (LOADS, "compressed_tensors/base.py", "AttributeError: module 'm' has no attribute 'y'", "compressed-tensors"),
    ],
)  # fmt: skip
def test_a_library_that_is_not_as_vllm_knows_it_does_not_fit(
    calls: list[tuple[str, str]], file: str, raised: str, name: str
) -> None:
    found = _finding([*calls, (file, "make")], CALLS, raised)
    assert found.title == f"{name} and this release of vLLM do not fit each other"
    assert found.changes[0].name == name
    assert found.changes[0].after is not None
    assert str(found.changes[0].after).startswith(name)


@pytest.mark.parametrize(
    ("kind", "code", "first"),
    [
        ("CorruptedCacheException: Snapshots folder corrupted", "VD527", "huggingface-hub"),
        ("LocalTokenNotFoundError: Token is required", "VD511", "HF_TOKEN"),
        ("HfHubHTTPError: 503 Server Error", "VD511", "hub-access"),
    ],
)
def test_what_the_hubs_client_says_of_the_disk_is_no_refusal_of_the_hub(kind: str, code: str, first: str) -> None:
    found = _finding([*READS, ("huggingface_hub/file_download.py", "fetch")], RAISES, f"huggingface_hub.errors.{kind}")
    assert (found.code, found.changes[0].name) == (code, first)


def test_an_exception_of_a_warnings_class_is_one() -> None:
    found = _finding(
        [*READS, ("gguf/lazy.py", "load")], "raise DeprecationWarning(", "DeprecationWarning: gone since 3"
    )
    assert "DeprecationWarning: gone since 3" in found.evidence[0].excerpt


def test_shapes_that_a_library_itself_compares_are_no_confirmed_defect() -> None:
    raised = "ValueError: Shape mismatch: expected [7, 8], got [7, 9]"
    assert _finding([*LOADS, ("timm/models/a.py", "load")], RAISES, raised).confidence is not Confidence.CONFIRMED


def test_the_other_side_of_a_file_that_the_server_fetches_is_no_client_that_left() -> None:
    prefix = "(APIServer pid=640) ERROR 03-14 09:12:44 [serving.py:210] "
    fetched = ["Traceback (most recent call last):"]
    fetched += [
        f'  File "{SITE}/vllm/connections.py", line 40, in async_get_bytes',
        "    async with self.get(url) as r:",
    ]
    fetched += [f'  File "{SITE}/aiohttp/base_protocol.py", line 9, in drain', "    raise ConnectionResetError("]
    fetched += ["ConnectionResetError: Connection lost"]
    lines = ["(APIServer pid=640) INFO:     Application startup complete.", *(prefix + line for line in fetched)]
    found = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings
    assert found[0].code == "VD529"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"{SITE}/xgrammar/kernels/apply.cu", True),
        ("/home/ann/my prompt.txt", False),
        ("/home/ann/letter.txt", False),
        (f"{SITE}/../../etc/a", False),
    ],
)
def test_the_missing_file_of_a_package_is_shown_and_no_other_is(path: str, shown: bool) -> None:
    calls = [("vllm/v1/structured_output/__init__.py", "grammar_bitmask"), ("xgrammar/ops.py", "load")]
    raised = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    assert (path in _finding(calls, "with open(path) as file:", raised).evidence[0].excerpt) == shown


@pytest.mark.parametrize(
    ("lines", "code", "changes"),
    [
        # What a library prints before it ends the process itself, without any traceback.
        (
            [
                "CUDA error (/src/attn/launch.h:77): invalid argument",
                "RuntimeError: Engine core initialization failed.",
            ],
            "VD527",
            ["vllm-version", "CUDA_LAUNCH_BLOCKING"],
        ),
        # NCCL names two ranks on one card; torch's and vLLM's exception only say "invalid usage".
        (
            [
                "n1:42:42 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 3 and rank 2 both on CUDA device 4",
                "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
            ],
            "VD803",
            ["CUDA_VISIBLE_DEVICES"],
        ),
        (
            [
                "huggingface_hub.errors.HfHubHTTPError: Client error '429 Too Many' for url 'https://huggingface.co/api/a/b'"
            ],
            "VD511",
            ["HF_TOKEN", "model-files"],
        ),
        (
            [f'zmq.error.ZMQError: ipc path "/scratch/{"a" * 90}/9f0a" is longer than 107 characters (sun_path).'],
            "VD527",
            ["VLLM_RPC_BASE_PATH"],
        ),
        # The port at which torch's ranks meet is not the server's own, which --port names.
        (
            ["[c10d] The server socket has failed to bind to [::]:29511 (errno: 98 - Address already in use)."],
            "VD510",
            ["port-holder"],
        ),
        (["ValueError: GGUF magic invalid"], "VD527", ["model-files"]),
        (["RuntimeError: synStatus=8 [Device not found] Device acquire failed."], "VD527", ["accelerator-holder"]),
        (
            ["RuntimeError: Failed to load dynamic library /c/cached_ops/a/a.so: file too short"],
            "VD527",
            ["flashinfer-cache"],
        ),
    ],
    ids=[
        "prints-and-ends",
        "two-ranks-on-one-gpu",
        "status-of-httpx",
        "path-of-sockets",
        "port-of-ranks",
        "no-gguf",
        "no-gaudi",
        "half-a-library",
    ],
)
def test_what_a_library_says_is_read_in_its_own_words(lines: list[str], code: str, changes: list[str]) -> None:
    found = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings
    assert (found[0].code, [change.name for change in found[0].changes]) == (code, changes)


def test_a_release_made_for_transformers_4_is_not_given_5() -> None:
    lines = [
        "(APIServer pid=1) INFO 05-11 08:00:01 [utils.py:299] vLLM API server version 0.10.2",
        "(APIServer pid=1) AttributeError: ExampleTokenizer has no attribute all_special_tokens_extended",
    ]
    found = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings
    assert found[0].changes[0].after == "transformers>=4.55.2,<5"
