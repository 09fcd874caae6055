"""Commands that a finding gives to paste hold no text of the log or of the launch that a shell would run."""

import shlex
from pathlib import Path

import pytest

from tests.scenarios.loading import snapshot
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose


def test_a_port_of_shell_text_is_in_no_command() -> None:
    for name in ("vd510-port-of-shell-text-fires", "vd510-port-of-no-number-fires"):
        told = diagnose(snapshot(name)).findings[0]
        assert told.code == "VD510"
        commands = [change.command for change in told.changes if change.command]
        assert commands == ["ss -ltnp", "ss -ltn   # the ports that are taken"]


@pytest.mark.parametrize("model", ["a/b$(id)", "a/b'; id; '", "/srv/m; id", "/srv/'$(id)'", "a/b`id`", "-rf", "a b/c"])
def test_a_model_of_shell_text_is_a_word_of_the_shell_or_in_no_command(model: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        f"INFO 03-01 10:00:12 [api_server.py:1839] vLLM API server version 0.11.0\n"
        f"INFO 03-01 10:00:13 [utils.py:233] non-default args: {{'model': {model!r}}}\n"
        f"OSError: {model} is not a local folder and is not a valid model identifier listed on 'https://hf.co/models'\n"
    )
    told = diagnose(Snapshot(taken_at="2026-01-01T00:00:00+00:00", log=read_logs([str(log)])))
    for command in (change.command for finding in told.findings for change in finding.changes if change.command):
        typed = command.partition("   #")[0]
        words = [word for part in typed.split(" | ") for word in shlex.split(part)]
        assert model in words or "id" not in typed.replace("modelId", "").replace("grep -id", "")


_OLD_DRIVER = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
    "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx\n"
)


@pytest.mark.parametrize(
    ("printed", "typed"),
    [
        ("GPU 0: Tesla V100-SXM2-32GB\n", "apt-get install cuda-drivers-580"),
        ("GPU 0: Tesla T4\n", "apt-get install nvidia-open-580"),
        ("", "apt-get install nvidia-open-580"),
        ("OS: Ubuntu 24.04 on Linux 6.6.87.2-microsoft-standard-WSL2\n", "nvidia-smi.exe"),
    ],
)
def test_a_driver_comes_in_the_package_that_the_card_can_run(printed: str, typed: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(printed + _OLD_DRIVER)
    told = diagnose(Snapshot(taken_at="2026-01-01T00:00:00+00:00", log=read_logs([str(log)]))).findings[0]
    command = told.changes[0].command or ""
    assert (told.code, command.partition("   #")[0]) == ("VD701", typed)
    assert ("cuda-drivers-580" in command) == (printed == "" or "V100" in printed)
