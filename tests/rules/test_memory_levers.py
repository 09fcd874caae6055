"""The first change of an answer about memory holds by its value: figures of the log before any default, and nothing
that this engine, this release or this card does not have."""

import pytest

from vllm_doctor.log.read.assemble import cut, log_of_lines, parse_lines
from vllm_doctor.log.read.pieces import Piece, Read
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import judged

PACKAGES = "/opt/v/lib/python3.12/site-packages/vllm/"
ASKED = "Tried to allocate 1.18 GiB. GPU 0 has a total capacity of 39.38 GiB of which 613.56 MiB is free. "
HELD = (
    "Including non-PyTorch memory, this process has 38.78 GiB memory in use. Of the allocated memory 37.61 GiB is "
    "allocated by PyTorch, and 301.20 MiB is reserved by PyTorch but unallocated."
)
OOM = f"torch.OutOfMemoryError: CUDA out of memory. {ASKED}{HELD}"


def _found(*lines: str, **signals: object) -> Finding:
    log = log_of_lines(lines, "log")
    return judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"), **signals)).findings[0]  # type: ignore[arg-type]


def _call(file: str, function: str, code: str) -> tuple[str, str]:
    return f'  File "{PACKAGES}{file}", line 210, in {function}', f"    {code}"


def _changes(found: Finding) -> list[Change]:
    return list(found.changes)


def test_the_number_of_sequences_that_a_message_prints_is_the_one_in_use() -> None:
    found = _found("ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).")
    assert (_changes(found)[0].name, _changes(found)[0].after) == ("max-num-seqs", 614)


def test_v0_is_not_told_to_take_fewer_tokens_than_a_prompt_has() -> None:
    calls = (
        *_call("worker/worker.py", "determine_num_available_blocks", "self.model_runner.profile_run()"),
        *_call("model_executor/models/llama.py", "forward", "x = self.act_fn(gate_up)"),
    )
    found = _found("Traceback (most recent call last):", *calls, OOM)
    assert (found.code, _changes(found)[0].name) == ("VD112", "max-model-len")


def test_fp8_is_offered_only_where_the_release_never_holds_16_bits() -> None:
    calls = _call("model_executor/models/llama.py", "__init__", "self.mlp = LlamaMLP(")
    unknown = _found("Traceback (most recent call last):", *calls, OOM)
    new = _found("INFO 01-02 10:00:00 [api_server.py:1] vLLM API server version 0.20.0", *calls, OOM)
    v0 = _found("(VllmWorkerProcess pid=42) ERROR 03-02 19:49:43 [x.py:1] " + OOM, *calls, OOM)
    assert [c.name for c in _changes(unknown)][:2] == ["model", "quantization"]
    assert [c.name for c in _changes(new)][:2] == ["quantization", "model"]
    assert "quantization" not in [c.name for c in _changes(v0)]


def test_weights_that_fill_the_card_by_the_models_name_come_before_a_larger_budget() -> None:
    command = "vllm serve acme/Chat-14B --dtype half --gpu-memory-utilization 0.95"
    said = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
    card = Gpu(0, "Tesla V100-SXM2-32GB", total_bytes=32 << 30)
    found = _found(command, said, gpus=Known((card,), "given"))
    assert (found.code, _changes(found)[0].name) == ("VD120", "model")


def test_pinned_memory_is_told_by_the_call_that_pins_it() -> None:
    calls = (
        *_call(
            "worker/cache_engine.py", "__init__", 'self.cpu_cache = self._allocate_kv_cache(self.num_cpu_blocks, "cpu")'
        ),
        *_call("worker/cache_engine.py", "_allocate_kv_cache", "torch.zeros(kv_cache_shape,"),
    )
    found = _found("Traceback (most recent call last):", *calls, "RuntimeError: CUDA error: out of memory")
    assert (found.code, _changes(found)[0].name) == ("VD605", "swap-space")


def test_a_persons_title_is_not_the_failure() -> None:
    at = "(VllmWorkerProcess pid=42) ERROR 08-04 16:54:59 [multiproc_worker_utils.py:238] "
    parent = _call(
        "engine/llm_engine.py", "_initialize_kv_caches", "self.model_executor.determine_num_available_blocks())"
    )
    found = _found(
        "It runs into CUDA out of memory with four cards", at + OOM, "Traceback (most recent call last):", *parent
    )
    assert (found.code, found.phase.value) == ("VD112", "startup-profile")


def test_torchs_sentence_without_its_beginning_is_torchs() -> None:
    text = f"{ASKED.replace(' of which', chr(10) + 'of which')}\n".encode()
    log = cut(parse_lines(Read((Piece(0, text),))), "log")
    found = judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings[0]
    assert [a.value for a in found.arithmetic if a.name == "missing"] == [0.58]


