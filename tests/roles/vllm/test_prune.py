"""Old releases go; what serves, the way back, and what any process runs from never do."""

import os
from pathlib import Path

import pytest

from tests.roles.vllm.plugins import load

module = load("plugins/modules/vllm_prune.py")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five complete releases, a oldest and e newest; d serves, and c is the way back."""
    for age, name in enumerate("abcde"):
        release = tmp_path / "releases" / name
        (release / "lib").mkdir(parents=True)
        (release / ".complete").touch()
        os.utime(release / ".complete", (age, age))
        (tmp_path / "locks").mkdir(exist_ok=True)
        (tmp_path / "locks" / f"{name}.lock").touch()
    (tmp_path / "current").symlink_to(tmp_path / "releases" / "d")
    for when, name in (("now", "d"), ("before", "c")):
        kept = tmp_path / "served" / "main" / when
        kept.mkdir(parents=True)
        (kept / "release").write_text(f"{tmp_path}/releases/{name}\n")
    return tmp_path


def spare(root: Path, keep: int, running: set[str] = frozenset()) -> list[str]:
    return [path.name for path in module.spare(root, module.named(root) | set(running), keep)]


@pytest.mark.parametrize(("keep", "gone"), [(5, []), (4, ["a"]), (3, ["a", "b"]), (2, ["a", "b", "e"])])
def test_the_newest_stay(root: Path, keep: int, gone: list[str]) -> None:
    assert spare(root, keep) == gone


def test_what_is_needed_stays_whatever_the_number(root: Path) -> None:
    assert spare(root, 1) == ["a", "b", "e"]
    assert spare(root, 1, running={"a"}) == ["b", "e"]


def test_a_build_that_was_never_completed_goes_first(root: Path) -> None:
    (root / "releases" / "e" / ".complete").unlink()
    assert spare(root, 4) == ["e"]


def test_a_process_is_known_by_what_it_runs_and_by_what_it_has_mapped(root: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    for number, (words, maps) in enumerate([(b"%s/a/bin/python\0x", b""), (b"x", b"7f00 r-xp %s/b/lib/x.so\n")], 1):
        (proc / str(number)).mkdir(parents=True)
        (proc / str(number) / "cmdline").write_bytes(words.replace(b"%s", f"{root}/releases".encode()))
        (proc / str(number) / "maps").write_bytes(maps.replace(b"%s", f"{root}/releases".encode()))
    (proc / "3").mkdir()  # it has just ended
    assert module.in_use(root, proc) == {"a", "b"}


def test_a_removed_release_takes_its_lock_along(root: Path) -> None:
    module.remove(root, root / "releases" / "a")
    assert not (root / "releases" / "a").exists()
    assert not (root / "locks" / "a.lock").exists()
    assert (root / "locks" / "b.lock").exists()


def test_an_interrupted_removal_leaves_no_release_that_looks_complete(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_path: Path) -> None:
        raise OSError("no more power")

    monkeypatch.setattr(module.shutil, "rmtree", cut)
    with pytest.raises(OSError, match="power"):
        module.remove(root, root / "releases" / "a")
    assert not (root / "releases" / "a" / ".complete").exists()


def test_a_removed_release_takes_what_it_compiled_along(root: Path) -> None:
    caches = root / "caches"
    for name in ("main/a", "code/a", "main/b"):
        (caches / name / "triton").mkdir(parents=True)
    module.remove(root, root / "releases" / "a", caches)
    assert sorted(str(path.relative_to(caches)) for path in caches.glob("*/*")) == ["main/b"]
