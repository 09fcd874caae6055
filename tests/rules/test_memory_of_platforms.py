"""Each platform's own lever of its memory, and sums that hold where the memory is shared: with other processes on the
card, with the host, or with what slept before."""

import pytest

from vllm_doctor.log.read.assemble import cut, log_of_lines, parse_lines
from vllm_doctor.log.read.pieces import Piece, Read
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import judged

PACKAGES = "/opt/v/lib/python3.12/site-packages/"
TRACE = "Traceback (most recent call last):"
SHARE = "gpu-memory-utilization"


def _all(*lines: str) -> tuple[Finding, ...]:
    log = log_of_lines(lines, "log")
    return judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings


def _call(file: str, function: str, code: str) -> tuple[str, str]:
    return f'  File "{PACKAGES}{file}", line 210, in {function}', f"    {code}"


def _by_name(found: Finding) -> dict[str, Change]:
    return {change.name: change for change in found.changes}


GAUDI = (
    TRACE,
    *_call("vllm_gaudi/v1/worker/hpu_worker.py", "compile_or_warm_up_model", "self.model_runner.warmup_model()"),
    *_call("vllm_gaudi/v1/worker/hpu_model_runner.py", "warmup_graphs", "self._prepare_dummy_scenario(prompt, None)"),
    "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::734003200 (700)MB",
)


def test_hpu_graphs_are_captured_in_what_is_reserved_for_them() -> None:
    found = _all(*GAUDI)[0]
    reserved = _by_name(found)["VLLM_GRAPH_RESERVED_MEM"]
    assert (found.code, found.phase.value, reserved.after) == ("VD130", "startup-cudagraph", 0.25)
    assert "max-cudagraph-capture-size" not in _by_name(found)


def test_what_the_launch_reserves_for_hpu_graphs_grows_from_there() -> None:
    found = _all("VLLM_GRAPH_RESERVED_MEM=0.4 vllm serve acme/Chat-27B", *GAUDI)[0]
    assert _by_name(found)["VLLM_GRAPH_RESERVED_MEM"].after == 0.55


NEURON = (
    "2026-Feb-11 14:20:32.31   202:202   ERROR  NRT:nrt_infodump  LOADER: Could not load the model status=4 "
    "message=Allocation Failure"
)


def test_neuron_has_no_share_to_lower_but_sequences_and_their_length() -> None:
    found = _all("vllm serve acme/Chat-8B --max-model-len 8192 --max-num-seqs 32 --tensor-parallel-size 2", NEURON)[0]
    named = _by_name(found)
    assert [named[n].after for n in ("max-model-len", "max-num-seqs", "tensor-parallel-size")] == [4096, 16, 4]
    assert SHARE not in named


def test_one_sequence_cannot_be_fewer() -> None:
    found = _all("vllm serve acme/Chat-8B --max-num-seqs 1", NEURON)[0]
    assert "max-num-seqs" not in _by_name(found)


METAL = (
    "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution "
    "failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
)
ANSWERED = 'INFO:     127.0.0.1:52110 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def test_an_apple_gpu_lacks_what_other_programs_hold() -> None:
    found = _all(ANSWERED, METAL)[0]
    assert found.phase.value == "runtime-prefill-burst"
    assert SHARE not in _by_name(found)
    assert "other-programs" in _by_name(found)


def test_vllm_metals_own_share_is_lowered_where_it_is_set() -> None:
    found = _all("VLLM_METAL_MEMORY_FRACTION=0.8 vllm serve acme/Chat-8B", ANSWERED, METAL)[0]
    assert _by_name(found)["VLLM_METAL_MEMORY_FRACTION"].after == 0.7


TT = (
    "2026-08-06 09:12:44.102 | critical |          Always | TT_FATAL: Out of Memory: Not enough space to allocate "
    "536870912 B DRAM buffer across 12 banks, where each bank needs to store 44739584 B"
)


def test_a_tenstorrent_cards_dram_is_memory_and_blocks_are_its_lever() -> None:
    cache = "Allocating TT kv caches for each layer (submesh 1):  28%|##8       | 9/32 [00:02<00:06,  3.31it/s]"
    found = _all("vllm serve acme/Chat-7B --max-model-len 32768", cache, TT)[0]
    assert (found.phase.value, _by_name(found)["num-gpu-blocks-override"].after) == ("startup-kv-cache", 513)
    assert SHARE not in _by_name(found)