def test_a_workers_own_loop_names_no_step_where_the_line_above_it_does() -> None:
    at = "(VllmWorkerProcess pid=42) ERROR 10-14 12:32:47 multiproc_worker_utils.py:233] "
    lines = (
        (
            f"{at}Exception in worker VllmWorkerProcess while processing method determine_num_available_blocks: "
            f"CUDA out of memory. {ASKED}{HELD}, Traceback (most recent call last):"
        ),
        *(f"{at}{line}" for line in _call("executor/multiproc_worker_utils.py", "_run_worker_process", "executor()")),
    )
    found = _found(*lines)
    assert (found.code, found.phase.value, _changes(found)[0].name) == ("VD112", "startup-profile", "max-model-len")


def test_the_cpu_engines_own_check_of_its_node_gives_the_size_that_fits() -> None:
    found = _found(
        "ValueError: Available memory on node 0 (11.20/62.70 GiB) on kv cache allocation is less than requested memory "
        "for kv (40.00 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory used"
    )
    assert (found.code, found.phase.value) == ("VD604", "host-ram")
    assert [(one.name, one.after) for one in _changes(found)] == [("VLLM_CPU_KVCACHE_SPACE", "11")]


def test_a_call_that_makes_the_cache_and_captures_is_placed_by_the_line_before_it() -> None:
    worker = "(VllmWorkerProcess pid=42) "
    blocks = "INFO 11-02 09:12:01 distributed_gpu_executor.py:57] # GPU blocks: 4120, # CPU blocks: 2048"
    capture = f"{worker}INFO 11-02 09:12:20 model_runner.py:1400] Capturing the model for CUDA graphs."
    failed = (
        f"{worker}ERROR 11-02 09:12:31 multiproc_worker_utils.py:233] Exception in worker VllmWorkerProcess "
        f"while processing method initialize_cache: CUDA out of memory. {ASKED}{HELD}, "
        "Traceback (most recent call last):"
    )
    assert _found(blocks, capture, failed).code == "VD130"
    assert _found(blocks, failed).code == "VD141"


def test_a_step_that_merged_images_takes_fewer_and_smaller_ones() -> None:
    up = "(EngineCore_DP0 pid=88) INFO 03-01 10:00:00 [core.py:93] Initializing a V1 LLM engine (v0.14.0) with config: "
    up += "model='Qwen/Qwen2.5-VL-7B-Instruct', max_seq_len=32768, tensor_parallel_size=1"
    step = _call("v1/worker/gpu_model_runner.py", "execute_model", "inputs_embeds = self.model.embed_input_ids(")
    merge = _call("model_executor/models/utils.py", "_merge_multimodal_embeddings", "inputs_embeds.masked_scatter_(")
    head = "Traceback (most recent call last):"
    merged = {change.name for change in _found(up, head, *step, *merge, OOM).changes}
    assert {"limit-mm-per-prompt", "mm-processor-kwargs"} <= merged
    assert "limit-mm-per-prompt" not in {change.name for change in _found(up, head, *step, OOM).changes}


def test_a_gpus_host_is_not_told_the_pool_of_the_cpu_build() -> None:
    calls = _call("v1/worker/gpu_model_runner.py", "initialize_kv_cache", "self.host = torch.empty(size)")
    gpu = "INFO 03-01 10:00:00 [__init__.py:216] Automatically detected platform cuda."
    text = ("Traceback (most recent call last):", *calls, "MemoryError: Cannot allocate memory")
    name = "VLLM_CPU_KVCACHE_SPACE"
    assert name not in {change.name for change in _found(gpu, *text).changes}
    assert name in {change.name for change in _found(gpu.replace("cuda", "cpu"), *text).changes}


@pytest.mark.parametrize(
    ("release", "beside"), [("0.21.0", False), ("0.22.0", True), ("0.27.1", True), ("0.28.0", False)]
)
def test_weights_leave_the_gpu_only_by_a_runner_that_reads_the_option(release: str, beside: bool) -> None:
    # Issue 51396: before 0.28 the second model runner installs no offloader, and is the default from 0.22 on.
    found = _found(
        f"INFO 08-07 10:00:00 [core.py:80] Initializing a V1 LLM engine (v{release}) with config: model='acme/chat'",
        "INFO 08-07 10:00:02 [gpu_model_runner.py:4880] Starting to load model acme/chat...",
        "ERROR 08-07 10:00:05 [core.py:900] EngineCore failed to start.",
        "Traceback (most recent call last):",
        *_call("model_executor/model_loader/base_loader.py", "load_model", "model = initialize_model("),
        OOM,
    )
    (offload,) = (change for change in found.changes if change.name == "cpu-offload-gb")
    assert ("VLLM_USE_V2_MODEL_RUNNER=0" in offload.why) is beside


