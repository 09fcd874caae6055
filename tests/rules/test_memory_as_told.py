"""Memory that ran out in a text that is no log: a sentence, a translation, a picture, a window's edge."""

import pytest

from vllm_doctor.log.read.assemble import cut, parse_lines
from vllm_doctor.log.read.pieces import Piece, Read
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import judged


def _answer(*lines: str) -> Finding:
    read = Read((Piece(0, "\n".join((*lines, "")).encode(), whole_lines=True),), 0, ())
    log = cut(parse_lines(read), "log")
    return judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings[0]


def _shown(found: Finding) -> tuple[str, str, str, object]:
    first = found.changes[0]
    return found.code, found.phase.value, first.name, first.after


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of 31.50 GiB "
    "of which {} GiB is free."
)
TRANSLATED = (
    "torch.OutOfMemoryError\uff1aCUDA \u663e\u5b58\u4e0d\u8db3\u3002"
    "\u5c1d\u8bd5\u5206\u914d 2.50 GiB\u3002GPU 0 \u603b\u5bb9\u91cf 31.50 GiB"
    "\uff0c\u5176\u4e2d 1.75 GiB \u53ef\u7528\u3002"
)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (
            (
                "With --enable-lora --max-loras 6 --max-lora-rank 128 it dies in create_lora_weights: "
                + OOM.format("0.25", "0.10"),
            ),
            ("VD114", "startup-weights", "max-loras", 3),
        ),
        (
            ("fails in profile_run, embed_multimodal: " + OOM.format("2.25", "1.75"),),
            ("VD113", "multimodal-encoder", "limit-mm-per-prompt", '{"image": 1, "video": 0}'),
        ),
        (
            (OOM.format("0.25", "0.10"), '  File "/v/lib/vllm/v1/worker/gpu_model_runner.py", line 9, in load_model'),
            ("VD110", "startup-weights", "model", None),
        ),
        (
            ("rollout, gpu_memory_utilization=0.7: " + OOM.format("4.00", "2.00"),),
            ("VD208", "runtime-prefill-burst", "gpu-memory-utilization", 0.62),
        ),
        (
            ("  at _get_prompt_logprobs_dict", TRANSLATED),
            ("VD203", "runtime-prefill-burst", "max-num-batched-tokens", None),
        ),
        (
            (
                "ValueError: Free memory on device cuda:0 (13.60/15.60 GiB",
                ") on startup is less than desired GPU me",
                "mory utilization (0.9, 14.04 GiB). Decrease",
            ),
            ("VD102", "startup-free-memory-check", "gpu-memory-utilization", 0.85),
        ),
        (
            (
                (
                    "ValueError: Free memory on device cuda:0 (40.10/80.00 GiB) on startup is less than desired GPU "
                    "memory utilization (0.8, 6"
                ),
            ),
            ("VD101", "startup-free-memory-check", "other-gpu-processes", None),
        ),
        (
            (
                (
                    "Encoder cache will be initialized with a budget of 8192 tokens, and profiled with 2 audio items "
                    "of the maximum feature size."
                ),
                "torch.OutOfMemoryError: CUDA out of m",
            ),
            ("VD113", "multimodal-encoder", "limit-mm-per-prompt", '{"audio": 1}'),
        ),
        (  # more than 16,384 tokens of a step take
            (
                (
                    "Encoder cache will be initialized with a budget of 32768 tokens, and profiled with 1 video items "
                    "of the maximum feature size."
                ),
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.75 GiB. GPU 0 has a total capac",
            ),
            ("VD113", "multimodal-encoder", "limit-mm-per-prompt", '{"video": 0}'),
        ),
    ],
)
def test_the_stage_and_the_change_are_those_of_the_words(
    lines: tuple[str, ...], shown: tuple[str, str, str, object]
) -> None:
    assert _shown(_answer(*lines)) == shown


