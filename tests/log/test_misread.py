"""The text of a picture is read as the program wrote it; what a program wrote stays."""

import pytest

from vllm_doctor.log.read.misread import well_read


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("Va1ueError: the mode1 is 1arger", "ValueError: the model is larger"),
        (
            "Va1ueError; Free memory on device cuda:O (5.9/23.6 GiB)",
            "ValueError: Free memory on device cuda:0 (5.9/23.6 GiB)",
        ),
        ("gpu memory uti1ization (O.9, 21.28 GiB)", "gpu memory utilization (0.9, 21.28 GiB)"),
        (
            'lNFO O4-22 O9:O1:44  Fi1e "/usr/1oca1/1ib/v11m/mode1_executor/x.py", 1ine 1O12 is 1ow: -O.62 of 14.5O MiB',
            'INFO 04-22 09:01:44  File "/usr/local/lib/vllm/model_executor/x.py", line 1012 is low: -0.62 of 14.50 MiB',
        ),
    ],
)
def test_words_of_the_catalogue_are_put_right(read: str, written: str) -> None:
    assert well_read(read) == written


@pytest.mark.parametrize(
    "line",
    [
        "model='example/mode1-8b'",
        "rank_0_1 of cuda0, layer1.weight",
        "example.co1 at 10.0.0.1",
        "O.K. (O)",
        "allocate 1.10G, 480.00M free",
    ],
)
def test_names_and_numbers_stay(line: str) -> None:
    assert well_read(line) == line


def test_a_long_log_is_no_picture() -> None:
    log = "Va1ueError: x\n" * 2000
    assert well_read(log) == log


def test_letters_that_stand_near_each_other_are_told_apart() -> None:
    read = "torch.OutOfMernoryError: CUDA out of rnemory. 1.74 GlB a1located, rank=O, ERR0R"
    assert well_read(read) == "torch.OutOfMemoryError: CUDA out of memory. 1.74 GiB allocated, rank=0, ERROR"
