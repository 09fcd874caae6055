"""`vllm-doctor diagnose` on a real systemd host with a real vLLM, healthy and broken in the ways that happen.

The tests stand in an order that needs few starts of the model, but each brings about its own state.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import READY_S, Host

pytestmark = pytest.mark.sandbox
# 40 blocks of 32 tokens: sixteen requests begin with a block each and grow until they throw each other out.
SMALL_POOL = "--num-gpu-blocks-override 40 --block-size 32 --max-model-len 1024 --max-num-seqs 16"
# One layer with one head: what a token costs, without what it costs to compute. Its weights are nobody's.
SMALL_MODEL = (
    "--load-format dummy "
    """--hf-overrides '{"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}'"""
)
LOAD = Path(__file__).with_name("load.py").read_text()
# The next life does not begin before this one is judged: half a start costs as much as all that is asked here.
ONE_LIFE = {"RestartSec": "1h"}
IT_FAILED = "[ $(show SubState) = auto-restart ]"


def load(host: Host, *arguments: object) -> None:
    """Load until it is through, which other work beside it can make four times as long."""
    host.run(
        f"cat > /run/load.py <<'EOF'\n{LOAD}\nEOF\npython3 /run/load.py {' '.join(map(str, arguments))}",
        timeout_s=2 * READY_S,
    )


@contextmanager
def loaded(host: Host, *arguments: object) -> Iterator[None]:
    """Load in the background for as long as the block lasts, however slow the machine is."""
    host.run(
        f"cat > /run/load.py <<'EOF'\n{LOAD}\nEOF\n"
        f"systemd-run --quiet --collect --unit=test-load python3 /run/load.py 0 {' '.join(map(str, arguments))}"
    )
    try:
        yield
    finally:
        host.exec("systemctl stop test-load")


def first(verdict: dict[str, Any]) -> dict[str, Any]:
    """The root cause."""
    assert verdict["findings"], json.dumps(verdict, indent=1)
    found: dict[str, Any] = verdict["findings"][0]
    return found


def test_healthy_under_load_is_ok(broken: Host) -> None:
    broken.ready()
    with loaded(broken, 8, 300, 60):
        broken.until("load", "[ $(metric num_requests_running) != 0 ]")
        code, verdict = broken.diagnose()
        assert (code, verdict["verdict"]) == (0, "ok"), verdict
        assert verdict["facts"]["reached"] == "serving"
        assert broken.exec("vllm-doctor diagnose").returncode == 0


def test_what_it_sees_of_the_kv_blocks(broken: Host) -> None:
    broken.ready()
    load(broken, 30, 10, 200, 20)
    done = broken.exec("vllm-doctor fragmentation --format json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["kv"]["blocks"] > 0
    assert told["kv"]["more_mean"] > 0
    assert [w["block_size"] for w in told["kv"]["waste"]] == [8, 16, 32, 64, 128, 256]


def test_a_bundle_is_judged_as_the_host_was_and_holds_no_host_name(broken: Host) -> None:
    broken.ready()
    broken.run("rm -f /run/b.tar.gz; vllm-doctor bundle -o /run/b.tar.gz")
    done = broken.exec("vllm-doctor diagnose --from /run/b.tar.gz --format json")
    assert json.loads(done.stdout)["verdict"] == "ok"
    assert broken.exec('zcat /run/b.tar.gz | grep -caF \'"hostname": "<host-1>"\'').returncode == 0


def test_the_journal_is_forbidden_to_an_ordinary_user(broken: Host) -> None:
    """Not root, no group: unknown with the command that grants it, exit 3, and nothing called ok."""
    done = broken.exec(
        "setpriv --reuid=65534 --regid=65534 --clear-groups $(command -v vllm-doctor) diagnose --format json"
    )
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (3, "unknown")
    missing = {m["signal"]: m["remedy"] for m in verdict["unknown"]}
    assert "systemd-journal" in missing["log"]


def test_a_server_killed_leaves_an_orphan_where_the_unit_lets_it(broken: Host) -> None:
    """What starts in its place has the small pool of the next tests."""
    broken.ready()
    engine = broken.run("pgrep -f VLLM::EngineCor | head -1")
    broken.drop(f"{SMALL_POOL} {SMALL_MODEL}", KillMode="process", RestartSec="1", restart=False)
    broken.run(f"kill -9 {broken.main_pid()}")
    broken.until("the next start", "[ $(show NRestarts) -ge 1 ]")
    broken.ready()
    code, verdict = broken.diagnose()
    broken.run(f"pkill -9 -P {engine} || true; kill -9 {engine}")
    assert code == 1
    assert first(verdict)["code"] == "VD902"
    assert engine in str(first(verdict)["title"])


def test_a_prefix_cache_that_never_hits_and_one_that_does(broken: Host) -> None:
    """On the small server of the test before: 200,000 tokens took the whole model 280 s of a processor."""
    broken.ready()
    assert broken.metric("prefix_cache_hits_total") == 0
    load(broken, 448, 16, 475, 1)  # short ones: attention costs by the square of their length
    assert broken.metric("prefix_cache_queries_total") >= 200_000
    _, verdict = broken.diagnose()
    assert first(verdict)["phase"] == "prefix-cache"
    assert first(verdict)["severity"] == "advice"
    load(broken, 12, 1, 900, 1, "same")
    _, verdict = broken.diagnose()  # the test's own drop-in is all that is left to say
    assert [found["code"] for found in verdict["findings"]] == ["VD911"]


def test_real_preemption(broken: Host) -> None:
    """Sixteen short prompts whose answers outgrow the small pool of the tests before.

    vLLM counts a preemption only when the request runs again, so the queue is seen before the counter.
    """
    told = "{ vllm-doctor diagnose --format json || true; }"  # it ends with 1 where it finds something
    broken.ready()
    with loaded(broken, 16, 20, 150):
        broken.until("preemptions", "[ $(metric num_preemptions_total) != 0 ]")
        broken.until("the finding", f"""{told} | grep -q '^ *"phase": *"runtime-kv-preemption"'""")


def test_a_frozen_server_is_a_finding_and_never_ok(broken: Host) -> None:
    broken.drop(SMALL_POOL, restart=False)  # no orphans from here on
    broken.ready()
    pid = broken.main_pid()
    broken.run(f"kill -STOP {pid}")
    try:
        code, verdict = broken.diagnose()
    finally:
        broken.run(f"kill -CONT {pid}")
    assert code == 1
    assert first(verdict)["code"] == "VD901"
    assert str(pid) in str(first(verdict)["title"])
    assert "metrics" in [m["signal"] for m in verdict["unknown"]]


def test_an_engine_killed_under_its_server(broken: Host) -> None:
    broken.drop(SMALL_POOL, restart=False, **ONE_LIFE)
    broken.ready()
    broken.run("kill -9 $(pgrep -f VLLM::EngineCor | head -1)")
    broken.until("the end of the server", IT_FAILED)
    code, verdict = broken.diagnose()
    assert code == 1
    assert first(verdict)["code"] == "VD905"
    broken.drop(SMALL_POOL)


def test_stopped_by_hand_is_not_a_fault(broken: Host) -> None:
    broken.ready()
    broken.run(f"systemctl stop {broken.unit}")
    code, verdict = broken.diagnose()
    assert (code, verdict["verdict"], verdict["findings"]) == (0, "ok", [])
    assert "stopped" in verdict["path"][-1]["because"]


def test_no_vllm_at_all_is_not_applicable_with_a_hint(broken: Host) -> None:
    file = f"/etc/systemd/system/{broken.unit}"
    broken.run(f"systemctl stop {broken.unit}; cp -a {file} /run/kept.service; rm {file}; systemctl daemon-reload")
    try:
        code, verdict = broken.diagnose()
        shown = broken.exec("vllm-doctor diagnose").stdout
    finally:
        broken.run(f"cp -a /run/kept.service {file}; systemctl daemon-reload; systemctl enable --quiet {broken.unit}")
    assert (code, verdict["verdict"]) == (0, "not_applicable")
    assert "no vLLM unit on this host" in shown
    assert "--log" in shown


def test_the_port_is_taken_by_another_program(broken: Host) -> None:
    broken.drop(restart=False, **ONE_LIFE)
    broken.run(
        f"systemctl stop {broken.unit}; systemd-run --quiet --collect --unit=test-port python3 -m http.server 8000"
    )
    try:
        broken.run(f"systemctl reset-failed {broken.unit} || true; systemctl start {broken.unit}")
        broken.until("a failure", IT_FAILED)
        code, verdict = broken.diagnose()
    finally:
        broken.run(f"systemctl stop test-port {broken.unit}")
    assert code == 1
    assert first(verdict)["cause"] == "port-in-use"


def test_a_flag_that_this_version_lost(broken: Host) -> None:
    """Five restarts over it are played on the stand-in, in roles/vllm/molecule/instances."""
    broken.drop("--swap-space 4", **ONE_LIFE)
    broken.until("a failure", IT_FAILED)
    code, verdict = broken.diagnose()
    assert code == 1
    assert (first(verdict)["phase"], first(verdict)["cause"]) == ("flag-error", "removed-flag")


def test_a_context_that_does_not_fit_the_kv_cache(broken: Host) -> None:
    broken.drop("--max-model-len 131072", **ONE_LIFE)
    broken.until("a failure", IT_FAILED)
    code, verdict = broken.diagnose()
    assert code == 1
    found = first(verdict)
    assert (found["phase"], found["cause"]) == ("startup-kv-cache", "kv-cache-too-small-for-max-model-len")
    change = found["changes"][0]
    assert change["name"] == "max-model-len"
    assert change["inventory_var"] == "vllm_max_model_len"
    assert 0 < change["to"] < 131072