def test_one_process_that_holds_little_of_a_full_card_is_not_alone() -> None:
    found = _answer(OOM.format("2.00", "1.50") + " Process 331 has 8.00 GiB memory in use.")
    assert (found.code, found.cause.value) == ("VD105", "gpu-shared-with-other-process")


def test_a_million_tokens_are_no_thousand() -> None:
    found = _answer(
        "ValueError: To serve at least one request with the model's max seq len (1000000), (14.10 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (12.83 GiB). Based on the available memory, the "
        "estimated maximum model length is 909,312."
    )
    assert _shown(found) == ("VD121", "startup-kv-cache", "max-model-len", 909312)


CPU = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate {} bytes."
)


@pytest.mark.parametrize(
    ("lines", "change"),
    [
        (("cpu build, VLLM_CPU_KVCACHE_SPACE=48 on 64 GB: " + CPU.format(48 << 30),), ("VLLM_CPU_KVCACHE_SPACE", 24)),
        (
            (
                "vllm serve acme/chat --max-num-batched-tokens 32768",
                "Traceback (most recent call last):",
                '  File "/v/lib/python3.12/site-packages/vllm/model_executor/models/llama.py", line 9, in forward',
                "    x, _ = self.gate_up_proj(x)",
                CPU.format(1 << 30),
            ),
            ("max-num-batched-tokens", 16384),
        ),
        (("Loading weights", CPU.format(1 << 30)), ("host-ram", None)),
    ],
)
def test_what_asked_the_host_for_memory_is_made_smaller(lines: tuple[str, ...], change: tuple[str, object]) -> None:
    found = _answer(*lines)
    assert (found.code, found.changes[0].name, found.changes[0].after) == ("VD604", *change)


PROGRAM = (
    "  tpu_worker.py in determine_available_memory",
    (
        "RuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
        "Used 17.50G of 15.75G hbm. Exceeded hbm capacity by 1.75G."
    ),
    "    arguments        14.50G",
)


def test_a_program_beside_its_arguments_shrinks_by_what_is_missing() -> None:
    found = _answer(*PROGRAM)
    tokens = next(change for change in found.changes if change.name == "max-num-batched-tokens")
    assert "set a quarter" in tokens.why  # of 3.00 GiB half would save 1.50
    assert "model" in {change.name for change in found.changes}


def test_a_tpu_that_served_nobody_was_loading() -> None:
    found = _answer("RESOURCE_EXHAUSTED: Attempting to allocate 90.00M. That was not possible. There are 60.00M free.")
    assert (found.code, found.phase.value, found.cause.value) == ("VD208", "startup-weights", "weights-exceed-vram")


def test_what_the_launch_has_beside_the_model_goes_first_where_no_block_is_left() -> None:
    words = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
    slots = _answer("with --enable-lora --max-loras 8 --max-lora-rank 64", words)
    assert [change.name for change in slots.changes[:2]] == ["max-loras", "max-lora-rank"]
    draft = _answer("""with --speculative-config '{"model": "acme/draft"}' it fails""", words)
    assert draft.changes[0].name == "speculative-config"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (
            (
                (
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.40 GiB. GPU 0 has a total "
                    "capacity of 79.18 GiB of which 1.02 GiB is free. Of the allocated memory 63.31 GiB is allocated "
                    "by PyTorch, and 11.83 GiB is reserved by PyTorch but unallocated."
                ),
            ),
            ("VD310", "runtime-leak-or-fragmentation", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ),
        (
            (
                '  File "/v/vllm/worker/cache_engine.py", line 92, in _allocate_kv_cache',
                "    torch.zeros(kv_cache_shape,",
                "RuntimeError: CUDA error: out of memory",
            ),
            ("VD605", "host-ram", "swap-space", 0),
        ),
        (
            ("srun: error: gpu-a03: task 0: Out Of Memory", "srun --mem=40G vllm serve acme/chat"),
            ("VD603", "host-ram", "job-memory", "0"),
        ),
        (
            ("vLLM on a DGX Spark, gpu_memory_utilization is 0.9: the OOM killer ended the engine.",),
            ("VD603", "host-ram", "gpu-memory-utilization", 0.8),
        ),
        (
            (
                '  File "vllm/v1/sample/ops/topk_topp_sampler.py", in apply_top_k_top_p',
                "torch.OutOfMemoryError: CUDA out of memory",
                "(the server was already up, 900 running requests, max_num_seqs is 1024)",
            ),
            ("VD201", "runtime-prefill-burst", "gpu-memory-utilization", None),
        ),
    ],
)
def test_a_piece_of_a_report_tells_its_step_and_its_change(
    lines: tuple[str, ...], shown: tuple[str, str, str, object]
) -> None:
    assert _shown(_answer(*lines)) == shown


