"""A status that a library of the card returns: each has a cause of its own and a next step, by its name alone."""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages"
CALLS = "return self.run(x, weight)"
RAISES = "raise ValueError("
PREFIX = "(EngineCore pid=812) ERROR 03-14 09:12:44 [core.py:1124] "


def found(raised: str, *before: str, file: str = "vllm/model_executor/layers/linear.py", code: str = CALLS) -> Finding:
    """What a start of 0.33.0 is called whose worker ends with this exception, under what was said before it."""
    lines = ["(APIServer pid=640) INFO 03-14 09:11:58 [api_server.py:1977] vLLM API server version 0.33.0", *before]
    lines += [PREFIX + "EngineCore failed to start.", PREFIX + "Traceback (most recent call last):"]
    for path, function, line in (
        ("vllm/v1/worker/gpu_worker.py", "determine_available_memory", "self.model_runner.profile_run()"),
        (file, "apply", code),
    ):
        lines += [f'{PREFIX}  File "{SITE}/{path}", line 210, in {function}', f"{PREFIX}    {line}"]
    judged = diagnose(
        Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines([*lines, PREFIX + raised], "log"), "log"))
    )
    return judged.findings[0]


@pytest.mark.parametrize(
    ("raised", "title"),
    [
        ("CUDA driver error: CUDA_ERROR_LAUNCH_TIMEOUT", "A display's watchdog ended a kernel"),
        ("CUDA driver error: CUDA_ERROR_NVLINK_UNCORRECTABLE", "A link between the GPUs failed"),
        ("CUDA driver error: CUDA_ERROR_NO_BINARY_FOR_GPU", "The build has no code that this GPU and driver can run"),
        ("HIP error: hipErrorIllegalAddress", "A kernel on the GPU went wrong, and a later call tells of it"),
        (
            "CUDA error: CUSPARSE_STATUS_NOT_SUPPORTED when calling `f`",
            "A CUDA library does not fit this build of torch",
        ),
        (
            "CUDA error: CUBLAS_STATUS_MAPPING_ERROR when calling `f`",
            "A CUDA library's kernel did not run to its end",
        ),
        ("HIPBLAS_STATUS_INVALID_VALUE", "A ROCm library failed, or has no kernel for this card"),
        (
            "level_zero backend failed with error: 7 (UR_RESULT_ERROR_INVALID_NATIVE_BINARY)",
            "Compiled code does not fit the Intel GPU or its driver",
        ),
        (
            "copy:x.cpp:7 NPU function error: AclrtSetDevice, error code is 107001",
            "The rank asks for an NPU that this process does not see",
        ),
        (
            "run:x.cpp:7 NPU function error: aclrtCreateEvent, error code is 207007",
            "The NPU has no stream, event or other resource left",
        ),
    ],
)
def test_a_status_has_its_cause_and_a_step(raised: str, title: str) -> None:
    told = found(f"RuntimeError: {raised}")
    assert told.title == title
    assert told.changes


@pytest.mark.parametrize(
    ("warned", "title", "change"),
    [
        (
            "graph/topo.cc:7 NCCL WARN Could not find NET with id 7",
            "NCCL cannot determine how the GPUs are connected",
            "NCCL_TOPO_FILE",
        ),
        (
            "init.cc:7 NCCL WARN MNNVL (cliqueSize 7) is available but not working on this system.",
            "NCCL cannot use NVLink between hosts",
            "NCCL_MNNVL_ENABLE",
        ),
        (
            "misc/socket.cc:7 NCCL WARN Call to bind failed: Cannot assign requested address",
            "NCCL could not open or use a socket",
            "NCCL_SOCKET_IFNAME",
        ),
        (
            "ras/ras.cc:7 NCCL WARN NCCL version mismatch with remote peer 10.0.0.7 (local: 7, remote 9)",
            "The ranks run different releases of NCCL",
            "nvidia-nccl",
        ),
        ("proxy.cc:7 NCCL WARN Proxy append mismatch", "An internal NCCL check failed", "nvidia-nccl"),
    ],
)
def test_what_nccl_warns_of_names_the_problem(warned: str, title: str, change: str) -> None:
    told = found(
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        f"node1:100:200 [0] {warned}",
        file="vllm/distributed/device_communicators/pynccl_wrapper.py",
    )
    assert (told.code, told.title, told.changes[0].name) == ("VD803", title, change)


