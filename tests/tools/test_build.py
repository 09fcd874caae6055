"""For which cards a wheel holds code, read from the fat binaries of vLLM's library."""

import struct
import zipfile
from pathlib import Path

import pytest
from releases import build

CUBIN, PTX = 2, 1


def entry(kind: int, number: int, code: bytes = b"\0" * 24) -> bytes:
    return struct.pack("<HHIQ", kind, 1, 64, len(code)) + b"\0" * 12 + struct.pack("<I", number) + b"\0" * 32 + code


def container(*entries: bytes) -> bytes:
    inside = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inside)) + inside


def test_the_cards_of_all_containers_are_found_in_a_wheel(tmp_path: Path) -> None:
    library = b"\x7fELF" + container(entry(CUBIN, 75), entry(CUBIN, 120)) + b"text" + container(entry(PTX, 80))
    with zipfile.ZipFile(tmp_path / "vllm.whl", "w") as archive:
        archive.writestr("vllm/_C.abi3.so", library)
        archive.writestr("vllm/_flashmla_C.abi3.so", container(entry(CUBIN, 90)))
    assert build.of_wheel(tmp_path / "vllm.whl") == {"7.5": "cubin", "8.0": "ptx", "12.0": "cubin"}


def test_a_stub_for_an_old_card_is_no_code_for_it(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/_C.abi3.so").write_bytes(container(entry(CUBIN, 52), *[entry(CUBIN, 90)] * 20))
    assert build.of_wheel(tmp_path) == {"9.0": "cubin"}


@pytest.mark.parametrize("cut", [3, 12, 20, 50, 90])
def test_a_library_that_is_cut_ends_nothing(cut: int) -> None:
    assert list(build.entries(container(entry(CUBIN, 90))[:cut])) == []


def test_a_folder_of_sources_says_nothing(tmp_path: Path) -> None:
    assert build.of_wheel(tmp_path) == {}
