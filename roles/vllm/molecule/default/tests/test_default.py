"""What a user and an operator can see of the service; no file is compared with a text."""

import json
import shlex
import time

import pytest

UNIT, COMPILED = "vllm@main.service", "vllm@compiled.service"
# As a client of the site asks: by name, with the site's authority.
SITE = "https://vllm.example:8000"
CURL = "curl --silent --cacert /etc/ssl/site/ca.pem --resolve vllm.example:8000:127.0.0.1"
URL = f"{SITE}/v1"
METRICS = f"{SITE}/metrics"
KEY = 'molecule-s3cr3t "$HOME" 100%\\n'
READY_SECONDS = 900


def asking(body, *, key=KEY, seconds=400):
    """The shell's words that ask for a completion with curl; the key goes over standard input."""
    options = f"--max-time {seconds} --write-out '\\n%{{http_code}}'"
    data = f"--header 'Content-Type: application/json' --data {shlex.quote(json.dumps(body))}"
    return f"{keyed(key)} {options} {data} {URL}/completions"


def keyed(key=KEY):
    """The shell's words that begin a request with this key."""
    config = f"header = {json.dumps(f'Authorization: Bearer {key}')}" if key else ""
    return f"printf %s {shlex.quote(config)} | {CURL} --config -"


def code(host, path, *options, key=""):
    """The status that a request gets."""
    words = " ".join(shlex.quote(word) for word in options)
    return int(host.run(f"{keyed(key)} --path-as-is -o /dev/null -w '%{{http_code}}' {words} {SITE}{path}").stdout)


def answered(printed):
    """What curl printed, as (status, answer)."""
    answer, _, status = printed.rpartition("\n")
    return int(status or 0), json.loads(answer) if answer.startswith("{") else {}


def post(host, body, **options):
    """Ask on the host; returns (status, answer)."""
    return answered(host.run(asking(body, **options)).stdout)


def properties(host, *names, unit=UNIT):
    shown = host.check_output(f"systemctl show {unit} " + " ".join(f"-p {name}" for name in names))
    return dict(line.split("=", 1) for line in shown.splitlines())


def environment(host, unit=UNIT):
    """The variables of the service's first process."""
    pid = properties(host, "MainPID", unit=unit)["MainPID"]
    lines = host.check_output(f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture(scope="module", autouse=True)
def serving(host):
    """The drain test, the last, stops the service; a second run by hand gets it started."""
    host.run_expect([0], f"systemctl start {UNIT}")
    deadline = time.monotonic() + READY_SECONDS
    while post(host, {"model": "tiny", "prompt": "x", "max_tokens": 1}, seconds=10)[0] != 200:
        assert time.monotonic() < deadline, host.check_output(f"journalctl -u {UNIT} -n 30 --no-pager")
        time.sleep(1)


def test_a_completion_answers_with_the_key_and_not_without(host):
    status, answer = post(host, {"model": "tiny", "prompt": "Hello", "max_tokens": 4, "ignore_eos": True})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 4)
    assert post(host, {"model": "tiny", "prompt": "Hello", "max_tokens": 4}, key="")[0] == 401


def test_another_key_opens_too(host):
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 1}
    assert post(host, body, key="molecule-second-key")[0] == 200
    assert post(host, body, key="molecule-third-key")[0] == 401


def test_an_adapter_answers_by_its_name(host):
    status, answer = post(host, {"model": "sql", "prompt": "Hello", "max_tokens": 2, "ignore_eos": True})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 2)


