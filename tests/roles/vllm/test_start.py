"""A service is started anew by one question: judged, freed of drop-ins that hold for a while, enabled, restarted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[3] / "plugins" / "modules" / "vllm_start.py"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder of units, a drop-in of `vllm-doctor recover`, and a systemctl that writes down what it is told."""
    (tmp_path / "units").mkdir()
    drop_ins = tmp_path / "run" / "vllm@main.service.d"
    drop_ins.mkdir(parents=True)
    (drop_ins / "zzy-vllm-doctor-recover.conf").write_text("[Service]\n")
    (drop_ins / "10-somebody.conf").write_text("[Service]\n")
    (tmp_path / "bin").mkdir()
    for name in ("systemctl", "systemd-analyze"):
        program = tmp_path / "bin" / name
        program.write_text(
            f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/told\n'
            f"[ ! -e {tmp_path}/expired ] || rm -f {drop_ins}/zzy-*\n"
            f'[ "$1" != "$(cat {tmp_path}/fails 2>/dev/null)" ] || {{ echo "no such thing" >&2; exit 1; }}\n'
        )
        program.chmod(0o755)
    return tmp_path


def start(host: Path, *, check: bool = False) -> dict[str, object]:
    asked = {"name": "vllm@main", "units": str(host / "units"), "runtime": str(host / "run")}
    arguments = {"ANSIBLE_MODULE_ARGS": asked | {"_ansible_check_mode": check}}
    done = subprocess.run(
        [sys.executable, MODULE],
        input=json.dumps(arguments),
        env=os.environ | {"PATH": f"{host / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_the_unit_is_judged_before_anything_is_touched_and_the_inventory_counts_again(host: Path) -> None:
    assert start(host)["changed"] is True
    assert (host / "told").read_text().splitlines() == [
        f"systemd-analyze verify {host}/units/vllm@main.service",
        "systemctl daemon-reload",
        "systemctl reset-failed vllm@main.service",
        "systemctl enable vllm@main.service",
        "systemctl restart vllm@main.service",
    ]
    assert [path.name for path in host.glob("run/*/*")] == ["10-somebody.conf"]


def test_a_drop_in_that_its_own_timer_takes_away_meanwhile_is_no_failure(host: Path) -> None:
    (host / "expired").touch()
    assert start(host)["changed"] is True
    assert (host / "told").read_text().splitlines()[-1] == "systemctl restart vllm@main.service"


@pytest.mark.parametrize(("fails", "left"), [("verify", 2), ("restart", 1)])
def test_what_fails_is_said_with_its_service_so_that_the_doctor_can_be_asked(host: Path, fails: str, left: int) -> None:
    (host / "fails").write_text(fails)
    answer = start(host)
    assert answer["failed"] is True
    assert answer["service"] == "vllm@main.service"
    assert str(answer["msg"]).endswith(f"{fails} vllm@main.service: no such thing")
    assert len(list(host.glob("run/*/*"))) == left


def test_a_start_limit_that_was_never_reached_is_no_failure(host: Path) -> None:
    (host / "fails").write_text("reset-failed")
    assert start(host)["changed"] is True


def test_check_mode_tells_systemd_nothing(host: Path) -> None:
    assert start(host, check=True)["changed"] is True
    assert not (host / "told").exists()
    assert len(list(host.glob("run/*/*"))) == 2
