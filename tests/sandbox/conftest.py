"""The sandbox as tests use it: the host that `make up` made, broken on purpose and made whole again.

SANDBOX names it. `make up` is run first, which changes nothing where it already stands; SANDBOX_AS_IT_IS=1 skips that.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[2]
TOOLS = REPO / "tools"
# A start takes some 20 s of two processors; a machine that runs other tests beside this has fewer.
READY_S = 900
# Words for scripts on the host. A look from there costs a hundredth of one through podman, which a start would feel.
WORDS = """
show() { systemctl show --property="$1" --value UNIT; }
settled() {  # active with no job waiting: the old process answers for a while after a restart was asked for
  [ "$(show ActiveState)" = active ] && case $(show Job) in ''|0) ;; *) false ;; esac
}
answers() { curl -sf -m 30 -o /dev/null http://127.0.0.1:8000/health; }
at_once() { curl -sf -m 1 -o /dev/null http://127.0.0.1:8000/health; }  # the doctor does not wait for a busy machine
metric() { curl -s -m 60 http://127.0.0.1:8000/metrics | awk "/^vllm:$1/ {s += \\$NF} END {print s+0}"; }
"""


def _container(group: str) -> str:
    """The name that tools/host.py gives the host of this checkout."""
    program = "import sys, host; print(host.container_name(sys.argv[1], None))"
    told = subprocess.run([sys.executable, "-c", program, group], cwd=TOOLS, capture_output=True, text=True, check=True)
    return told.stdout.strip()


def site(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Play site.yml on the sandbox."""
    command = [str(TOOLS / "hosttest"), "ansible-playbook", "site.yml", "-i", "inventories/sandbox", *arguments]
    environment = {**os.environ, "SANDBOX": os.environ.get("SANDBOX") or "sandbox", "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=False)


class Host:
    """The sandbox host: commands in it, its vLLM unit, and the doctor on it."""

    def __init__(self, container: str) -> None:
        self.container, self.unit = container, ""
        listed = "systemctl list-unit-files --no-legend 'vllm*.service'"
        self.unit = self.run(f"{listed} | awk '!/doctor|@\\./{{print $1; exit}}'")
        assert self.unit, "no vLLM unit on the sandbox host"
        self.file = f"/etc/systemd/system/{self.unit}"
        self.drop_in = f"/run/systemd/system/{self.unit}.d/90-test.conf"

    def exec(self, script: str, *, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a shell script on the host; it may use WORDS."""
        script = WORDS.replace("UNIT", self.unit) + script
        # The host ends it: what only its client gives up goes on there, and the next test is judged beside it.
        bounded = ["timeout", "--kill-after=10", f"{timeout_s:g}", "bash", "-euo", "pipefail", "-s"]
        command = [str(TOOLS / "bin" / "podman"), "exec", "-i", self.container, *bounded]
        return subprocess.run(
            command, input=script, capture_output=True, text=True, timeout=timeout_s + 60, check=False
        )

    def run(self, script: str, *, timeout_s: float = 300) -> str:
        """The same, which must succeed; its output."""
        done = self.exec(script, timeout_s=timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def diagnose(self) -> tuple[int, dict[str, Any]]:
        """`vllm-doctor diagnose` on the host: its exit code and its verdict."""
        done = self.exec("vllm-doctor diagnose --format json")
        assert done.stdout.startswith("{"), done.stderr
        return done.returncode, json.loads(done.stdout)

    def show(self, name: str) -> str:
        """One property of the unit."""
        return self.run(f"show {name}")

    def main_pid(self) -> int:
        return int(self.show("MainPID"))

    def drop(self, arguments: str = "", *, unit: str = "", restart: bool = True, **service: str) -> None:
        """Lay `arguments` behind the unit's command line, these settings of [Service] and `unit` of [Unit] over it."""
        lines = ["[Unit]", unit, "[Service]", *(f"{name}={value}" for name, value in service.items())]
        if arguments:
            # The rendered command runs over several lines, each but the last ending in a backslash.
            joined = f"sed -e ':join;/\\\\$/N;s/ *\\\\\\n */ /;tjoin' {self.file}"
            command = self.run(f"{joined} | sed -n 's/^ExecStart=\\(.\\+\\)/\\1/p' | tail -1")
            lines += ["ExecStart=", f"ExecStart={command} {arguments}"]
        text = "\n".join(lines)
        self.run(
            f"mkdir -p $(dirname {self.drop_in}); cat > {self.drop_in} <<'EOF'\n{text}\nEOF\nsystemctl daemon-reload"
        )
        if restart:
            self.run(f"systemctl reset-failed {self.unit} || true; systemctl restart {self.unit}")

    def until(self, what: str, condition: str) -> None:
        """Wait on the host for a condition of its shell, or say what did not happen."""
        waiting = f"until {condition}; do [ $SECONDS -lt {READY_S} ] || exit 9; sleep 0.5; done"
        done = self.exec(waiting, timeout_s=2 * READY_S)
        assert done.returncode == 0, f"{what} did not happen within {READY_S} s\n{done.stderr}\n{self.tail()}"

    def answers(self) -> bool:
        """Does /health answer 200?"""
        return self.exec("answers").returncode == 0

    def ready(self) -> None:
        """Wait until it serves within the doctor's own time, and nothing is about to end that."""
        self.until("readiness", "settled && at_once")

    def metric(self, name: str) -> float:
        """A metric of vLLM, summed over its series."""
        return float(self.run(f"metric {name}"))

    def tail(self) -> str:
        return self.exec(f"systemctl status --no-pager -n 30 {self.unit} | cut -c1-200").stdout

    def as_rendered(self) -> bool:
        """Does it serve with the very words of its unit, and none of a test or a trial?"""
        if "/run/" in self.show("DropInPaths") or self.exec("settled && answers").returncode != 0:
            return False
        rendered = self.show("ExecStart").partition("argv[]=")[2].partition(" ; ")[0]
        running = self.run(f"tr '\\0' ' ' < /proc/{self.main_pid()}/cmdline")
        return self.show("NeedDaemonReload") == "no" and running.endswith(rendered)

    def whole(self, *, anew: bool = False) -> None:
        """As it was rendered, and serving; started anew if it is not, or if `anew` asks for counters at zero."""
        if not anew and self.as_rendered():
            return
        self.run(
            f"rm -f {self.drop_in}; systemctl daemon-reload; systemctl reset-failed {self.unit} || true; "
            f"systemctl restart {self.unit}"
        )
        self.ready()


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """The sandbox host, provisioned; in the end as its own inventory says, unless make_up takes it down."""
    group = os.environ.get("SANDBOX") or "sandbox"
    if not os.environ.get("SANDBOX_AS_IT_IS"):
        made = subprocess.run(
            [sys.executable, str(TOOLS / "up.py")], cwd=REPO, check=False, env={**os.environ, "SANDBOX": group}
        )
        assert made.returncode == 0, "make up failed"
    yield Host(_container(group))
    if not os.environ.get("SANDBOX_GOES"):
        again = site()
        assert again.returncode == 0, again.stdout


@pytest.fixture(scope="module")
def broken(host: Host) -> Iterator[Host]:
    """The host for tests that break it; it is made whole when they are done, unless it is taken down then."""
    yield host
    if not os.environ.get("SANDBOX_GOES"):
        host.whole()
