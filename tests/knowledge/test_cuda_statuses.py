"""An error of CUDA or HIP that is only named is read with its words."""

import pytest

from vllm_doctor.knowledge.cuda_statuses import worded


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
        ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
        ("hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"),
        ("hipErrorLaunchTimeOut", "the launch timed out and was terminated"),
    ],
)
def test_a_name_gets_the_words_behind_it(named: str, words: str) -> None:
    assert worded(f"copy failed: {named}, retried") == f"copy failed: {named} (CUDA error: {words}), retried"


def test_a_name_that_nobody_has_the_words_of_stays_as_it_is() -> None:
    assert worded("CUDA_ERROR_OF_ANOTHER_YEAR") == "CUDA_ERROR_OF_ANOTHER_YEAR"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        ("Error 805: MPS client failed to connect", "MPS client failed to connect"),
        ("Error 3: initialization error", "initialization error"),
    ],
)
def test_the_words_behind_the_number_of_torchs_count_of_devices_are_read(count: str, words: str) -> None:
    said = f"Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before? {count}"
    assert worded(said) == f"{said} (CUDA error: {words})"


def test_what_torch_says_to_search_for_is_no_second_error() -> None:
    said = "CUDA error: invalid argument\nSearch for `cudaErrorInvalidValue' in its documentation."
    assert worded(said) == said