def test_the_sampler_at_run_time_works_on_sequences() -> None:
    found = _answer(
        '  File "vllm/v1/sample/ops/topk_topp_sampler.py", in apply_top_k_top_p',
        "torch.OutOfMemoryError: CUDA out of memory",
        "(the server was already up, 900 running requests, max_num_seqs is 1024)",
    )
    assert [(change.name, change.after) for change in found.changes[1:]] == [("max-num-seqs", 512)]


def test_a_full_pool_of_a_connector_is_made_larger() -> None:
    found = _answer(
        "vllm serve acme/chat --kv-transfer-config "
        """'{"kv_connector":"P2pNcclConnector","kv_connector_extra_config":{"mem_pool_size_gb":4}}'""",
        "Traceback (most recent call last):",
        '  File "/v/vllm/distributed/kv_transfer/kv_connector/v1/p2p/tensor_memory_pool.py", line 135, in allocate',
        '    raise ValueError("Insufficient memory")',
        "ValueError: Insufficient memory",
    )
    assert (found.code, found.confidence.value) == ("VD605", "likely")
    assert "set mem_pool_size_gb to 8" in found.changes[0].why


def test_a_parallel_size_that_somebody_shortens_is_one() -> None:
    found = _answer("vllm with tp=2 dies while loading: " + OOM.format("0.25", "0.10"))
    split = next(change for change in found.changes if change.name == "tensor-parallel-size")
    assert (split.before, split.after) == (2, 4)


def test_a_pooler_that_warms_up_is_too_many_sequences() -> None:
    found = _answer("vLLM 0.14.0: CUDA out of memory when warming up pooler, max_num_seqs=2048")
    assert (found.code, found.confidence.value) == ("VD140", "likely")


def test_a_local_cache_of_lmcache_is_one_of_each_rank() -> None:
    found = _answer(
        "lmcache with vllm 0.12.0 -tp 4: cudaHostAlloc failed: out of memory when it starts, "
        "LMCACHE_MAX_LOCAL_CPU_SIZE=200 tp=4"
    )
    assert (found.changes[0].name, found.changes[0].after) == ("LMCACHE_MAX_LOCAL_CPU_SIZE", 50)


BLOCKS = (
    "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (612). Each decode sequence requires one "
    "Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most 612 or increase "
    "gpu_memory_utilization."
)


@pytest.mark.parametrize(
    ("pool", "names"), [("16.90", ["max-num-seqs"]), (None, ["max-num-seqs", "gpu-memory-utilization"])]
)
def test_a_share_that_does_not_hold_the_blocks_is_not_offered(pool: str | None, names: list[str]) -> None:
    size = "(EngineCore pid=9) INFO 01-02 03:04:05 [gpu_worker.py:590] Available KV cache memory: {} GiB"
    load = (
        "(EngineCore pid=9) INFO 01-02 03:04:04 [gpu_model_runner.py:5012] Model loading took 51.12 GiB memory and "
        "61.3 seconds"
    )
    found = _answer(
        load, *([size.format(pool)] if pool else []), f"(EngineCore pid=9) ERROR 01-02 03:04:06 [core.py:1] {BLOCKS}"
    )
    assert [change.name for change in found.changes] == names