def test_one_refused_layer_of_the_cache_is_no_measure_of_those_that_follow() -> None:
    call = _call("worker/cache_engine.py", "_allocate_kv_cache", "layer_kv_cache = torch.zeros(alloc_shape,")
    found = _found("Traceback (most recent call last):", *call, OOM)
    lower = _changes(found)[0]
    assert (lower.name, found.code) == ("gpu-memory-utilization", "VD141")
    assert "0.05 below the default" in lower.why
    assert "1.08 of 39.38 GiB, for the piece that was refused; more of them follow" in lower.why


def test_where_the_card_is_quoted_without_the_word_capacity_its_size_is_read() -> None:
    launch = ("llm = LLM(", '    model="example/chat-31B-it",', ")")
    broken = "Tried to allocate 22.04 GiB (GPU 0; 23.52 GiB total; 0 bytes free)"
    found = _found(*launch, "torch.cuda.OutOfMemoryError: CUDA out of memory.", broken)
    assert (found.code, found.cause.value) == ("VD110", "weights-exceed-vram")


def test_a_driver_that_refuses_free_memory_is_no_share_too_high() -> None:
    refused = OOM.replace("1.18 GiB", "20.00 MiB").replace("613.56 MiB", "30.00 GiB")
    found = _found(*_call("v1/worker/gpu_worker.py", "load_model", "self.model_runner.load_model()"), refused)
    assert (found.code, found.cause.value, found.confidence.value) == ("VD208", "other", "possible")


def test_where_nothing_is_left_the_weights_of_the_models_name_measure_the_share() -> None:
    launch = "python -m vllm.entrypoints.api_server --model example/chat-7B --gpu-memory-utilization 0.4"
    found = _found(launch, "ValueError: No available memory for the cache blocks.")
    raised = _changes(found)[0]
    assert (raised.name, raised.after) == ("gpu-memory-utilization", 0.92)
    assert "less than the weights, 13.04 GiB" in raised.why


@pytest.mark.parametrize(("release", "share"), [("0.8.5", 0.92), ("0.9.2", 0.6), ("0.2.7", 0.92), ("0.7.3", 0.6)])
def test_a_release_that_counts_others_needs_the_share_of_all(release: str, share: float) -> None:
    launch = "vllm serve example/chat-3B --gpu-memory-utilization 0.5"
    found = _found(launch, "ValueError: No available memory for the cache blocks.", version=Known(release, "given"))
    raised = _changes(found)[0]
    assert (raised.name, raised.after) == ("gpu-memory-utilization", share)
    assert ("counts what other processes hold" in raised.why) == (share == 0.92)


def test_an_option_that_v0_alone_reads_is_no_lever_of_v1() -> None:
    head = "(VllmWorker rank=0 pid=9) ERROR 03-14 09:11:00 [multiproc_executor.py:470] "
    calls = _call("v1/worker/gpu_model_runner.py", "capture_model", "self._dummy_run(num_tokens)")
    lines = [head + line for line in ("Traceback (most recent call last):", *calls, OOM)]
    found = _found(*lines, version=Known("0.8.5", "given"))
    assert (found.code, "max-seq-len-to-capture" in {c.name for c in _changes(found)}) == ("VD130", False)


@pytest.mark.parametrize(
    ("share", "model", "value"),
    [("0.1", "chat-7B-awq", 0.34), ("0.2", "chat", 0.4), ("0.4", "chat", 0.5)],
)
def test_a_small_share_is_raised_to_one_that_holds_something(share: str, model: str, value: float) -> None:
    launch = f"vllm serve example/{model} --gpu-memory-utilization {share} --enforce-eager"
    found = _found(launch, "ValueError: No available memory for the cache blocks.")
    assert (_changes(found)[0].name, _changes(found)[0].after) == ("gpu-memory-utilization", value)


def test_a_diffusion_engine_reads_no_share_of_the_card() -> None:
    path = PACKAGES.replace("/vllm/", "/vllm_omni/") + "diffusion/diffusion_engine.py"
    calls = (f'  File "{path}", line 301, in _wait', "    result = reader.recv()")
    found = _found("Traceback (most recent call last):", *calls, OOM)
    assert (found.code, [change.name for change in _changes(found)]) == ("VD208", ["request", "enable-cpu-offload"])