@pytest.mark.parametrize(("plugin", "fp8"), [("ascend", False), ("metal", False), ("unheard_of", True)])
def test_a_plugins_name_tells_the_platform(plugin: str, *, fp8: bool) -> None:
    said = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
    found = _all(f"INFO 05-20 02:14:11 [__init__.py:217] Platform plugin {plugin} is activated", said)[0]
    assert ("quantization" in _by_name(found)) is fp8


# --- memory that others have a part in

BESIDE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 40.00 GiB total capacity; "
    "24.00 GiB already allocated; 500.00 MiB free; 24.10 GiB reserved in total by PyTorch)"
)


def test_beside_others_the_whole_budget_fits_in_what_they_leave() -> None:
    share = _by_name(_all(BESIDE)[0])[SHARE]
    assert (share.after, share.predicted["budget_gib"]) == (0.62, 24.8)
    assert "(40.00 − 14.41 − 0.5) / 40.00" in share.why


def test_a_budget_that_holds_no_model_is_not_offered() -> None:
    full = BESIDE.replace("24.00 GiB already", "9.50 GiB already").replace("24.10 GiB reserved", "10.00 GiB reserved")
    found = _all(full)[0]
    assert (found.code, SHARE in _by_name(found)) == ("VD105", False)


def test_a_step_beside_others_lacks_what_was_missing_alone() -> None:
    step = _call("vllm/v1/worker/gpu_model_runner.py", "execute_model", "hidden_states = self.model(")
    share = _by_name(_all(TRACE, *step, BESIDE)[0])[SHARE]
    assert share.after != 0.62


NVRM = (
    "Sep 14 08:21:44 host-1 kernel: NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] "
    "(0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"
)
KILLED = (
    "Sep 14 14:02:13 host-1 kernel: Out of memory: Killed process 1539229 (VLLM::Worker_TP) total-vm:198122340kB, "
    "anon-rss:9233112kB, file-rss:102400kB, shmem-rss:812044kB, UID:0 pgtables:51212kB oom_score_adj:0"
)


def test_a_start_that_stops_at_the_drivers_word_gets_the_lower_share() -> None:
    launch = "vllm serve acme/Chat-35B --gpu-memory-utilization 0.7"
    loading = "(EngineCore pid=7) INFO 09-14 08:11:02 [default_loader.py:430] Loading weights took 549.60 seconds"
    taken = "(EngineCore pid=7) INFO 09-14 08:11:03 [r.py:1] Model loading took 21.30 GiB memory and 551.1 seconds"
    found = _all(launch, loading, taken, NVRM)[0]
    assert (found.code, found.confidence.value, _by_name(found)[SHARE].after) == ("VD602", "likely", 0.65)


def test_the_drivers_word_alone_stays_possible() -> None:
    found = _all(NVRM)[0]
    assert (found.confidence.value, found.changes) == ("possible", ())


def test_a_kill_beside_the_drivers_word_may_be_of_shared_memory() -> None:
    alone, beside = _all(KILLED)[0], _all(NVRM, KILLED)[0]
    assert SHARE not in _by_name(alone)
    assert beside.changes[0].name == SHARE
    assert "9.6 GiB" in _by_name(alone)["host-ram"].why
    assert "9.6 GiB" not in _by_name(beside)["host-ram"].why


def test_offloaded_weights_get_no_size_where_none_was_asked_for() -> None:
    said = "(Worker_TP0 pid=231) INFO 09-09 10:02:11 [uva.py:65] Total CPU offloaded parameters: 73.55"
    offload = _by_name(_all(said, KILLED)[0])["cpu-offload-gb"]
    assert (offload.after, offload.direction.value) == (None, "lower")


def test_a_segment_that_was_refused_tells_how_large_shared_memory_must_be() -> None:
    said = (
        "(raylet) store_runner.cc:83: System memory request exceeds memory available in /dev/shm. The request is for "
        "10737418240 bytes, and the amount available is 67108864 bytes."
    )
    (shm, _) = _all(said)[0].changes
    assert shm.after == "13g"
    assert shm.command is not None
    assert "--shm-size=13g" in shm.command


