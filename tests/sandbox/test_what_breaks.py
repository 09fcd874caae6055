"""`vllm-doctor diagnose` on a real systemd host with a real vLLM, broken in the ways that happen.

The last of the sandbox's files, as what it leaves is no server that others could go on with. The tests stand in an
order that needs few starts of the model, but each brings about its own state.
"""

import json
from typing import Any

import pytest

from tests.sandbox.conftest import Host
from tests.sandbox.loads import load, loaded

pytestmark = pytest.mark.sandbox
# 40 blocks of 32 tokens: sixteen requests begin with a block each and grow until they throw each other out.
SMALL_POOL = "--num-gpu-blocks-override 40 --block-size 32 --max-model-len 1024 --max-num-seqs 16"
# One layer with one head: what a token costs, without what it costs to compute. Its weights are nobody's. Not in
# bfloat16: there its first completion ended vLLM 0.32.0's worker with SIGILL (exit code -4) on a machine with AMX.
SMALL_MODEL = (
    "--load-format dummy --dtype float32 "
    """--hf-overrides '{"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}'"""
)
# The next life does not begin before this one is judged: half a start costs as much as all that is asked here.
ONE_LIFE = {"RestartSec": "1h"}
IT_FAILED = "[ $(show SubState) = auto-restart ]"


def first(verdict: dict[str, Any]) -> dict[str, Any]:
    """The root cause."""
    assert verdict["findings"], json.dumps(verdict, indent=1)
    found: dict[str, Any] = verdict["findings"][0]
    return found


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
