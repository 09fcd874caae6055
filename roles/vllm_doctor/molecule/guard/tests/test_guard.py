"""The guard on a host with two services: what it may do, what it does, and what it leaves alone. In this order."""

import base64
import json
import re
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.nvml_sim.build import build

KEY = "molecule-guard"
PORTS = {"chat": 8000, "code": 8001}
START_S = 15
PATIENCE_S = 240  # for what is not measured, on a busy machine


def post(host, name, tokens=4, *, seconds=PATIENCE_S):
    """A completion asked for with curl on the host; its status, and how many tokens came."""
    body = json.dumps({"model": name, "prompt": "Once", "max_tokens": tokens, "ignore_eos": True})
    url = f"http://127.0.0.1:{PORTS[name]}/v1/completions"
    options = f"-s --max-time {seconds} -w '\\n%{{http_code}}' -H 'Authorization: Bearer {KEY}'"
    done = host.run(f"curl {options} -d {shlex.quote(body)} {url}")
    answer, _, status = done.stdout.rpartition("\n")
    told = json.loads(answer) if answer.startswith("{") else {}
    return int(status or 0), told.get("usage", {}).get("completion_tokens", 0)


def until(what, seconds=PATIENCE_S):
    """Ask until it is true; how long that took."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if what():
            return time.monotonic() - began
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds} s")


def misbehave(host, **words):
    host.check_output(f"echo {shlex.quote(json.dumps(words))} > /etc/stub-vllm.json")


def pid(host, name):
    return host.check_output(f"systemctl show -P MainPID vllm@{name}")


def engine(host, name):
    return host.check_output(f"pgrep -P {pid(host, name)} | head -1")


def guard_says(host):
    return host.check_output("journalctl --no-pager -o cat -u vllm-doctor-guard")


def test_it_is_a_user_of_its_own_that_cannot_restart_and_has_no_key(host):
    assert host.check_output("ps -o user= -p $(systemctl show -P MainPID vllm-doctor-guard)") == "vllm-doctor"
    assert "0.0" not in host.check_output("systemd-analyze security vllm-doctor-guard --no-pager | tail -1")
    refused = host.run("runuser -u vllm-doctor -- systemctl restart vllm@chat")
    assert refused.rc != 0
    process = host.check_output("systemctl show -P MainPID vllm-doctor-guard")
    assert KEY not in host.check_output(f"tr '\\0' '\\n' < /proc/{process}/environ")
    assert not host.run("runuser -u vllm-doctor -- cat /etc/vllm/chat.secrets").succeeded


ASK = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect("/run/vllm-doctor/restart.sock")
line.sendall(sys.argv[1].encode())
line.shutdown(socket.SHUT_WR)
print(line.recv(4096).decode())
"""


def test_its_helper_restarts_what_the_policy_names_and_nothing_else(host):
    def ask(user, words):
        return host.run(f"runuser -u {user} -- python3 -c {shlex.quote(ASK)} {shlex.quote(words)}")

    other = ask("vllm-doctor", '{"unit": "systemd-journald.service"}')
    assert "is not among the policy's units" in other.stdout
    assert "not a request" in ask("vllm-doctor", "reboot").stdout
    assert "not a request" in ask("vllm-doctor", '{"unit": "vllm@chat.service", "argv": ["sh"]}').stdout
    assert "PermissionError" in ask("nobody", '{"unit": "vllm@chat.service"}').stderr
    came = json.loads(ask("vllm-doctor", '{"unit": "vllm@chat.service", "what": "complete"}').stdout)
    assert came == {"done": True, "came": True}


def test_an_engine_stopped_under_load_is_back_and_its_neighbour_keeps_its_stream(host):
    misbehave(host, token_seconds=0.1, start_seconds=START_S)
    neighbour, before = pid(host, "code"), pid(host, "chat")
    with ThreadPoolExecutor() as clients:
        stream = clients.submit(post, host, "code", 900)
        load = [clients.submit(post, host, "chat", 900) for _ in range(3)]
        until(lambda: "num_requests_running" in host.run("curl -s 127.0.0.1:8000/metrics").stdout)
        time.sleep(3)  # the load runs; the guard has seen it move
        host.check_output(f"kill -STOP {engine(host, 'chat')}")
        assert host.run("curl -s -o /dev/null -w '%{http_code}' 127.0.0.1:8000/health").stdout == "200"
        took = until(lambda: pid(host, "chat") not in {before, "0"} and post(host, "chat", seconds=5)[0] == 200)
        assert [one.result()[0] for one in load] != [200, 200, 200]
        assert stream.result() == (200, 900)
    assert pid(host, "code") == neighbour
    print(f"answers {took:.0f} s after its engine was stopped; a start takes {START_S} s")
    assert took <= 10 * START_S, guard_says(host)  # docs/guard.md has what was measured; a busy machine takes longer
    until(lambda: "restarted; a completion came back" in guard_says(host))
    said = next(line for line in guard_says(host).splitlines() if "engine-dead: restarts it" in line)
    assert "the engine's processes do not compute" in said
    assert "3 running" in said


