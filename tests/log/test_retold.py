"""A message that was translated, or whose numbers somebody set otherwise, is read as its program writes it."""

import pytest

from vllm_doctor.log.read.retold import retold

_TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. "
    "GPU 1 has a total capacity of {} GiB of which {} is free."
)
_FREE = (
    "ValueError: Free memory on device ({}/{} GiB) on startup is less than desired GPU memory utilization "
    "({}, {} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "CUDA-Speicher erschöpft. Versuch, 3,50 GiB zu belegen. GPU 1 hat 44,40 GiB, davon sind 1,25 GiB frei.",
            _TORCH.format("3.50", "44.40", "1.25 GiB"),
        ),
        (
            "mémoire CUDA insuffisante. 3,50 Gio demandés. Le GPU 1 a 44,40 Gio dont 905,12 Mio libres.",
            _TORCH.format("3.50", "44.40", "905.12 MiB"),
        ),
        (
            "Недостаточно памяти CUDA: 3,50 ГиБ. GPU 1 имеет 44,40 ГиБ, из которых 905,12 МиБ свободно.",
            _TORCH.format("3.50", "44.40", "905.12 MiB"),
        ),
        (
            "ValueError: La memoria libre (7.2/44.4 GiB) es menor que la deseada (0.9, 39.9 GiB).",
            _FREE.format("7.2", "44.4", "0.9", "39.9"),
        ),
        (
            "ValueError: la memoria libera su cuda:0 (7,2/44,4 GiB) è inferiore a quella richiesta (0,9, 39,96 GiB)",
            _FREE.replace("device (", "device cuda:0 (").format("7.2", "44.4", "0.9", "39.96"),
        ),
        (
            "「The model's max seq len (65536) is larger than the number of tokens in KV cache (30,208)」",
            (
                "ValueError: The model's max seq len (65536) is larger than the maximum number of tokens that can be "
                "stored in KV cache (30208). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` "
                "when initializing the engine."
            ),
        ),
        (
            "CUDA 부족: sampler를 512개의 요청으로 워밍업. `max_num_seqs`, `gpu_memory_utilization`",
            (
                "RuntimeError: CUDA out of memory occurred when warming up sampler with 512 dummy requests. Please try "
                "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
            ),
        ),
        (
            "ValueError: キャッシュ用の空きがありません。`gpu_memory_utilization`を増やす。(0.5)",
            (
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
                "initializing the engine."
            ),
        ),
    ],
)
def test_figures_options_and_brackets_tell_the_message(line: str, message: str) -> None:
    assert retold([line]) == [f"{line} [{message}]"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("2.00 GiB on GPU 1 of 44.40 GiB, 3.00 GiB free", id="less was asked for than is free"),
        pytest.param("libre (7.2/44.4 GiB), deseada (0.5, 39.9 GiB)", id="the share is not that of the size"),
        pytest.param("INFO 3,50 GiB auf GPU 1 mit 44,40 GiB, davon 1,25 GiB frei", id="a program informs"),
        pytest.param("max_num_seqs=512, gpu_memory_utilization=0.9, CUDA 12.8", id="options with values"),
        pytest.param("--enable-lora (max_loras=32, max_lora_rank=64) does not start", id="values of options"),
        pytest.param("vllm serve m --max-num-seqs 512 --gpu-memory-utilization 0.9", id="a command"),
        pytest.param("TypeError: überzähliges Argument gpu_memory_utilization", id="an option, another class"),
        pytest.param("too long (length 9120) for `max_model_len` (length 8192)", id="a sentence of its own"),
        pytest.param("requested 9120 tokens (8096 in the messages, 1024 in the completion)", id="brackets alone"),
        pytest.param("of 44.40 GiB the GPU may use 0.9 (39.96 GiB), 7.20 GiB are free", id="a sum of somebody's own"),
        pytest.param(_TORCH.format("3.50", "44.40", "1.25 GiB"), id="the program's own words"),
    ],
)
def test_what_retells_no_failure_stays(line: str) -> None:
    assert retold([line]) == [line]


def test_the_check_before_the_start_is_told_by_its_sum_in_any_order() -> None:
    line = "it wants the GPU memory utilization (0.9, 39.96 GiB), but only 7.2/44.4 GiB are free"
    assert retold([line]) == [
        f"{line} [{_FREE.format('7.2', '44.4', '0.9', '39.96').removeprefix('ValueError: ').partition(' Decrease')[0]}]"
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max seq len 32768 vs 2600 tokens in KV cache", "max seq len (32768) is larger than"),
        ("The KV cache needs 9.4 GiB for 100000 and has only 6.1 GiB, 64,800 would fit", "model length is 64800."),
        ("Der KV-Cache braucht 8 GiB für 40000, hat aber nur 5 GiB: 25000 gehen", "(8.0 GiB KV cache is needed"),
    ],
)
def test_a_cache_that_is_too_short_is_told_by_its_lengths_and_sizes(line: str, message: str) -> None:
    assert message in retold([line])[0]


@pytest.mark.parametrize(
    "line",
    [
        "the KV cache needs 8 GiB for 40000 and 4 GiB for 20000 tokens",
        "the KV cache needs 8 GiB and only 3 GiB are there, 40000 and 20000",
        "max model len 2048 of 32768 tokens in the KV cache",
        "max model len 32768 vs 2600 tokens of a prompt: the KV cache is used at 8 %",
    ],
)
def test_sizes_that_do_not_stand_to_each_other_as_lengths_do_tell_nothing(line: str) -> None:
    assert retold([line]) == [line]


def test_a_log_is_no_text_that_a_person_retells() -> None:
    line = "CUDA-Speicher erschöpft. Versuch, 3,50 GiB zu belegen. GPU 1 hat 44,40 GiB, davon sind 1,25 GiB frei."
    assert retold([line, *["x"] * 40])[0] == line


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ("torch.OutOfMemo", "torch.OutOfMemoryError: "),
        ("torch.OutOfMemoryErr", "torch.OutOfMemoryError: "),
        ("it ends in OutOfMem", "it ends in OutOfMemoryError: "),
        ("RuntimeErr", "RuntimeErr"),
        ("for the BaseModel", "for the BaseModel"),
    ],
)
def test_a_class_that_the_end_cut_in_two_is_whole_where_it_says_what_failed(cut: str, whole: str) -> None:
    assert retold(["    logits = self.compute(x)", cut]) == ["    logits = self.compute(x)", whole]