def test_a_small_segment_asks_for_a_few_gib() -> None:
    said = (
        "(raylet) store_runner.cc:83: System memory request exceeds memory available in /dev/shm. The request is for "
        "1073741824 bytes, and the amount available is 67108864 bytes."
    )
    assert _all(said)[0].changes[0].after is None


def test_pinned_memory_of_the_host_is_no_kv_cache_of_the_gpu() -> None:
    pinning = _call("vllm/worker/cache_engine.py", "allocate_cpu_cache", "key_blocks = torch.empty(")
    made = _call("vllm/engine/llm_engine.py", "_init_cache", 'self._run_workers("init_cache_engine")')
    blocks = "INFO 06-21 21:40:12 llm_engine.py:128] # GPU blocks: 37375, # CPU blocks: 7281"
    found = _all(blocks, TRACE, *made, *pinning, "RuntimeError: CUDA error: out of memory")
    assert [f.code for f in found] == ["VD605"]


def test_an_engine_that_wakes_up_is_in_no_step() -> None:
    slept = (
        "INFO 09-02 20:07:40 [gpu_worker.py:175] Sleep mode freed 65.02 GiB memory, 1.27 GiB memory is still in use."
    )
    refused = "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:163"
    found = _all("INFO:     Application startup complete.", slept, ANSWERED, refused)
    assert [f.code for f in found] == ["VD314"]


def test_v0s_own_default_counts_where_the_log_says_v0() -> None:
    engine = (
        "INFO 03-20 05:19:14 [llm_engine.py:241] Initializing a V0 LLM engine (v0.8.0) with config: model='acme/ear'"
    )
    calls = (
        *_call("vllm/worker/worker.py", "determine_num_available_blocks", "self.model_runner.profile_run()"),
        *_call("vllm/worker/enc_dec_model_runner.py", "profile_run", "self.execute_model(model_input)"),
        *_call("vllm/model_executor/models/whisper.py", "forward", "hidden_states = encoder_layer(hidden_states)"),
    )
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.66 GiB. GPU 0 has a total capacity of 11.76 "
        "GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 10.73 GiB memory in use. Of the "
        "allocated memory 10.42 GiB is allocated by PyTorch, and 108.77 MiB is reserved by PyTorch but unallocated."
    )
    seqs = _by_name(_all(engine, TRACE, *calls, oom)[0])["max-num-seqs"]
    assert "each of 256 sequences" in seqs.why


def _beside_others(engine: str) -> Change:
    calls = _call("vllm/worker/cache_engine.py", "_allocate_kv_cache", "layer_kv_cache = torch.zeros(alloc_shape,")
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB. GPU 0 has a total capacity of 79.25 "
        "GiB of which 0.92 GiB is free. Process 912 has 47.10 GiB memory in use. Including non-PyTorch memory, this "
        "process has 31.20 GiB memory in use. Of the allocated memory 30.11 GiB is allocated by PyTorch, and 410.55 "
        "MiB is reserved by PyTorch but unallocated."
    )
    return _by_name(_all(engine, TRACE, *calls, oom)[0])[SHARE]


@pytest.mark.parametrize(
    ("engine", "share"),
    [("V0 LLM engine (v0.7.2)", 0.39), ("V0 LLM engine (v0.6.4)", None), ("V1 LLM engine (v0.9.0)", None)],
    ids=["others are not charged", "V0 0.6.4 charges them", "V1 to 0.9.0 does"],
)
def test_a_release_that_charges_others_has_them_in_its_budget_already(engine: str, share: float | None) -> None:
    change = _beside_others(
        f"INFO 03-31 01:47:44 llm_engine.py:234] Initializing a {engine} with config: model='acme/c'"
    )
    assert (change.after if "whole budget" in change.why else None) == share


REFUSED = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
OF_THE_CPU = "(this flag also controls CPU memory reservation on the CPU backend, despite its name)."
CPU = "INFO 02-10 12:10:10 [__init__.py:244] Automatically detected platform cpu."