def test_a_drained_unit_and_a_stop_file_hold_it_at_once(host):
    misbehave(host, token_seconds=0.1)
    host.check_output("touch /etc/vllm-doctor/guard.stop")
    before = pid(host, "chat")
    host.check_output(f"kill -STOP {engine(host, 'chat')}")
    until(lambda: "would restart it (/etc/vllm-doctor/guard.stop is there)" in guard_says(host))
    assert pid(host, "chat") == before
    host.check_output("rm /etc/vllm-doctor/guard.stop")
    until(lambda: pid(host, "chat") not in {before, "0"} and post(host, "chat", seconds=5)[0] == 200)


def test_history_tells_what_happened_to_everybody_who_may_ask(host):
    told = json.loads(host.check_output("vllm-doctor history --format json"))
    kinds = {event["kind"] for event in told["events"] if event["unit"] == "vllm@chat.service"}
    assert {"restarted", "engine-dead", "answers", "start"} <= kinds
    assert KEY not in json.dumps(told)
    stranger = host.run("runuser -u nobody -- vllm-doctor history --unit vllm@chat")
    assert "engine-dead" in stranger.stdout
    assert "not read: vllm@chat.service: journal: no permission" in stranger.stdout
    assert stranger.rc == 3  # who may not read the journal has not seen all


def test_watch_shows_both_and_a_server_by_its_address(host):
    told = json.loads(host.check_output("vllm-doctor watch --once --format json"))
    assert {one["name"] for one in told["services"]} == {"vllm@chat.service", "vllm@code.service"}
    page = host.check_output("COLUMNS=80 vllm-doctor watch --once --url http://127.0.0.1:8001")
    assert re.search(r"\d running, 0 waiting", page)  # the guard's own token, or the last of a stream, may run
    assert max(map(len, page.splitlines())) <= 80


def test_recover_brings_it_back_with_less_twice_and_leaves_the_neighbour_alone(host):
    misbehave(host)
    neighbour = pid(host, "code")
    plan = host.check_output("vllm-doctor recover --unit vllm@chat --dry-run")
    assert "1. stop vllm@chat.service, which is active" in plan
    for _ in range(2):
        done = host.run("vllm-doctor recover --unit vllm@chat --yes --hours 1 --ready-seconds 240")
        assert done.rc == 0, done.stdout + done.stderr
        assert "a completion came back" in done.stdout
    assert pid(host, "code") == neighbour
    assert post(host, "chat")[0] == 200
    assert not host.file("/run/vllm-doctor/changing").exists


LEFT = """[Service]
KillMode=process
ExecStartPost=/bin/bash -c 'setsid bash -c "trap : TERM; while :; do sleep 1; done" & setsid sleep 4242 & exit 0'
"""
CARD = """driver = 580.105.08
nvml = 13.580.105.08
cuda = 13000
gpu.0.name = NVIDIA H100 80GB HBM3
gpu.0.uuid = GPU-11111111-2222-3333-4444-000000000000
gpu.0.pci = 00000000:18:00.0
gpu.0.total = {total}
gpu.0.free = {free}
gpu.0.capability = 9.0
gpu.0.living = 1
gpu.0.process.0 = compute {deaf} {deaf_bytes}
gpu.0.process.1 = compute {strayed} {strayed_bytes}
gpu.0.process.2 = compute {neighbour} {neighbour_bytes}
gpu.0.process.3 = compute {namesake} {namesake_bytes}
"""
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
GIB = 1 << 30


def put(host, path, content):
    """A file on the host, bytes as they are."""
    host.check_output(f"mkdir -p {Path(path).parent} && echo {base64.b64encode(content).decode()} | base64 -d > {path}")