def test_offloaded_weights_are_as_many_as_do_not_fit() -> None:
    found = _answer(
        "vllm serve acme/chat-30B --dtype bfloat16",
        "Traceback (most recent call last):",
        '  File "/v/vllm/v1/worker/gpu_model_runner.py", line 9, in load_model',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 768.00 MiB. GPU 0 has a total capacity of 47.20 "
        "GiB of which 512.91 MiB is free. Including non-PyTorch memory, this process has 46.68 GiB memory in use. Of "
        "the allocated memory 46.33 GiB is allocated by PyTorch, and 100.26 MiB is reserved by PyTorch.",
    )
    offload = next(change for change in found.changes if change.name == "cpu-offload-gb")
    assert offload.after == 22  # 55.88 GiB of weights, of which 0.9 × 47.20, less a fifth, fit


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param(
            "vLLM 0.6.1, 2*A100, --gpu-memory-utilization 0.95: \u663e\u5b58\u8d8a\u5360\u8d8a\u591a\uff0c\u6700\u540e"
            "\u4f1a\u5d29\u6389",
            ("VD208", "runtime-prefill-burst", "gpu-memory-utilization", 0.9),
            id="it grows until it crashes",
        ),
        pytest.param(
            "Bij het laden van de gewichten stopt vLLM 0.9.1: onvoldoende GPU-geheugen.",
            ("VD110", "startup-weights", "model", None),
            id="another word for each thing",
        ),
        pytest.param(
            "vLLM 0.11.0 tombe d\u00e8s qu'un client envoie une grande image : m\u00e9moire GPU insuffisante.",
            ("VD113", "multimodal-encoder", "limit-mm-per-prompt", '{"image": 1, "video": 0}'),
            id="a picture that is sent",
        ),
        pytest.param(
            "vLLM on 4x RTX 4500 Ada with --enable-lora --max-loras 8 --max-lora-rank 64, 0.6.2: OOM.",
            ("VD114", "startup-profile", "max-loras", 4),
            id="a headline that ends with what came of it",
        ),
        pytest.param(
            "Unser vLLM-Container wird vom OOM-Killer beendet, das Limit ist 100 GiB.",
            ("VD603", "host-ram", "limits.memory", None),
            id="a container and its limit",
        ),
        pytest.param(
            "hipErrorOutOfMemory while loading shards, HSA_STATUS_ERROR_OUT_OF_RESOURCES, two cards with vllm",
            ("VD110", "startup-weights", "model", None),
            id="a name of an error is no line of a program",
        ),
    ],
)
def test_what_a_person_says_is_read_by_its_things_and_not_by_its_sentence(
    line: str, shown: tuple[str, str, str, object]
) -> None:
    found = _answer(line)
    assert _shown(found) == shown
    assert found.confidence.value == "likely"


def test_a_translated_sentence_without_a_figure_is_vllms() -> None:
    found = _answer(
        "No hay memoria disponible para los bloques de cach\u00e9. Intente aumentar `gpu_memory_utilization`. "
        "vLLM, RTX 4060, gpu_memory_utilization=0.7"
    )
    assert _shown(found) == ("VD120", "startup-kv-cache", "gpu-memory-utilization", 0.84)


