"""Commands that a finding gives to paste hold no text of the log or of the launch that a shell would run."""

from tests.scenarios.loading import snapshot
from vllm_doctor.rules.engine import diagnose


def test_a_port_of_shell_text_is_in_no_command() -> None:
    for name in ("vd510-port-of-shell-text-fires", "vd510-port-of-no-number-fires"):
        told = diagnose(snapshot(name)).findings[0]
        assert told.code == "VD510"
        commands = [change.command for change in told.changes if change.command]
        assert commands == ["ss -ltnp"]
