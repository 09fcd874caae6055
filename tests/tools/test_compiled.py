"""Checks of C++ and CUDA sources are read with what they print (release.py said, of a source distribution)."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import release
from releases import compiled
from releases.raised import Raised
from releases.wheel import WheelError

SOURCE = r"""
// TORCH_CHECK(false, "a comment says nothing");
void check_rows(Tensor& rows, int64_t pack) {
  TORCH_CHECK(rows.dim() == 2, "rows must lie in ", 2, " dimensions, (not in ", rows.dim(), ")");
  TORCH_CHECK(rows.size(1) % pack == 0,
              "the width of each row does not divide "
              "into \"packs\" of ", pack);
  TORCH_CHECK(rows.is_contiguous());
}
Tensor multiply_rows(Tensor& rows) {
  STD_TORCH_CHECK_NOT_IMPLEMENTED(
      false, "No compiled multiply_rows for CUDA device capability: ", version());
  throw std::runtime_error("no kernel takes rows of this type");
}
"""
SAID = [
    ("check_rows", "RuntimeError", "rows must lie in \0 dimensions, (not in \0)"),
    ("check_rows", "RuntimeError", 'the width of each row does not divide into "packs" of \0'),
    ("check_rows", "RuntimeError", "Expected rows.is_contiguous() to be true, but got false."),
    ("multiply_rows", "NotImplementedError", "No compiled multiply_rows for CUDA device capability: \0"),
    ("multiply_rows", "RuntimeError", "no kernel takes rows of this type"),
]


# FlashInfer's macros stream what they print (tvm/ffi/error.h), join it by spaces, or format it as printf does.
STREAMED = r"""
void plan_rows(TensorView rows, int64_t page) {
  TVM_FFI_ICHECK(rows.ndim() == 2) << "rows must lie in " << 2 << " dimensions";
  TVM_FFI_ICHECK_GE(rows.size(0),
                    page);
  TVM_FFI_THROW(ValueError) << "no page of " << page << " rows " "is known";
  TVM_FFI_THROW(NotImplementedError) << "rows of this type";
  FLASHINFER_CHECK(page > 0, "a page of", page, "rows is empty");
  FLASHINFER_ERROR("rows of " + std::to_string(page) + " do not fit");
  TLLM_CHECK_WITH_INFO(page < 9, "a page of %d rows is too long", page);
  TLLM_CHECK(page != 7);
}
"""
SAID_STREAMED = [
    ("RuntimeError", "Check failed: (rows.ndim() == 2) is false: rows must lie in \0 dimensions"),
    ("RuntimeError", "Check failed: rows.size(0) >= page (\0 vs. \0) : "),
    ("ValueError", "no page of \0 rows is known"),
    ("RuntimeError", "rows of this type"),
    ("RuntimeError", "a page of \0 rows is empty"),
    ("RuntimeError", "rows of \0 do not fit"),
    ("RuntimeError", "Assertion failed: a page of \0 rows is too long"),
    ("RuntimeError", "Assertion failed: page != 7"),
]


def packed(folder: Path, name: str, members: dict[str, str]) -> Path:
    place = folder / name
    with tarfile.open(place, "w:gz") as held:
        for path, text in members.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            held.addfile(member, io.BytesIO(text.encode()))
    return place


def test_each_check_tells_its_function_its_class_and_what_it_prints() -> None:
    assert list(compiled.checks(SOURCE)) == [Raised(name, name, kind, text) for name, kind, text in SAID]


def test_a_check_that_streams_or_formats_its_words_is_read_as_well() -> None:
    found = [("plan_rows", *said) for said in SAID_STREAMED]
    assert [(one.function, one.kind, one.sentence) for one in compiled.checks(STREAMED)] == found


def test_a_source_distribution_fills_a_table_of_its_own(tmp_path: Path) -> None:
    place = packed(tmp_path, "vllm-0.99.0.tar.gz", {"vllm-0.99.0/csrc/moe/rows.cu": SOURCE, "vllm-0.99.0/setup.py": ""})
    assert release.said([place], tmp_path) == 0
    told = json.loads((tmp_path / "vllm-csrc.json").read_text(encoding="utf-8"))
    assert (told["releases"], told["files"]) == (["0.99.0"], ["vllm/csrc/moe/rows.cu"])
    assert len(told["rows"]) == len(SAID)


def test_a_folder_with_the_sources_is_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "vllm-0.99.0" / "csrc" / "rows.cuh"
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE, encoding="utf-8")
    assert list(compiled.read(tmp_path / "vllm-0.99.0").files) == ["vllm/csrc/rows.cuh"]


@pytest.mark.parametrize(
    ("name", "members"),
    [("vllm-0.99.0.tar.gz", {"vllm-0.99.0/setup.py": ""}), ("other-1.0.tar.gz", {"other-1.0/csrc/a.cu": SOURCE})],
)
def test_another_archive_is_refused(tmp_path: Path, name: str, members: dict[str, str]) -> None:
    with pytest.raises(WheelError, match=r"needed: vllm-VERSION\.tar\.gz"):
        compiled.read(packed(tmp_path, name, members))


def test_a_broken_archive_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "vllm-0.99.0.tar.gz"
    place.write_bytes(b"no archive")
    assert release.said([place], tmp_path) == 2