def test_no_bytes_in_use_is_a_figure_that_the_driver_does_not_have() -> None:
    cut = OOM.format("2.00", "1.50") + " Including non-PyTorch memory, this process has 0 bytes memory in use. Of the"
    assert _answer(cut).cause.value == "utilization-too-high"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            ("User: my stable diffusion says CUDA out of memory. Tried to allocate 2.00 GiB, what now?",),
            id="another program, in a prompt",
        ),
        pytest.param(
            ("Traceback (most recent call last):", '  File "bench.py", line 40, in <module>', "MemoryError"),
            id="a program that asks a server",
        ),
        pytest.param(("bash: fork: Cannot allocate memory, so I cannot reach the vllm node",), id="a shell"),
        pytest.param(("The litellm pod was OOMKilled. The vLLM pods are Ready.",), id="another pod"),
        pytest.param(
            (
                (
                    "The decoder prompt contains a(n) image item with length 6042, which exceeds the pre-allocated "
                    "encoder cache size 4800. Please reduce the input size or increase the encoder cache size by "
                    "setting --limit-mm-per-prompt at startup."
                ),
            ),
            id="a request of too large a size",
        ),
    ],
)
def test_what_is_not_the_servers_memory_is_told_as_none(lines: tuple[str, ...]) -> None:
    read = Read((Piece(0, "\n".join((*lines, "")).encode(), whole_lines=True),), 0, ())
    log = cut(parse_lines(read), "log")
    told = judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).findings
    assert {found.phase.value for found in told} <= {"not-memory"}


def test_a_model_that_its_name_makes_larger_than_the_card_that_is_named_does_not_fit_it() -> None:
    found = _answer("CUDA out of memory when I try an 11B in bf16 with vLLM on my 16 GB card, ollama runs it")
    assert (found.code, found.phase.value, found.confidence.value) == ("VD110", "startup-weights", "likely")
    assert found.arithmetic[0].name == "weights of one GPU"
    assert found.changes[0].predicted["weights_gib_at_most"] == 11.8


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory when I try an 11B in bf16 with vLLM on my 24 GB card",
        "CUDA out of memory when I try an 11B AWQ with vLLM on my 16 GB card",
        "CUDA out of memory when I try an 11B in bf16 with vLLM on two 16 GB cards",
        "CUDA out of memory when I try a 3B and an 11B with vLLM on my 16 GB card",
    ],
)
def test_what_fits_the_card_or_may_be_split_is_left_open(text: str) -> None:
    assert _answer(text).code == "VD208"


def test_a_start_without_its_step_is_a_start() -> None:
    assert _answer("vllm goes out of memory at start-up on an L40S").phase.value == "startup-profile"
    assert _answer("vllm 0.9.1 goes out of memory, start command: vllm").phase.value == "runtime-prefill-burst"


def test_eight_bits_are_offered_to_a_card_that_computes_them() -> None:
    lines = "vllm 0.16 goes out of memory while loading a 13B in fp16 on my {}"
    assert "quantization" in [change.name for change in _answer(lines.format("3090")).changes]
    assert "quantization" not in [change.name for change in _answer(lines.format("V100 16GB")).changes]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param(
            "Our second vLLM does not come up on the 121 GiB box: 3.1 GiB are free and it wants 12.4",
            ("VD101", "startup-free-memory-check", "likely"),
            id="the check before the start",
        ),
        pytest.param(
            "vLLM 0.9.0: the KV cache needs 4.5 GiB for max-model-len 40960, there are only 4.0 GiB",
            ("VD121", "startup-kv-cache", "likely"),
            id="a cache too small",
        ),
        pytest.param(
            "Beim Anlegen der Gewichte einer 32B soll CUDA 120 MiB reservieren, und 64 MiB sind frei.",
            ("VD110", "startup-weights", "likely"),
            id="torch's figures",
        ),
        pytest.param(
            "vLLM 0.30 does not start on the new host: Available KV cache memory is -0.7 GiB at 0.75",
            ("VD120", "startup-kv-cache", "likely"),
            id="a size below nothing",
        ),
    ],
)
def test_what_is_free_and_less_than_what_is_wanted_tells_the_failure(line: str, shown: tuple[str, ...]) -> None:
    answer = _answer(line)
    assert (answer.code, answer.phase.value, answer.confidence.value) == shown


def test_a_programs_words_within_a_persons_sentence_are_never_certain() -> None:
    said = "CUDA error: an illegal memory access was encountered"
    assert _answer(said).confidence.value == "confirmed"
    assert _answer(f"it then died in the second pass with {said[12:]}").confidence.value == "likely"
