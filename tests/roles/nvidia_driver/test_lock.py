"""What is written for dnf's versionlock plugin."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.roles.vllm.plugins import load

MODULE = load("plugins/modules/package_lock.py")
RPMS = "nvidia-driver\t3:580.105.08-1.el9\ncuda-toolkit-13-0\t0:13.0.2-1\nkernel\t0:5.14.0-1.el9\nbash\t0:5.1-1\n"
DRIVER, TOOLKIT = re.compile("^(nvidia-|kernel$)"), re.compile("^cuda-")


def test_the_toolkit_s_lock_leaves_the_driver_s_and_a_second_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "ask", lambda *_: RPMS)
    file = tmp_path / "versionlock.list"
    file.write_text("bash-0:5.1-1.*\n")
    module = SimpleNamespace(params={"versionlock": str(file)}, check_mode=False)

    def entries() -> list[str]:
        return [line for line in file.read_text().splitlines() if not line.startswith("#")]

    for changes in (True, False):
        assert MODULE.dnf(module, DRIVER, True)[0] is changes
        assert MODULE.dnf(module, TOOLKIT, True)[0] is changes
    everything = [
        "bash-0:5.1-1.*",
        "cuda-toolkit-13-0-0:13.0.2-1.*",
        "kernel-0:5.14.0-1.el9.*",
        "nvidia-driver-3:580.105.08-1.el9.*",
    ]
    assert entries() == everything
    assert MODULE.dnf(module, TOOLKIT, False)[0] is True
    assert entries() == [entry for entry in everything if "cuda" not in entry]


def test_another_run_of_dpkg_is_waited_for_and_another_failure_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "apt-mark"
    program.write_text(
        f"""#!/bin/sh
echo >> {tmp_path}/calls
[ $(wc -l < {tmp_path}/calls) -ge 3 ] && exit 0
echo 'dpkg: error: dpkg frontend lock was locked by another process with pid 2169' >&2; exit 100
"""
    )
    program.chmod(0o755)
    failed: list[str] = []
    module = SimpleNamespace(fail_json=lambda *, msg: failed.append(msg))
    monkeypatch.setattr(MODULE, "PAUSE_S", 0)
    MODULE.ask(module, [str(program), "hold", "libcuda1"])
    assert not failed
    assert (tmp_path / "calls").read_text() == "\n" * 3
    program.write_text("#!/bin/sh\necho 'E: Unable to locate package' >&2; exit 100\n")
    MODULE.ask(module, [str(program), "hold", "libcuda1"])
    assert failed == [f"{program} hold libcuda1: E: Unable to locate package"]
