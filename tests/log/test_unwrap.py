"""Texts that a terminal, a page or an e-mail broke over several lines are read as if they were whole."""

import textwrap

import pytest

from vllm_doctor.log.read.unwrap import untypeset, unwrapped

SAID = (
    "INFO 03-14 09:01:00 [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: model='example/model-8b', "
    "dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None"
)
FRAME = '  File "/opt/vllm/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 370, in load_model'
CODE = "    self.model_runner.load_model(eep_scale_up=eep_scale_up)"
FAILED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total capacity of 14.56 GiB "
    "of which 111.81 MiB is free. Including non-PyTorch memory, this process has 14.45 GiB memory in use."
)
LOG = (SAID, "Traceback (most recent call last):", FRAME, CODE, FAILED, "", "INFO 03-14 09:02:00 [core.py:1] bye")


def page(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def terminal(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)] or [""]


def test_quotation_marks_of_a_page_are_those_of_the_program() -> None:
    assert untypeset("\u201cmodel\u201d: \u2018a\u2019\u00a0b \u2588") == "\"model\": 'a' b \u2588"


def spoken(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines if line.strip()]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_page_breaks_between_words(width: int) -> None:
    broken = [part for line in (SAID, FAILED, SAID) for part in page(line, width)]
    assert spoken(unwrapped(broken)) == [SAID, FAILED, SAID]


@pytest.mark.parametrize("width", [80, 100, 135, 190])
def test_a_terminal_breaks_at_its_last_column(width: int) -> None:
    broken = [part for line in LOG for part in terminal(line, width)]
    assert spoken(unwrapped(broken)) == [" ".join(line.split()) for line in LOG if line]


@pytest.mark.parametrize("width", [80, 100])
def test_a_longer_command_above_does_not_hide_the_column(width: int) -> None:
    typed = "$ vllm serve example/model-8b " + "--served-model-name chat " * 8
    broken = [part for line in LOG for part in terminal(line, width)]
    assert spoken(unwrapped([typed, *broken])) == [typed.strip(), *(" ".join(line.split()) for line in LOG if line)]


def test_lines_of_many_lengths_below_a_longer_one_stay() -> None:
    lines = ["INFO 03-14 09:02:00 [core.py:1] " + "x" * 200, *("word " * count for count in (3, 9, 14, 17, 20, 6))]
    assert spoken(unwrapped(lines)) == spoken(lines)


def test_a_terminal_drops_the_blanks_at_its_last_column() -> None:
    head, blanks = "INFO 03-14 09:02:00 [core.py:1] ", (0, 0, 2, 0, 3)
    broken = [part for gone in blanks for part in (head.ljust(138 - gone, "y"), "goes on")]
    whole = [head.ljust(138 - gone, "y") + (" goes on" if gone else "goes on") for gone in blanks]
    assert spoken(unwrapped(broken)) == whole


def test_every_line_keeps_its_number() -> None:
    broken = [*page(SAID, 90), "INFO 03-14 09:02:00 [core.py:1] next"]
    assert len(unwrapped(broken)) == len(broken)
    assert unwrapped(broken)[-1] == broken[-1]


def test_the_code_of_a_call_stays_below_it() -> None:
    narrow = ["Traceback (most recent call last):", FRAME, CODE, "ValueError: " + "x " * 20]
    assert unwrapped(narrow) == [line.rstrip() for line in narrow]


def test_what_a_page_moved_below_its_header_is_put_behind_it() -> None:
    header = "(EngineCore pid=81) INFO 04-19 10:59:54 [gpu_worker.py:436]"
    assert unwrapped([header, "  Available KV cache memory: 0.18 GiB", SAID])[0].endswith(
        "[gpu_worker.py:436] Available KV cache memory: 0.18 GiB"
    )


@pytest.mark.parametrize(
    "lines",
    [
        (SAID, "a line of another program", FAILED),
        (
            "INFO 03-14 09:02:00 [core.py:1] short",
            "a line of another program",
            "INFO 03-14 09:02:00 [core.py:1] longer than it",
        ),
        ("", ""),
    ],
    ids=["not narrow", "would have fitted", "empty"],
)
def test_what_is_not_broken_stays(lines: tuple[str, ...]) -> None:
    assert unwrapped(lines) == list(lines)


@pytest.mark.parametrize("indent", ["", "    "])
def test_what_a_reader_broke_after_a_sentence_is_put_together(indent: str) -> None:
    told = [part + "." for part in FAILED.removesuffix(".").split(". ")]
    said = [f"{told[0]} {told[1]}", *(indent + part for part in told[2:]), SAID]
    assert spoken(unwrapped(said)) == [FAILED, SAID]


@pytest.mark.parametrize(
    "between", ["", "INFO 03-14 09:02:00 [core.py:1] something else", "a line of another program"], ids=len
)
def test_a_sentence_goes_on_only_behind_its_own_message(between: str) -> None:
    head = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB."
    assert unwrapped([head, between, "GPU 0 has a total capacity of 14.56 GiB", SAID])[0] == head


@pytest.mark.parametrize(
    "parts",
    [
        ("ValueError: User-specified max_model_len (9000)", "is greater than the derived max_model_len (4096)."),
        ("RuntimeError: The NVIDIA driver on your system", "is too old (found version 11040)."),
        ("RuntimeError: CUDA out of memory occurred when", "warming up sampler with 256 dummy requests."),
        ("ValueError: Free memory on device cuda:0 (3.1/23.5 GiB) on startup", "is less than desired GPU memory"),
        ("ValueError: No available memory", "for the cache blocks."),
    ],
)
def test_what_a_reader_broke_within_a_message_is_put_together(parts: tuple[str, str]) -> None:
    assert unwrapped([*parts, SAID]) == [" ".join(parts), "", SAID]