def test_the_cpu_build_that_reads_the_share_gets_a_larger_one() -> None:
    launch = "vllm serve acme/Chat-8B --gpu-memory-utilization 0.3"
    first, second = _all(launch, CPU, f"{REFUSED} initializing the engine {OF_THE_CPU}")
    assert (first.code, _by_name(first)[SHARE].after) == ("VD126", 0.5)
    assert "gpu_memory_utilization sizes it" in _by_name(second)["VLLM_CPU_KVCACHE_SPACE"].why


def test_an_older_cpu_build_has_a_size_of_its_own() -> None:
    launch = "vllm serve acme/Chat-8B --gpu-memory-utilization 0.3"
    old = "INFO 02-10 12:10:20 [api_server.py:1] vLLM API server version 0.11.0"
    found = _all(launch, CPU, old, f"{REFUSED} initializing the engine.")
    assert [f.code for f in found] == ["VD120"]
    assert "unset means 4" in _by_name(found[0])["VLLM_CPU_KVCACHE_SPACE"].why


TABLE = "|  0%   33C    P8              9W /  160W |    3578MiB /  {}MiB |      0%      Default |"


def test_a_pasted_table_gives_the_cards_size() -> None:
    launch = "vllm serve acme/Chat-1B --gpu-memory-utilization 0.4"
    left = "INFO 06-04 12:07:45 [gpu_worker.py:227] Available KV cache memory: -1.07 GiB"
    one = _by_name(_all(launch, left, REFUSED, TABLE.format(8192))[0])[SHARE]
    assert (one.after, one.why) == (0.79, "(3.20 + 3.07) / 8.00: the budget grows by what is missing")
    unlike = _by_name(_all(launch, left, REFUSED, TABLE.format(8192), TABLE.format(24576))[0])[SHARE]
    assert unlike.after != 0.79


def test_limits_that_the_launch_gives_stay_beside_the_new_one() -> None:
    said = (
        (
            "(APIServer pid=1) INFO 03-28 09:09:40 [utils.py:302] non-default args: {'model_tag': 'acme/See-8B', "
            "'limit_mm_per_prompt': {'image': 8}, 'max_model_len': 32768}"
        ),
        (
            "(EngineCore_DP0 pid=412) INFO 03-28 09:10:40 [gpu_model_runner.py:5281] Encoder cache will be initialized "
            "with a budget of 16384 tokens, and profiled with 1 video items of the maximum feature size."
        ),
    )
    calls = (
        *_call("vllm/v1/worker/gpu_worker.py", "determine_available_memory", "self.model_runner.profile_run()"),
        *_call("vllm/v1/worker/gpu_model_runner.py", "profile_run", "outputs = self.model.embed_multimodal("),
    )
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 23.52 "
        "GiB of which 1.90 GiB is free. Including non-PyTorch memory, this process has 21.61 GiB memory in use. Of the "
        "allocated memory 21.02 GiB is allocated by PyTorch, and 212.31 MiB is reserved by PyTorch but unallocated."
    )
    assert _by_name(_all(*said, TRACE, *calls, oom)[0])["limit-mm-per-prompt"].after == '{"image": 8, "video": 0}'


def test_v2s_prompt_logprobs_do_not_grow_with_a_step() -> None:
    def names(file: str, function: str) -> set[str]:
        calls = (
            *_call("vllm/v1/worker/gpu_worker.py", "sample_tokens", "return self.model_runner.sample_tokens(None)"),
            *_call(file, function, "logits = logits_fn(hidden_states)"),
        )
        return set(_by_name(_all(ANSWERED, TRACE, *calls, "torch.OutOfMemoryError: CUDA out of memory.")[0]))

    v2 = names("vllm/v1/worker/gpu/sample/prompt_logprob.py", "compute_prompt_logprobs_with_chunking")
    v1 = names("vllm/v1/worker/gpu_model_runner.py", "_get_prompt_logprobs_dict")
    assert ("max-num-batched-tokens" in v1, "max-num-batched-tokens" in v2) == (True, False)


def test_v2s_sampler_fails_in_its_warm_up_by_sequences() -> None:
    calls = (
        *_call("vllm/v1/worker/gpu_worker.py", "compile_or_warm_up_model", "warmup_kernels(self.model_runner)"),
        *_call("vllm/v1/worker/gpu/sample/sampler.py", "__call__", "probs = logits.softmax(dim=-1)"),
    )
    found = _all(TRACE, *calls, "torch.OutOfMemoryError: CUDA out of memory.")[0]
    assert (found.code, found.changes[0].name) == ("VD140", "max-num-seqs")


