"""Every launch that the templates render, held against the release's own parser: the one that the host serves with.

VLLM_RELEASE=FOLDER takes a release of this machine instead of the host's.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.conftest import TOOLS, Host
from tests.templates.launches import question

SCRIPT = Path(__file__).resolve().parents[1] / "templates/parse_with_release.py"
pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest) -> list[str]:
    """The command that runs the release's Python."""
    folder = os.environ.get("VLLM_RELEASE")
    if folder:
        return [f"{folder}/bin/python"]
    host: Host = request.getfixturevalue("host")
    program = host.run(f"sed -n 's/^ExecStart=\\([^ ]\\+\\) serve.*/\\1/p' {host.file}")
    release = host.run(f"dirname $(readlink -f {program})")
    return [str(TOOLS / "bin" / "podman"), "exec", "-i", host.container, f"{release}/python"]


def ask(python: list[str], asked: dict[str, list[object]]) -> dict[str, list[object]]:
    """Run the release's parser over the launches."""
    command = [*python, "-", json.dumps(asked)]
    done = subprocess.run(command, input=SCRIPT.read_text(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, list[object]] = json.loads(done.stdout)
    return answer


WRONG: list[object] = [
    ["m", "--swap-space", "4"],
    ["m", "--max-num-seqs", "many"],
    ["m", "--kv-cache-dtype", "fp7"],
]


def test_the_release_accepts_every_launch_that_templates_render_and_refuses_what_it_does_not_know(
    python: list[str],
) -> None:
    """Asked at once: a release's Python takes as long to import vLLM as half a start."""
    version = subprocess.run(
        [*python, "-c", "from importlib.metadata import version; print(version('vllm'))"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    asked = question(version.stdout.strip().partition("+")[0])
    assert len(asked["launches"]) > 20
    asked = {"launches": [*asked["launches"], *WRONG], "variables": [*asked["variables"], "VLLM_ATTENTION_BACKEND"]}
    answer = ask(python, asked)
    assert [refused[0] for refused in answer["refused"] if isinstance(refused, list)] == WRONG
    assert answer["unknown"] == ["VLLM_ATTENTION_BACKEND"]
