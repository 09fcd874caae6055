"""What brings a library of the operating system."""

import pytest

from vllm_doctor.knowledge.system_libraries import system_libraries, system_library


@pytest.mark.parametrize(
    ("file", "typed"),
    [
        ("libGL.so.1", "apt-get install -y libgl1"),
        ("libnuma.so.1", "apt-get install -y libnuma1"),
        ("libavcodec.so.60", "apt-get install -y ffmpeg"),
        ("libascendcl.so", "source /usr/local/Ascend/ascend-toolkit/set_env.sh"),
        ("libze_loader.so.1", "apt-get install -y libze1"),
    ],
)
def test_a_library_is_brought_by_its_package_or_its_makers_script(file: str, typed: str) -> None:
    found = system_library(file)
    assert found is not None
    assert found.typed.startswith(typed)


@pytest.mark.parametrize("file", ["libcudart.so.12", "libtorch_cuda.so", "libexample.so.1"])
def test_what_no_package_of_the_system_brings_is_not_said_to_be_brought(file: str) -> None:
    assert system_library(file) is None


def test_each_has_something_to_type_and_why() -> None:
    assert all(one.why and (one.command or (one.apt and one.dnf)) for one in system_libraries())
