"""What answered is kept, one before it too, and either can be put back."""

from hashlib import sha256
from pathlib import Path

from tests.roles.vllm.plugins import load

module = load("plugins/modules/vllm_keep.py")


def said(name: str) -> dict[str, str]:
    return {"release": f"/opt/vllm/releases/{name}", "digest": name, "url": "http://127.0.0.1:8000"}


def test_the_last_two_are_kept_and_the_same_again_changes_nothing(tmp_path: Path) -> None:
    unit, folder = tmp_path / "unit", tmp_path / "kept"
    for name in ("a", "b", "c"):
        unit.write_text(name)
        assert module.keep(folder, unit, "", said(name))
    assert not module.keep(folder, unit, "", said("c"))
    assert [(folder / when / "unit").read_text() for when in ("now", "before")] == ["c", "b"]
    assert (folder / "now" / "release").read_text() == "/opt/vllm/releases/c\n"


def test_what_is_put_back_is_unit_secrets_and_release(tmp_path: Path) -> None:
    unit, secrets, current = tmp_path / "unit", tmp_path / "secrets", tmp_path / "current"
    unit.write_text("old")
    secrets.write_text("old key")
    module.keep(tmp_path / "kept", unit, str(secrets), said("a"))
    unit.write_text("new")
    secrets.write_text("new key")
    current.symlink_to("/opt/vllm/releases/b")

    kept = tmp_path / "kept" / "now"
    assert module.differs(kept, unit, str(secrets), current), "as --check says it"
    assert unit.read_text() == "new"
    assert module.put_back(kept, unit, str(secrets), current)
    assert not module.differs(kept, unit, str(secrets), current)

    assert (unit.read_text(), secrets.read_text()) == ("old", "old key")
    assert str(current.readlink()) == "/opt/vllm/releases/a"
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert not module.put_back(tmp_path / "kept" / "now", unit, str(secrets), current)


def test_an_interrupted_keep_leaves_what_was_kept(tmp_path: Path) -> None:
    unit, folder = tmp_path / "unit", tmp_path / "kept"
    unit.write_text("a")
    module.keep(folder, unit, "", said("a"))
    (folder / "next").mkdir()
    (folder / "next" / "unit").write_text("half")
    unit.write_text("b")
    module.keep(folder, unit, "", said("b"))
    assert [(folder / when / "unit").read_text() for when in ("now", "before")] == ["b", "a"]


def test_a_service_with_a_version_of_its_own_leaves_the_hosts_current_release_alone(tmp_path: Path) -> None:
    unit, current = tmp_path / "unit", tmp_path / "current"
    unit.write_text("ExecStart=/opt/vllm/releases/a/bin/vllm serve")
    module.keep(tmp_path / "kept", unit, "", said("a"))
    unit.write_text("ExecStart=/opt/vllm/current/bin/vllm serve")
    current.symlink_to("/opt/vllm/releases/b")
    assert module.put_back(tmp_path / "kept" / "now", unit, "", current)
    assert unit.read_text() == "ExecStart=/opt/vllm/releases/a/bin/vllm serve"
    assert str(current.readlink()) == "/opt/vllm/releases/b"


def test_what_a_second_run_wrote_over_is_not_kept_as_the_first_ones(tmp_path: Path) -> None:
    unit = tmp_path / "unit"
    unit.write_text("--max-num-seqs 21")
    rendered = sha256(b"--max-num-seqs 21").hexdigest()
    assert module.is_ours(unit, rendered)
    unit.write_text("--max-num-seqs 20")
    assert not module.is_ours(unit, rendered)
    assert module.is_ours(unit, ""), "a rollback puts back what it did not write"
