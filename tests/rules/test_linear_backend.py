"""A kernel of quantized weights that failed is answered with the release's own switch to another one."""

import pytest

from vllm_doctor.knowledge import kernels, versions
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.rules.remedies.other_kernel import _other_linear

WITH_THE_OPTION = ("0.22.0", "0.25.1", "0.27.1", "0.29.0", "0.31.0", "0.32.0", "0.33.0")
KERNELS = {
    "MacheteLinearKernel": "marlin",
    "CutlassFP8ScaledMMLinearKernel": "marlin",
    "FlashInferCutlassNvFp4LinearKernel": "marlin",
    "CutlassInt8ScaledMMLinearKernel": "triton",
    "CutlassFp8BlockScaledMMKernel": "triton",
    "MarlinLinearKernel": None,
    "TritonFp8BlockScaledMMKernel": None,
    "AiterInt8ScaledMMLinearKernel": None,
}


@pytest.mark.parametrize(("name", "to"), KERNELS.items())
@pytest.mark.parametrize("release", WITH_THE_OPTION)
def test_the_value_is_one_that_the_release_takes(name: str, to: str | None, release: str) -> None:
    assert _other_linear(name) == to
    fact = versions.flag("linear-backend", release)
    assert fact is not None
    assert fact.exists
    assert to is None or (to in (fact.choices or ()) and kernels.has("linear", to, as_version(release)))


def test_a_release_before_the_option_has_none_of_its_values() -> None:
    fact = versions.flag("linear-backend", "0.21.0")
    assert fact is not None
    assert not fact.exists
    assert not any(kernels.has("linear", to, as_version("0.21.0")) for to in ("marlin", "triton"))
