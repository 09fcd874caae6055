"""The part of a program's path that is gone, and what beside it leads to the same program, in real folders."""

from pathlib import Path

from vllm_doctor.gather.program import gone
from vllm_doctor.records.host import Program


def release(folder: Path) -> Path:
    program = folder / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return folder


def test_a_link_that_was_renamed_or_leads_nowhere_is_the_missing_part(tmp_path: Path) -> None:
    newest = release(tmp_path / "releases" / "0.32.0")
    program = tmp_path / "current" / "bin" / "vllm"
    (tmp_path / "current.old").symlink_to(newest)
    wanted = Program(str(tmp_path / "current"), (str(newest),))
    assert gone(str(program)) == wanted
    (tmp_path / "current").symlink_to(tmp_path / "releases" / "0.31.0")
    assert gone(str(program)) == wanted
    release(tmp_path / "releases" / "0.31.0")
    assert gone(str(program)) is None


def test_several_releases_beside_it_are_all_named_and_another_program_is_none(tmp_path: Path) -> None:
    both = [str(release(tmp_path / "releases" / name)) for name in ("0.31.0", "0.32.0")]
    (tmp_path / "notes").mkdir()
    assert gone(str(tmp_path / "current" / "bin" / "vllm")) == Program(str(tmp_path / "current"), tuple(both))
    assert gone(str(tmp_path / "current" / "bin" / "python")) == Program(str(tmp_path / "current"))
    assert gone("vllm") is None