def test_torchs_message_is_whole_where_a_reader_broke_it_after_its_first_sentence() -> None:
    lines = (
        "torch.OutOfMemoryError: CUDA out of memory.",
        "Tried to allocate 252.00 MiB. GPU 0 has a total capacity of 10.57 GiB of which 163.12 MiB is free.",
        "Process 2073789 has 10.41 GiB memory in use.",
        "Of the allocated memory 9.67 GiB is allocated by PyTorch,",
        "with 299.88 MiB allocated in private pools (e.g., CUDA Graphs),",
        "and 26.44 MiB is reserved by PyTorch but unallocated.",
    )
    log = cut(parse_lines(Read((Piece(0, "\n".join(lines).encode()),))), "log")
    found = judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings[0]
    assert [a.value for a in found.arithmetic if a.name in {"missing", "in use by torch"}] == [0.09, 9.67]


def test_a_kernel_that_nothing_measured_is_the_one_cause_of_a_failed_step() -> None:
    calls = (
        *_call("vllm/v1/worker/gpu_model_runner.py", "execute_model", "hidden_states = self.model("),
        *_call(
            "vllm/model_executor/layers/fla/ops/chunk.py", "chunk_gated_delta_rule_fwd", "h = k.new_empty(B, NT, H)"
        ),
    )
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.52"
    found = _all(ANSWERED, TRACE, *calls, f"{oom} GiB of which 0.40 GiB is free.")
    assert [f.code for f in found] == ["VD202"]


def test_a_small_share_is_not_to_blame_where_the_model_is_larger_than_the_card() -> None:
    def codes(model: str) -> list[str]:
        launch = f"vllm serve acme/{model} --gpu-memory-utilization 0.5"
        return [f.code for f in _all(launch, REFUSED, TABLE.format(24576))]

    assert (codes("Chat-70B"), codes("Chat-7B")) == (["VD120"], ["VD126", "VD120"])


@pytest.mark.parametrize(
    "tail",
    [
        "Total hbm usage >= 20.70G:",
        "RuntimeError: TT_FATAL @ /opt/tt-metal/tt_metal/impl/allocator/bank_manager.cpp:141: address.has_value()",
    ],
    ids=["XLA's list below its refusal", "tt-metal's check below its own line"],
)
def test_what_stands_below_the_refusal_says_memory_alone(tail: str) -> None:
    found = _all(tail)[0]
    assert (found.code, found.cause.value) == ("VD208", "utilization-too-high")


def _weights(*before: str) -> Finding:
    calls = (
        *_call("vllm/v1/worker/gpu_model_runner.py", "load_model", "self.model = model_loader.load_model("),
        *_call("vllm/model_executor/models/llama.py", "__init__", "self.mlp = LlamaMLP("),
    )
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 24.00 "
        "GiB of which 0.50 GiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the "
        "allocated memory 23.00 GiB is allocated by PyTorch, and 12.31 MiB is reserved by PyTorch but unallocated."
    )
    return _all(*before, TRACE, *calls, oom)[0]


def test_more_is_offloaded_by_what_lay_on_the_card_beside_what_fits_it() -> None:
    found = _weights("vllm serve acme/Chat --gpu-memory-utilization 0.9 --cpu-offload-gb 44")
    # 23 + 1 GiB lay on the card; 0.9 × 24 × 0.8 = 17.28 fit it.
    assert (found.code, _by_name(found)["cpu-offload-gb"].after) == ("VD110", 51)
    named = _weights("vllm serve acme/Chat-70B --gpu-memory-utilization 0.9 --cpu-offload-gb 44")
    # 70 × 10⁹ × 2 B are 130.4 GiB: more followed than lay on the card.
    assert _by_name(named)["cpu-offload-gb"].after == 114


def test_nothing_is_offloaded_to_memory_that_the_card_shares() -> None:
    own = _by_name(_weights("vllm serve acme/Chat-70B"))
    shared = _by_name(_weights("vllm serve acme/Chat-70B", "GPU models and configuration: GPU 0: NVIDIA GB10"))
    assert ("cpu-offload-gb" in own, "cpu-offload-gb" in shared) == (True, False)
