"""Weight files that are not whole, told by their own headers."""

import grp
import json
import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest

from vllm_doctor.gather.weight_files import checked


def safetensors(path: Path, data: int, *, claims: int | None = None) -> int:
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "data_offsets": [0, claims or data]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * data)
    return 8 + len(header) + (claims or data)


def test_a_file_that_was_cut_is_told_with_the_size_that_it_should_have(tmp_path: Path) -> None:
    safetensors(tmp_path / "a.safetensors", 64)
    wanted = safetensors(tmp_path / "b.safetensors", 16, claims=400)
    found = checked(str(tmp_path))
    assert found is not None
    assert (found.checked, [(c.path, c.needed) for c in found.cut]) == (2, [(f"{tmp_path}/b.safetensors", wanted)])


def test_a_pointer_stands_for_a_file_of_the_size_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4096\n")
    found = checked(str(tmp_path))
    assert found is not None
    assert [c.needed for c in found.cut] == [4096]


def test_what_is_no_header_has_no_size_to_ask_for(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 100)
    (tmp_path / "b.safetensors").write_bytes(b"")
    found = checked(str(tmp_path))
    assert found is not None
    assert [c.needed for c in found.cut] == [None, None]


def test_a_folder_without_weights_says_nothing(tmp_path: Path) -> None:
    assert checked(str(tmp_path)) is None


def test_a_folder_that_is_not_there_is_told_with_the_models_beside_it(tmp_path: Path) -> None:
    for name in ("tiny-v2", ".kept", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "tiny-v2" / "config.json").write_text("{}")
    (tmp_path / ".kept" / "config.json").write_text("{}")
    found = checked(str(tmp_path / "tiny"))
    assert found is not None
    assert (found.missing, found.beside) == (f"{tmp_path}/tiny", (f"{tmp_path}/tiny-v2",))


def test_a_whole_file_of_the_same_model_in_a_folder_beside_is_named(tmp_path: Path) -> None:
    for name, config in (("model", "{}"), ("copy", "{}"), ("another", '{"other": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
        safetensors(tmp_path / name / "a.safetensors", 64)
    (tmp_path / "model" / "a.safetensors").write_bytes((tmp_path / "copy" / "a.safetensors").read_bytes()[:90])

    found = checked(str(tmp_path / "model"))
    assert found is not None
    assert [c.copy for c in found.cut] == [f"{tmp_path}/copy/a.safetensors"]

    (tmp_path / "copy" / "config.json").write_text('{"other": 1}')
    found = checked(str(tmp_path / "model"))
    assert found is not None
    assert [c.copy for c in found.cut] == [""]


def test_a_pipe_of_that_name_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    assert checked(str(tmp_path)) is None


@pytest.mark.parametrize("size", ["9" * 350, "-5", "", "x", "9" * 5000])
def test_a_pointer_that_names_no_size_asks_for_none(tmp_path: Path, size: str) -> None:
    (tmp_path / "a.safetensors").write_text(f"version https://git-lfs.github.com/spec/v1\nsize {size}\n")
    found = checked(str(tmp_path))
    assert found is None or [c.needed for c in found.cut] == [None]


def test_a_header_of_more_values_than_any_has_is_not_read(tmp_path: Path) -> None:
    header = b"[" * 1_000_001
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    found = checked(str(tmp_path))
    assert found is not None
    assert [c.needed for c in found.cut] == [None]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that another user may not read")
def test_what_the_services_user_may_not_read_is_told_with_its_owner(tmp_path: Path) -> None:
    model = Path(tempfile.mkdtemp(dir="/var/tmp")) / "model"
    try:
        model.parent.chmod(0o755)
        model.mkdir(mode=0o700)
        (model / "config.json").write_text("{}")
        safetensors(model / "a.safetensors", 64)
        found = checked(str(model), "nobody")
        assert found is not None
        assert (found.denied, found.why) == (str(model), "user nobody may not read it: owner root, mode 700")
        model.chmod(0o755)
        found = checked(str(model), "nobody")
        assert found is not None
        assert (found.denied, found.checked) == ("", 1)
    finally:
        shutil.rmtree(model.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that another user may not read")
@pytest.mark.parametrize(
    ("step", "mode", "group", "denied"),
    [
        # of the folder above, the model's folder, its config.json; the group is the service user's, which a reader adds
        ("above", 0o711, 0, None),  # passing through is enough
        ("above", 0o710, 0, "above"),
        ("above", 0o710, 65534, None),
        ("above", 0o701, 65534, "above"),  # the group's bits hold for the group, not the others'
        ("model", 0o755, 0, None),
        ("model", 0o751, 0, "model"),  # its names are read too
        ("model", 0o754, 0, "model"),
        ("model", 0o750, 65534, None),
        ("config.json", 0o644, 0, None),
        ("config.json", 0o641, 0, "config.json"),
        ("config.json", 0o640, 65534, None),
    ],
)
def test_each_step_to_the_weights_needs_its_own_bits(step: str, mode: int, group: int, denied: str | None) -> None:
    above = Path(tempfile.mkdtemp(dir="/var/tmp"))
    steps = {"above": above, "model": above / "model", "config.json": above / "model" / "config.json"}
    try:
        above.chmod(0o755)
        steps["model"].mkdir(mode=0o755)
        steps["config.json"].write_text("{}")
        steps["config.json"].chmod(0o644)
        safetensors(steps["model"] / "a.safetensors", 64)
        os.chown(steps[step], 0, group)
        steps[step].chmod(mode)
        found = checked(str(steps["model"]), "nobody")
        assert found is not None
        assert found.denied == ("" if denied is None else str(steps[denied]))
        # Of the model's own folder and files the service's group may be let in; not of what lies above.
        own = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
        assert found.group == (own if denied in {"model", "config.json"} else "")
    finally:
        shutil.rmtree(above)
