"""site.yml's own variables are judged before any host is asked: the host of this inventory does not exist."""

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def play(folder: Path, environment: dict[str, str]) -> str:
    """What site.yml says to these settings; it ends where the host would be asked at the latest."""
    hosts = {"vllm": {"hosts": {"nowhere.invalid": {"site_environment": environment, "vllm_model": "/srv/models/a"}}}}
    (folder / "hosts.yml").write_text(json.dumps(hosts))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(folder / "hosts.yml"), "site.yml"],
        cwd=REPOSITORY,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return " ".join(done.stdout.split())


def test_a_proxys_password_would_be_seen_on_the_hosts_and_is_refused_unread(tmp_path: Path) -> None:
    said = play(tmp_path, {"no_proxy": "10.0.0.0/8", "https_proxy": "http://ops:s3cr3t@proxy.example:3128"})
    assert "site_environment: https_proxy holds a password" in said
    assert "s3cr3t" not in said


def test_a_proxy_without_a_password_is_taken(tmp_path: Path) -> None:
    said = play(tmp_path, {"https_proxy": "http://proxy.example:3128"})
    assert "holds a password" not in said
    assert "The variables make sense and fit each other" in said
