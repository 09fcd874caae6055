"""What a user and an operator can see of the service; no file is compared with a text."""

import json
import shlex
import time

import pytest

UNIT = "vllm@main.service"
URL = "http://127.0.0.1:8000/v1"
METRICS = "http://127.0.0.1:8000/metrics"
KEY = 'molecule-s3cr3t "$HOME" 100%\\n'
READY_SECONDS = 900
# Long enough to outlast the signal, short enough for a busy machine to finish before the service may be killed.
TOKENS = 600


def asking(body, *, key=KEY, seconds=120):
    """The shell's words that ask for a completion with curl; the key goes over standard input."""
    config = f"header = {json.dumps(f'Authorization: Bearer {key}')}" if key else ""
    options = f"--silent --config - --max-time {seconds} --write-out '\\n%{{http_code}}'"
    data = f"--header 'Content-Type: application/json' --data {shlex.quote(json.dumps(body))}"
    return f"printf %s {shlex.quote(config)} | curl {options} {data} {URL}/completions"


def answered(printed):
    """What curl printed, as (status, answer)."""
    answer, _, status = printed.rpartition("\n")
    return int(status or 0), json.loads(answer) if answer.startswith("{") else {}


def post(host, body, **options):
    """Ask on the host; returns (status, answer)."""
    return answered(host.run(asking(body, **options)).stdout)


def properties(host, *names):
    shown = host.check_output(f"systemctl show {UNIT} " + " ".join(f"-p {name}" for name in names))
    return dict(line.split("=", 1) for line in shown.splitlines())


@pytest.fixture(scope="module", autouse=True)
def serving(host):
    """The drain test, the last, stops the service; a second run by hand gets it started."""
    host.run_expect([0], f"systemctl start {UNIT}")
    deadline = time.monotonic() + READY_SECONDS
    while post(host, {"model": "tiny", "prompt": "x", "max_tokens": 1}, seconds=10)[0] != 200:
        assert time.monotonic() < deadline, host.check_output(f"journalctl -u {UNIT} -n 30 --no-pager")
        time.sleep(1)


def test_a_completion_answers_with_the_key_and_not_without(host):
    status, answer = post(host, {"model": "tiny", "prompt": "Hello", "max_tokens": 4})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 4)
    assert post(host, {"model": "tiny", "prompt": "Hello", "max_tokens": 4}, key="")[0] == 401


def test_the_secret_is_in_no_unit_no_process_list_and_no_journal(host):
    word = "molecule-s3cr3t"
    assert word in host.check_output("cat /etc/vllm/main.secrets"), "the test looks for the right words"
    for command in (
        f"systemctl cat {UNIT}",
        f"systemctl show {UNIT}",
        "ps axww -o args",
        "journalctl --no-pager -o verbose",
        "grep -rs molecule-s3cr3t /opt/vllm/current/.complete /opt/vllm/locks /var/log /var/lib/vllm /var/cache/vllm",
    ):
        # The look-up itself must not be found: ps lists the words of a grep.
        assert word not in host.run(command).stdout.replace(f"grep -rs {word}", ""), command


def test_nobody_but_root_can_read_the_secret(host):
    assert host.file("/etc/vllm/main.secrets").mode == 0o600
    for user in ("vllm", "nobody"):
        assert host.run(f"runuser -u {user} -- cat /etc/vllm/main.secrets").rc != 0
        assert host.run(f"runuser -u {user} -- cat /opt/vllm/served/main/now/secrets").rc != 0


def test_words_reach_the_process_as_they_were_written(host):
    pid = properties(host, "MainPID")["MainPID"]
    environment = host.check_output(f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
    assert f"VLLM_API_KEY={KEY}" in environment
    assert 'GREETING=a "quoted" 100% $word' in environment
    arguments = host.check_output(f"tr '\\0' '\\n' < /proc/{pid}/cmdline").splitlines()
    assert arguments[arguments.index("--generation-config") + 1] == "vllm"


def test_the_service_is_bounded_and_drains(host):
    found = properties(
        host, "Restart", "KillMode", "StartLimitBurst", "StartLimitIntervalUSec", "TimeoutStopUSec", "RestartUSec"
    )
    assert found == {
        "Restart": "always",
        "KillMode": "mixed",
        "StartLimitBurst": "3",
        "StartLimitIntervalUSec": "36min 30s",
        "TimeoutStopUSec": "2min",
        "RestartUSec": "10s",
    }


def test_the_service_is_confined(host):
    pid = properties(host, "MainPID")["MainPID"]
    assert host.check_output(f"stat -c %U /proc/{pid}") == "vllm"
    status = dict(
        line.split(":\t", 1) for line in host.check_output(f"cat /proc/{pid}/status").splitlines() if ":\t" in line
    )
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    inside = f"nsenter --target {pid} --mount --"
    host.check_output("touch /tmp/of-the-host")
    assert host.run(f"{inside} test -e /tmp/of-the-host").rc != 0
    assert host.run(f"{inside} touch /opt/vllm/x").rc != 0
    host.check_output("touch /root/of-root")
    assert host.run(f"{inside} test -e /root/of-root").rc != 0
    score = host.check_output(f"systemd-analyze security --no-pager {UNIT}").rsplit("level for", 1)[1]
    assert float(score.split()[1]) <= 2.0, score


def test_the_release_is_complete_compiled_and_says_where_torch_came_from(host):
    release = host.check_output("readlink -f /opt/vllm/current")
    assert "0.32.0+cpu" in release
    assert host.check_output("cd / && /opt/vllm/current/bin/vllm --version 2>/dev/null") == "0.32.0+cpu"
    assert "torch: " in host.file(f"{release}/.complete").content_string
    assert int(host.check_output(f"find {release}/lib -name '*.pyc' | wc -l")) > 5000
    assert host.run("runuser -u vllm -- touch /opt/vllm/current/x").rc != 0


def test_requests_in_flight_finish_when_the_service_stops(host):
    ask = asking({"model": "tiny", "prompt": "Once", "max_tokens": TOKENS, "ignore_eos": True})
    both_run = f"curl -s {METRICS} | grep -q '^vllm:num_requests_running.* 2'"
    # In one shell on the host: a look from outside can take as long as the requests do.
    done = host.run(
        f"({ask}) >/tmp/one & ({ask}) >/tmp/two & "
        f"timeout 60 sh -c {shlex.quote(f'until {both_run}; do :; done')} && systemctl stop {UNIT}; "
        "stopped=$?; wait; exit $stopped"
    )
    finished = [answered(host.check_output(f"cat /tmp/{name}")) for name in ("one", "two")]
    assert done.rc == 0, (done, finished)
    assert [status for status, _ in finished] == [200, 200]
    assert [answer["usage"]["completion_tokens"] for _, answer in finished] == [TOKENS, TOKENS]
    assert properties(host, "Result", "NRestarts") == {"Result": "success", "NRestarts": "0"}