def test_what_systemd_says_of_a_unit_is_a_line_of_its_own() -> None:
    """It is no rest of a line above that is as wide as any."""
    said = ["Platform plugin cpu could not be loaded: No module named 'vllm_cpu', which is as wide as a page is"]
    said += ["vllm@main.service: Failed at step EXEC spawning /opt/vllm/bin/vllm: No such file or directory"]
    said += ["vllm@main.service: Failed with result 'exit-code'."]
    assert unwrapped(["WARNING " + said[0], *said[1:]]) == ["WARNING " + said[0], *said[1:]]


def test_a_whole_record_of_json_is_a_line_of_its_own() -> None:
    said = [
        "INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.10.0",
        "INFO:     Application startup complete.",
    ]
    said += ['{"level":"fatal","msg":"the engine is gone","pid":3}']
    assert unwrapped(said) == said


@pytest.mark.parametrize(
    "told",
    [
        "Killed",
        "Aborted (core dumped)",
        "Segmentation fault (core dumped)",
        "Illegal instruction (core dumped)",
        "[1]    1234 illegal hardware instruction (core dumped)  vllm serve acme/chat-8b",
        "[1]  + 4242 segmentation fault  vllm serve acme/chat-8b",
        "./serve.sh: line 12: 20931 Killed                  vllm serve acme/chat-8b",
    ],
)
def test_a_shells_word_for_a_child_that_a_signal_ended_is_a_line_of_its_own(told: str) -> None:
    last = "INFO 03-14 09:01:00 [default_loader.py:384] Loading weights took 31 seconds from the disk"
    lines = ["INFO 03-14 09:00:01 [core.py:105] of few words", last, told]
    assert unwrapped(lines) == lines


def test_an_exception_of_the_bare_class_begins_its_own_line() -> None:
    lines = [*(f"{FRAME[: 60 + n]}, in load" for n in (0, 12, 28)), "Exception: the store refuses the file"]
    assert spoken(unwrapped(lines))[-1] == "Exception: the store refuses the file"


def test_python_s_warning_and_a_program_s_name_begin_a_line() -> None:
    wide = "/opt/v/site-packages/torch/cuda/__init__.py:118: UserWarning: the driver of this host was not asked for any"
    lines = [wide[:80], wide[80:], "INFO 05-21 10:11:12 [w.py:1] " + "a" * 40, "[LOADGEN] one sample is done"]
    assert unwrapped([*lines, *lines, *lines])[:4] == [wide, "", *lines[2:]]


def test_a_page_that_breaks_within_the_header_of_v0() -> None:
    head, rest = (
        "(VllmWorkerProcess pid=71) ERROR 10-17 22:24:11",
        "worker_of_several_processes.py:233] RuntimeError: no",
    )
    other = "INFO 10-17 22:24:11 " + "words " * 10
    assert unwrapped([head, rest, other.rstrip()])[:2] == [f"{head} {rest}", ""]


def test_statistics_that_are_broken_behind_their_commas_are_one_line() -> None:
    parts = [
        "Engine 000: Avg prompt throughput: 91.0 tokens/s, Avg generation throughput: 46.1 tokens/s,",
        "Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 27.7%,",
        "Prefix cache hit rate: 43.4%",
    ]
    assert unwrapped([*parts, "Running: a job"]) == [" ".join(parts), "", "", "Running: a job"]


@pytest.mark.parametrize("signs", ["> ", "> > ", ">"])
def test_a_mail_quotes_a_message_over_several_lines(signs: str) -> None:
    parts = ("RuntimeError: CUDA out of memory occurred when warming up", "sampler with 512 dummy requests. Please try")
    assert spoken(unwrapped([signs + part for part in parts])) == [" ".join(parts)]


def test_a_message_is_one_wherever_it_was_broken() -> None:
    cut = FAILED.index("capacity")
    parts = (FAILED[:cut], FAILED[cut : cut + 60], FAILED[cut + 60 :])
    assert spoken(unwrapped([part.strip() for part in parts])) == [FAILED]


def test_a_call_whose_name_stands_below_it_is_one_line() -> None:
    assert spoken(unwrapped([FRAME.removesuffix(" load_model"), "load_model"])) == [FRAME.strip()]


def test_lines_that_no_message_has_side_by_side_stay() -> None:
    lines = ["we set a total capacity of 44.55 GiB", "which is free for all"]
    assert unwrapped(lines) == lines


def test_what_is_said_again_and_again_is_no_edge_of_a_page() -> None:
    """Each start of a container ends alike, and who runs it says so in a line without that container's mark."""
    line = "vllm-1  | (APIServer pid=1) INFO:     Application startup complete."
    text = [SAID, *[line, "vllm-1 is started again"] * 3]
    assert unwrapped(text) == text
    assert unwrapped([line, "vllm-1 exited with code 1"]) == [line, "vllm-1 exited with code 1"]


def test_a_note_with_its_time_goes_on_with_no_line_before_it() -> None:
    notes = ["22:10 Free memory on device 0", "22:15 (70.1/79.2 GiB) on startup is what we see", "22:40 quiet"]
    assert unwrapped(notes) == notes


def test_the_time_of_an_older_header_still_goes_on() -> None:
    header = f"({'Worker' * 8} pid=1234567) WARNING 11-12 08:00:41 config.py:1296] Casting to torch.float16."
    width = [f"INFO 11-12 08:00:4{n} config.py:129{n}] a line that is as wide as the page itself x" for n in range(4)]
    torn = [*width, *header.split(" 08", 1)]
    torn[-1] = f"08{torn[-1]}"
    assert unwrapped(torn)[-2:] == [header, ""]