def test_no_path_answers_without_the_key_but_those_that_are_named(host):
    """Also those that vLLM itself leaves open with a key: with a real body, which would complete or pause."""
    paths = json.loads(host.check_output(f"{keyed()} {SITE}/openapi.json"))["paths"]
    assert {"/invocations", "/tokenize", "/v1/completions"} <= paths.keys()
    unlisted = [
        "/docs",
        "/redoc",
        "/openapi.json",
        "/metrics",
        "/",
        "/of-nobody",
        "//v1/models",
        "/health/",
        "/%2e/invocations",
    ]
    unlisted += ["/health/..%2finvocations", "/health%2f", "/HEALTH", "/invocations/", "/v1/../invocations"]
    data = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 1})
    asked = "; ".join(
        f"{CURL} --path-as-is -o /dev/null -w '%{{http_code}} {method} {path}\\n' {how} {shlex.quote(SITE + path)}"
        for path in [*sorted(paths), *unlisted]
        if path != "/health"
        for method, how in (
            ("GET", ""),
            ("HEAD", "--head"),
            ("OPTIONS", "-X OPTIONS"),
            ("POST", f"-H 'Content-Type: application/json' -d {shlex.quote(data)}"),
        )
    )
    answers = host.check_output(asked).splitlines()
    assert len(answers) > 120
    assert [line for line in answers if line.split()[0] not in {"401", "403"}] == []
    assert code(host, "/health") == 200
    assert code(host, "/%68ealth") == 200, "the same path in other letters"
    assert code(host, "/tokenize", "--json", '{"model": "tiny", "prompt": "Hello"}', key=KEY) == 200
    upgrade = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dmxsbS12bGxtLXZsbG0tdg==",
    ]
    assert code(host, "/v1/realtime", "--http1.1", *(word for one in upgrade for word in ("-H", one))) == 403


def test_an_answer_comes_token_by_token_through_the_guard(host):
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 200, "ignore_eos": True, "stream": True}
    request = f"--no-buffer -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    count = (
        "import sys, time; t = [time.monotonic() for line in sys.stdin if line.startswith('data')]; "
        "print(len(t), t[-1] - t[0])"
    )
    lines, seconds = host.check_output(
        f"{keyed()} {request} {URL}/completions | python3 -c {shlex.quote(count)}"
    ).split()
    assert int(lines) > 20
    assert float(seconds) > 0.05, "all at once is what a guard that holds answers back would give"


def test_from_another_host_only_the_api_is_there_and_metrics_are_for_the_named_network(host):
    """From a network name space of its own, so over another address than the loopback's."""
    host.check_output(
        "ip netns add outside; ip link add to-outside type veth peer name eth0 netns outside; "
        "ip address add 10.77.0.1/24 dev to-outside; ip link set to-outside up; "
        "ip -n outside address add 10.77.0.2/24 dev eth0; ip -n outside link set eth0 up; "
        "ip -n outside route add default via 10.77.0.1"
    )
    try:
        listening = host.check_output("ss -Hltnp")
        assert "VLLM::Worker" in listening, "the test looks for what is there"
        ports = {int(line.split()[3].rsplit(":", 1)[1]) for line in listening.splitlines()}
        own = host.check_output("hostname -I").split()
        reach = (
            "import socket, sys\n"
            f"for address in {[a for a in own if ':' not in a]!r}:\n"
            f"    for port in {sorted(ports)!r}:\n"
            "        with socket.socket() as s:\n"
            "            s.settimeout(5)\n"
            "            if s.connect_ex((address, port)) == 0: print(port)\n"
        )
        reached = host.check_output(f"ip netns exec outside python3 -c {shlex.quote(reach)}").split()
        assert set(reached) == {"8000", "8001"}, listening
        outside = f"ip netns exec outside {CURL.replace('127.0.0.1', '10.77.0.1')} -o /dev/null -w '%{{http_code}}'"
        assert host.check_output(f"{outside} {METRICS}") == "200"
        assert host.check_output(f"{outside} -H 'X-Forwarded-For: 10.77.0.2' {METRICS}") == "403"
        assert host.check_output(f"{outside} {SITE}/invocations") == "401"
    finally:
        host.run("ip netns del outside; ip link del to-outside")
    assert code(host, "/metrics") == 403
    assert code(host, "/metrics", "-H", "X-Forwarded-For: 10.77.0.2") == 403
    assert code(host, "/metrics", key=KEY) == 200