@pytest.mark.parametrize(
    ("raised", "title"),
    [
        ("ValueError: Unsupported widget kind: 7", "The attention backend: Unsupported widget kind: 7"),
        (
            "NotImplementedError: Sliding sinks are not supported yet",
            "The attention backend: Sliding sinks are not supported yet",
        ),
        (
            "ValueError: page_rows (7) must be a power of two",
            "The attention backend: page_rows (7) must be a power of two",
        ),
        (
            "ValueError: the packed path requires contiguous scales",
            "The attention backend: the packed path requires contiguous scales",
        ),
    ],
)
def test_what_a_part_refuses_is_in_the_title(raised: str, title: str) -> None:
    assert found(raised, file="vllm/v1/attention/backends/example.py", code=RAISES).title == title


def test_a_part_that_says_nothing_of_what_it_refuses_is_named_alone() -> None:
    told = found("ValueError: odd rows", file="vllm/v1/attention/backends/example.py", code=RAISES)
    assert told.title == "An attention kernel refuses what the model or launch asks of it"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("double free or corruption (out)", "Native code damaged its own memory, and glibc ended the process"),
        (
            "python3: /src/core/pool.cc:88: void acme::Pool::give(int): Assertion `count > 0' failed.",
            "A check in native code ended the process: pool.cc",
        ),
        (
            "python3: /src/lib/Utility.cpp:7: bool mlir::ok(mlir::Value): Assertion `type.isF16()' failed.",
            "Triton's compiler aborted on a kernel",
        ),
    ],
)
def test_native_code_that_ends_itself_is_no_kill(said: str, title: str) -> None:
    lines = [
        "INFO 02-11 02:14:57 [core.py:93] Initializing a V1 LLM engine (v0.11.2) with config: model='m/x'",
        said,
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings[0].title == title
    assert judged.findings[0].changes


@pytest.mark.parametrize(
    ("raised", "file", "title", "change"),
    [
        (
            "AssertionError: DP adjusted local rank 1 is out of bounds.",
            "vllm/v1/worker/gpu_worker.py",
            "A rank asks for a GPU that its process does not see",
            "CUDA_VISIBLE_DEVICES",
        ),
        (
            "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built without libuv support",
            "torch/distributed/rendezvous.py",
            "torch's meeting point asks for libuv, which this build lacks",
            "USE_LIBUV",
        ),
        (
            "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",
            "ray/_private/worker.py",
            "Ray's actors did not answer in time",
            "ray-actors",
        ),
        (
            "ValueError: Unsupported connector type: ExampleConnectorV1",
            "vllm/distributed/kv_transfer/kv_connector/factory.py",
            "The KV connector is of the V1 engine, and V0 runs",
            "VLLM_USE_V1",
        ),
        (
            "AssertionError: Local TP size must be divisible by remote TP size.",
            "vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py",
            "The two sides of the KV transfer are split over GPUs differently",
            "tensor-parallel-size",
        ),
    ],
)
def test_a_refusal_of_a_part_has_its_own_answer(raised: str, file: str, title: str, change: str) -> None:
    told = found(raised, file=file, code=RAISES)
    assert told.title == title
    # V1 is the only engine of 0.33.0, so its variable is offered to a release that has it.
    assert change in {c.name for c in told.changes} or change == "VLLM_USE_V1"


def test_a_tpu_is_not_told_to_take_a_backend_of_another_platform() -> None:
    told = found(
        "NotImplementedError: Head size must be a multiple of 128.",
        file="vllm/v1/attention/backends/pallas.py",
        code=RAISES,
    )
    assert not {"attention-backend", "VLLM_ATTENTION_BACKEND"} & {c.name for c in told.changes}


STATISTICS = (
    "(APIServer pid=7) INFO 05-18 02:5{minute}:44 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    "Avg generation throughput: {tokens} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 39.1%, Prefix "
    "cache hit rate: 3.2%"
)
WAITS = (
    "(EngineCore pid=8) INFO 05-18 02:5{minute}:19 [shm_broadcast.py:698] No available shared memory broadcast block "
    "found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work."
)


@pytest.mark.parametrize(("tokens", "waits", "code"), [("64.3", 3, "VD804"), ("64.3", 2, "VD306"), ("0.0", 3, None)])
def test_a_server_that_made_tokens_waits_three_minutes_for_no_compiler(
    tokens: str, waits: int, code: str | None
) -> None:
    lines = [STATISTICS.format(minute=2, tokens=tokens), STATISTICS.format(minute=3, tokens="0.0")]
    lines += [WAITS.format(minute=4 + at) for at in range(waits)]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert (judged.findings[0].code if judged.findings else None) == code


def test_a_port_that_is_kept_for_the_administrator_is_named() -> None:
    lines = [
        "(APIServer pid=7) Traceback (most recent call last):",
        f'(APIServer pid=7)   File "{SITE}/vllm/entrypoints/openai/api_server.py", line 1280, in create_server_socket',
        "(APIServer pid=7)     sock.bind(addr)",
        "(APIServer pid=7) PermissionError: [Errno 13] Permission denied",
    ]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings[0].title == "The service's user may not listen at this port"
    assert judged.findings[0].changes[0].name == "port"


@pytest.mark.parametrize(
    ("raised", "first", "refute"),
    [
        ("RuntimeError: No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES", "nvidia-smi"),
        ("RuntimeError: No HIP GPUs are available", "gpu-access", "rocminfo"),
        ("torch.AcceleratorError: HIP error: no ROCm-capable device is detected", "gpu-access", "rocminfo"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check it.", "process-gpus", "nvidia-smi"),
    ],
)
def test_a_process_without_a_gpu_is_told_the_way_of_its_maker(raised: str, first: str, refute: str) -> None:
    told = found(raised)
    assert (told.code, told.changes[0].name) == ("VD706", first)
    assert refute in told.refute


def test_a_name_that_a_module_lacks_is_the_release_of_its_package() -> None:
    told = found("AttributeError: module 'flashinfer' has no attribute 'fold_heads'")
    assert (told.code, told.confidence, told.changes[0].name) == ("VD514", "likely", "flashinfer-python")


def test_of_two_packages_beside_vllm_either_may_be_the_wrong_one() -> None:
    told = found(
        "AttributeError: module 'torch' has no attribute 'tiny4'", file="flashinfer/fp4.py", code="return torch.tiny4"
    )
    assert (told.code, told.title) == ("VD514", "flashinfer-python and the installed torch do not fit each other")
    assert [change.name for change in told.changes] == ["flashinfer-python", "torch"]


@pytest.mark.parametrize(
    ("answered", "title", "change"),
    [
        (
            "OSError: [Errno 116] Stale file handle: '{}'",
            "The network file system lost the file, or its server",
            "mount",
        ),
        ("OSError: [Errno 107] Transport endpoint is not connected: '{}'", "The network file system lost", "mount"),
        ("OSError: [Errno 5] Input/output error: '{}'", "The disk or network share fails to read or write", "disk"),
        ("OSError: [Errno 24] Too many open files: '{}'", "Too many files and sockets are open", "LimitNOFILE"),
    ],
)
def test_what_the_kernel_answers_of_a_file_tells_more_than_the_file_s_name(
    answered: str, title: str, change: str
) -> None:
    told = found(
        answered.format("/data/chat/model-00007.safetensors"), file="vllm/model_executor/model_loader/utils.py"
    )
    assert told.title.startswith(title)
    assert told.changes[0].name == change


def test_a_socket_that_is_not_connected_is_no_file() -> None:
    assert "file system" not in found("OSError: [Errno 113] No route to host").title


def test_a_kernel_of_16_bits_gets_a_type_of_16_bits() -> None:
    told = found("RuntimeError: FlashAttention only support fp16 and bf16 data type")
    assert [(c.name, c.after) for c in told.changes] == [("dtype", "half")]
