"""What the doctor says of a real server that serves, on the host that `make up` made."""

import json

import pytest

from tests.sandbox.conftest import Host
from tests.sandbox.loads import load, loaded

pytestmark = pytest.mark.sandbox


def test_healthy_under_load_is_ok(host: Host) -> None:
    host.ready()
    with loaded(host, 8, 300, 60, "same"):  # on a fast machine prompts that differ are soon enough for VD401
        host.until("load", "[ $(metric num_requests_running) != 0 ]")
        code, verdict = host.diagnose()
        assert (code, verdict["verdict"]) == (0, "ok"), verdict
        assert verdict["facts"]["reached"] == "serving"
        host.until("ok", "vllm-doctor diagnose")  # an answer that came late is an honest unknown


def test_what_it_sees_of_the_kv_blocks(host: Host) -> None:
    host.ready()
    load(host, 30, 10, 200, 20)
    done = host.exec("vllm-doctor fragmentation --format json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["kv"]["blocks"] > 0
    assert told["kv"]["more_mean"] > 0
    assert [w["block_size"] for w in told["kv"]["waste"]] == [8, 16, 32, 64, 128, 256]


def test_a_bundle_is_judged_as_the_host_was_and_holds_no_host_name(host: Host) -> None:
    host.ready()
    host.run("rm -f /run/b.tar.gz; vllm-doctor bundle -o /run/b.tar.gz")
    done = host.exec("vllm-doctor diagnose --from /run/b.tar.gz --format json")
    told = json.loads(done.stdout)
    assert told["verdict"] == "ok", told["findings"]
    assert host.exec('zcat /run/b.tar.gz | grep -caF \'"hostname": "<host-1>"\'').returncode == 0


def test_the_journal_is_forbidden_to_an_ordinary_user(host: Host) -> None:
    """Not root, no group: unknown with the command that grants it, exit 3, and nothing called ok."""
    done = host.exec(
        "setpriv --reuid=65534 --regid=65534 --clear-groups $(command -v vllm-doctor) diagnose --format json"
    )
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (3, "unknown"), verdict["findings"]
    missing = {m["signal"]: m["remedy"] for m in verdict["unknown"]}
    assert "systemd-journal" in missing["log"]