def test_nobody_but_root_and_the_service_reads_the_key_of_tls_nor_holds_a_lock(host):
    assert code(host, "/health") == 200
    for user in ("nobody", "vllm"):
        assert host.run(f"runuser -u {user} -- test -r /etc/ssl/site/vllm.key").rc != 0
    assert host.run("runuser -u nobody -- cat /run/credentials/vllm@main.service/tls-key").rc != 0
    for lock in host.check_output("ls -d /opt/vllm/releases/*/.lock /var/cache/vllm-doctor-uv/.lock").split():
        assert host.file(lock).mode == 0o600, lock
        assert host.run(f"runuser -u nobody -- flock --nonblock --conflict-exit-code 9 {lock} true").rc not in {0, 9}
    guard = host.check_output("ls /opt/vllm/guard/*/api_guard.py")
    assert host.run(f"runuser -u vllm -- cat {guard}").rc == 0
    assert host.run(f"runuser -u vllm -- sh -c '>> {guard}'").rc != 0


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
        "StartLimitIntervalUSec": "52min",
        "TimeoutStopUSec": "7min 10s",
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


def test_what_is_compiled_at_start_is_kept_for_this_release_alone(host):
    release = host.check_output("basename $(readlink -f /opt/vllm/current)")
    cache = f"/var/cache/vllm/compiled/{release}"
    seen = environment(host, COMPILED)
    assert {seen[name].removeprefix(cache) for name in ("HOME", "XDG_CACHE_HOME", "FLASHINFER_WORKSPACE_BASE")} == {""}
    assert seen["TORCHINDUCTOR_CACHE_DIR"] == f"{cache}/inductor"
    kernels = f"find {cache} -name '*.so' -o -name '*.cpp' -o -name 'artifact*'"
    assert host.check_output(kernels), host.check_output(f"find {cache}")
    assert host.check_output(f"stat -c '%U %a' {cache}") == "vllm 750"
    # Neither the private /tmp, which goes with the service, nor the state has any.
    inside = f"nsenter --target {properties(host, 'MainPID', unit=COMPILED)['MainPID']} --mount --"
    assert host.run(f"{inside} find /tmp /var/lib/vllm -name '*.so' -o -name '*.cpp' -o -name '*.cubin'").stdout == ""


def test_ninja_of_the_release_is_found(host):
    path = environment(host, COMPILED)["PATH"]
    assert host.run(f"env PATH={path} which ninja").stdout.strip() == "/opt/vllm/current/bin/ninja"


def tokens_of_some_seconds(host):
    """So many that an answer outlasts the signal, at the machine's pace now: 200 a second at rest, 4 on a busy one."""
    began = time.monotonic()
    assert post(host, {"model": "tiny", "prompt": "Once", "max_tokens": 40, "ignore_eos": True})[0] == 200
    return min(600, max(60, round(4 * 40 / (time.monotonic() - began))))


def test_requests_in_flight_finish_when_the_service_stops(host):
    tokens = tokens_of_some_seconds(host)
    ask = asking({"model": "tiny", "prompt": "Once", "max_tokens": tokens, "ignore_eos": True})
    both_run = f"{keyed()} {METRICS} | grep -q '^vllm:num_requests_running.* 2'"
    # In one shell on the host: a look from outside can take as long as the requests do. On a machine that is suddenly
    # less busy a pair may be answered between two looks: then another pair is asked.
    done = host.run(
        "for pair in 1 2 3 4 5 6; do rm -f /tmp/ended; "
        f"({ask}; : >/tmp/ended) >/tmp/one & ({ask}; : >/tmp/ended) >/tmp/two & "
        f"until [ -e /tmp/ended ]; do {both_run} && "
        f"{{ systemctl stop {UNIT}; stopped=$?; wait; exit $stopped; }}; done; wait; done; exit 124"
    )
    finished = [answered(host.check_output(f"cat /tmp/{name}")) for name in ("one", "two")]
    assert done.rc == 0, (done, finished)
    assert [status for status, _ in finished] == [200, 200]
    assert [answer["usage"]["completion_tokens"] for _, answer in finished] == [tokens, tokens]
    assert properties(host, "Result", "NRestarts") == {"Result": "success", "NRestarts": "0"}