@pytest.fixture
def left_behind(host, tmp_path):
    """What chat left on the GPU of a simulated driver, beside the neighbour's process and a stranger with an engine's
    name: one process in its control group that is deaf to SIGTERM, and one that left the group."""
    drop_in = "/etc/systemd/system/vllm@chat.service.d/left.conf"
    put(host, drop_in, LEFT.encode())
    host.check_output("systemctl daemon-reload && systemctl restart vllm@chat")
    until(lambda: post(host, "chat", seconds=5)[0] == 200)
    namesake = host.check_output("bash -c 'exec -a VLLM::EngineCore sleep 4243' > /dev/null 2>&1 & echo $!")
    holders = {
        "deaf": (host.check_output("pgrep -f 'trap : TERM; while' | head -1"), 40 * GIB),
        "strayed": (host.check_output("pgrep -fx 'sleep 4242' | head -1"), 30 * GIB),
        "neighbour": (engine(host, "code"), 5 * GIB),
        "namesake": (namesake, 3 * GIB),
    }
    away = "/sys/fs/cgroup/away"
    host.check_output(f"mkdir -p {away} && echo {holders['strayed'][0]} > {away}/cgroup.procs")
    words = {name: one[0] for name, one in holders.items()} | {f"{name}_bytes": one[1] for name, one in holders.items()}
    put(host, "/etc/nvml-sim", CARD.format(total=85520809984, free=85520809984 - 78 * GIB, **words).encode())
    put(host, LIBRARY, build(tmp_path).read_bytes())
    put(host, drop_in, b"[Service]\nKillMode=process\n")
    host.check_output("systemctl daemon-reload")
    yield words
    host.run(f"rm -f /etc/nvml-sim {LIBRARY} {drop_in} /run/systemd/system/vllm@chat.service.d/*; kill {namesake}")
    host.check_output("systemctl daemon-reload && systemctl restart vllm@chat")


def test_recover_frees_what_the_unit_left_on_its_gpu_and_ends_nobody_elses(host, left_behind):
    neighbour = pid(host, "code")
    plan = host.check_output("vllm-doctor recover --unit vllm@chat --dry-run")
    assert f"end what it left behind: pid {left_behind['strayed']} of user vllm, of no unit, holds 30.00 GiB" in plan
    assert f"left alone: pid {left_behind['neighbour']} of user vllm, vllm@code.service" in plan
    assert "holds 3.00 GiB of GPU-11111111-2222-3333-4444-000000000000: no evidence shows that this unit" in plan
    assert "start it with --gpu-memory-utilization 0.75" in plan
    done = host.run("vllm-doctor recover --unit vllm@chat --yes --hours 1 --ready-seconds 240")
    assert done.rc == 0, done.stdout + done.stderr
    assert "GPU 0: 71.65 of 79.65 GiB free" in done.stderr
    assert pid(host, "code") == neighbour
    living = host.run(f"ps -o pid= -p {','.join(left_behind[n] for n in ('deaf', 'strayed', 'neighbour', 'namesake'))}")
    assert living.stdout.split() == sorted((left_behind["neighbour"], left_behind["namesake"]), key=int)
    assert "VD910" in host.run("vllm-doctor diagnose --unit vllm@chat --no-canary").stdout


def test_debug_goes_away_by_itself(host):
    before = pid(host, "chat")
    done = host.run("vllm-doctor debug on --unit vllm@chat --for 20s --yes")
    assert done.rc == 0, done.stdout + done.stderr
    assert "VLLM_LOGGING_LEVEL=DEBUG: some lines more" in done.stdout
    during = pid(host, "chat")
    assert during != before
    assert "VLLM_LOGGING_LEVEL=DEBUG" in host.check_output(f"tr '\\0' '\\n' < /proc/{during}/environ")
    assert "zzy-vllm-doctor-debug-until-" in host.check_output("vllm-doctor debug status")
    until(lambda: pid(host, "chat") not in {during, "0"})
    assert "DEBUG" not in host.check_output(f"tr '\\0' '\\n' < /proc/{pid(host, 'chat')}/environ")
    assert host.check_output("vllm-doctor debug status") == "no debug setting is on"


def test_what_cannot_be_is_said_in_one_line(host):
    for words, said in {
        "recover --unit vllm@none --yes": "there is no unit vllm@none.service",
        "recover --unit vllm@chat": "there is no terminal to ask at",
        "debug on --unit vllm@chat --for 9d --yes": "at most a day",
        "history --since yesterday": "needed: a span",
        "watch --url ftp://x": "needed: an address",
    }.items():
        done = host.run(f"vllm-doctor {words} < /dev/null")
        assert done.rc == 2, words
        assert said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    mine = host.run("runuser -u nobody -- vllm-doctor recover --unit vllm@chat --yes")
    assert mine.rc == 2
    assert "needed: root" in mine.stderr
