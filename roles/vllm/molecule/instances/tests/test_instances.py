"""Two services on one host, and each playbook for what serves; in this order each test finds what the one before left.

The playbooks are played as an operator does, over the scenario's inventory with a line changed.
"""

import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO = Path(__file__).resolve().parents[5]
HOOKED = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "hooked"
HOOK = ["sh", "-c", 'echo "$VLLM_HOOK_EVENT $VLLM_HOOK_SERVICES" >> "$0"', str(HOOKED)]
HOOKS = {"vllm_hook_before": HOOK, "vllm_hook_after": HOOK}
KEY = "molecule-instances"
PORTS = {"chat": 8000, "code": 8001}
CHAT = {"name": "chat", "served_model_name": "chat", "shutdown_timeout": 120}
CODE = {
    "name": "code",
    "port": 8001,
    "model": "/srv/models/other",
    "served_model_name": "code",
    "max_model_len": 1024,
    "environment": {"VLLM_LOGGING_LEVEL": "WARNING"},
}


def play(playbook, *instances, check=False, **variables):
    """Play a playbook over the scenario's inventory, with these entries of vllm_instances; (exit code, output)."""
    given = variables | ({"vllm_instances": list(instances)} if instances else {})
    command = ["ansible-playbook", playbook, "-i", os.environ["MOLECULE_INVENTORY_FILE"], "-e", json.dumps(given)]
    done = subprocess.run(
        [*command, *(["--check"] if check else [])],
        cwd=REPO,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, " ".join(done.stdout.split())  # Ansible wraps long messages


def post(host, name, tokens=4, *, seconds=400):
    """Ask a service for a completion with curl on the host; (status, answer)."""
    body = json.dumps({"model": name, "prompt": "Once", "max_tokens": tokens, "ignore_eos": True})
    config = shlex.quote(f'header = "Authorization: Bearer {KEY}"')
    url = f"http://127.0.0.1:{PORTS[name]}/v1/completions"
    options = f"--silent --config - --max-time {seconds} --write-out '\\n%{{http_code}}'"
    data = f"--header 'Content-Type: application/json' --data {shlex.quote(body)}"
    answer, _, status = host.run(f"printf %s {config} | curl {options} {data} {url}").stdout.rpartition("\n")
    return int(status or 0), json.loads(answer) if answer.startswith("{") else {}


def faults(host, **told):
    """Tell the stand-in how to behave from now on."""
    host.check_output(f"printf %s {shlex.quote(json.dumps(told))} > /etc/stub-vllm.json")


def show(host, name, *properties):
    words = " ".join(f"-p {one}" for one in properties)
    return host.check_output(f"systemctl show vllm@{name} --value {words}").splitlines()


def pid(host, name):
    return int(show(host, name, "MainPID")[0])


def changed(output):
    (found,) = set(re.findall(r"changed=(\d+)", output))
    return int(found)


def test_each_completes_with_flags_and_words_of_its_own(host):
    for name, port in PORTS.items():
        status, answer = post(host, name)
        assert (status, answer["model"], answer["usage"]["completion_tokens"]) == (200, name, 4)
        config = shlex.quote(f'header = "Authorization: Bearer {KEY}"')
        models = host.check_output(f"printf %s {config} | curl -s --config - http://127.0.0.1:{port}/v1/models")
        assert json.loads(models)["data"][0]["max_model_len"] == {"chat": 2048, "code": 1024}[name]
    environments = {
        name: host.check_output(f"tr '\\0' '\\n' < /proc/{pid(host, name)}/environ").splitlines() for name in PORTS
    }
    assert "VLLM_LOGGING_LEVEL=WARNING" in environments["code"]
    assert not [line for line in environments["chat"] if line.startswith("VLLM_LOGGING_LEVEL")]
    homes = [line for lines in environments.values() for line in lines if line.startswith("HOME=")]
    assert len(set(homes)) == 2, homes


def test_the_doctor_judges_every_service_of_the_host_and_touches_none(host):
    before = pid(host, "chat"), pid(host, "code")
    code, output = play("playbooks/diagnose.yml")
    assert code == 0, output
    assert "vllm@chat.service" in output
    assert "vllm@code.service" in output
    assert (pid(host, "chat"), pid(host, "code")) == before


def test_what_would_collide_is_refused_and_nothing_is_touched(host):
    before = pid(host, "chat"), pid(host, "code")
    code, output = play("site.yml", CHAT, {**CODE, "port": 8000})
    assert code != 0
    # A row of a table: what stands in a cell goes on in the next line, beside the other cells.
    for part in ("two instances with port 8000:", "vllm@chat, vllm@code", "one port each", "code, port: 8001}"):
        assert part in output
    assert "changed=0" in output
    assert (pid(host, "chat"), pid(host, "code")) == before


def test_a_change_of_one_starts_that_one_anew_and_no_other(host):
    chat, code = pid(host, "chat"), pid(host, "code")
    longer = {**CODE, "max_model_len": 2048}

    status, output = play("site.yml", CHAT, longer, check=True)
    assert status == 0, output
    assert "vllm@code would be drained, started anew and asked for a completion" in output
    assert "vllm@chat would be" not in output
    assert (pid(host, "chat"), pid(host, "code")) == (chat, code)

    status, output = play("site.yml", CHAT, longer)
    assert status == 0, output
    assert pid(host, "chat") == chat
    assert pid(host, "code") != code
    assert post(host, "code")[0] == 200


def test_rollback_undoes_the_change_of_the_one_and_leaves_the_other(host):
    chat = pid(host, "chat")
    code = pid(host, "code")
    status, output = play("playbooks/rollback.yml", check=True)
    assert status == 0, output
    assert "vllm@code would serve 0.32.0+cpu-" in output
    assert (pid(host, "chat"), pid(host, "code")) == (chat, code)
    status, output = play("playbooks/rollback.yml")
    assert status == 0, output
    assert "site.yml --check --diff shows which lines of the inventory say otherwise" in output
    assert pid(host, "chat") == chat
    assert "--max-model-len 1024" in host.check_output("systemctl cat vllm@code")
    assert post(host, "code")[0] == 200


def test_recover_finds_the_one_that_hangs_explains_it_and_leaves_the_healthy_one_alone(host):
    chat, code = pid(host, "chat"), pid(host, "code")
    engine = host.check_output(f"pgrep -P {code} VLLM::EngineCor")
    host.check_output(f"kill -STOP {engine}")
    assert host.run("curl -sf -m 60 -o /dev/null http://127.0.0.1:8001/health").rc == 0, "health says nothing of it"

    status, output = play("playbooks/recover.yml", check=True)
    assert status == 0, output
    assert (pid(host, "chat"), pid(host, "code")) == (chat, code)

    status, output = play("playbooks/recover.yml")
    assert status == 0, output
    assert "vllm@code.service: no answer within" in output
    assert "VD901" in output
    assert "vllm@chat.service: no completion" not in output
    assert pid(host, "chat") == chat
    assert pid(host, "code") != code
    assert post(host, "code")[0] == 200


def test_recover_leaves_what_answers_and_waits_for_what_still_loads(host):
    faults(host, start_seconds=20)
    host.check_output("systemctl restart vllm@code")
    before = pid(host, "chat"), pid(host, "code")
    status, output = play("playbooks/recover.yml")
    assert status == 0, output
    assert changed(output) == 0
    assert (pid(host, "chat"), pid(host, "code")) == before
    assert post(host, "code")[0] == 200


def test_drain_lets_a_request_in_flight_finish(host):
    faults(host, hang=True)
    runs = "curl -s http://127.0.0.1:8000/metrics | grep -q '^vllm:num_requests_running.* 1'"
    stops = "systemctl show -P ActiveState vllm@chat | grep -q deactivating"
    with ThreadPoolExecutor(2) as beside:
        answer = beside.submit(post, host, "chat", 20)
        host.run_expect([0], f"timeout 300 sh -c {shlex.quote(f'until {runs}; do :; done')}")
        # In one shell on the host: it goes on as soon as the stop was asked for, however long the play took to ask.
        goes_on = f"until {stops}; do sleep 0.1; done; rm /etc/stub-vllm.json"
        released = beside.submit(host.run, f"timeout 600 sh -c {shlex.quote(goes_on)}")
        status, output = play("playbooks/drain.yml")
        assert status == 0, output
        assert released.result().rc == 0
        code, body = answer.result()
    assert (code, body["usage"]["completion_tokens"]) == (200, 20)
    for name in PORTS:
        assert set(show(host, name, "ActiveState", "Result")) == {"inactive", "success"}


def test_drained_stays_drained_until_it_is_undrained(host):
    faults(host)
    host.run("systemctl start vllm@chat")
    assert set(show(host, "chat", "ActiveState")) == {"inactive"}, "not even by hand, nor at boot"
    for playbook in ("site.yml", "playbooks/recover.yml"):
        status, output = play(playbook)
        assert status == 0, output
        assert changed(output) == 0
        assert "is drained (since " in output
        assert set(show(host, "code", "ActiveState")) == {"inactive"}
    status, output = play("playbooks/rollback.yml")
    assert status != 0
    assert "playbooks/undrain.yml" in output

    HOOKED.unlink(missing_ok=True)
    status, output = play("playbooks/undrain.yml", **HOOKS)
    assert status == 0, output
    assert HOOKED.read_text() == "after vllm@chat vllm@code\n"
    assert post(host, "chat")[0] == post(host, "code")[0] == 200
    assert changed(play("playbooks/undrain.yml")[1]) == 0


TUNE = (
    "vllm-doctor tune --unit vllm@code --fresh --yes --most-seqs 8 --slowdown 20 --without-plan --load own "
    "--prompt-tokens 64 --output-tokens 8 --step-seconds 5 --format json"
)
TRIAL = "/run/systemd/system/vllm@code.service.d/zzz-vllm-doctor-tune.conf"


def in_a_trial(host, script):
    """Start a ramp on the host, wait for its first trial, and go on with the script; its output."""
    begins = f"{TUNE} >/run/tuned 2>&1 & ramp=$!; until test -e {TRIAL}; do kill -0 $ramp; sleep 0.2; done; "
    return host.check_output(f"timeout 900 bash -euc {shlex.quote(begins + script)}")


def launch(host):
    """What systemd would start for the second service."""
    return show(host, "code", "ExecStart")[0].partition(" ; start_time")[0]


def test_ctrl_c_in_a_trial_of_tune_puts_back_what_served(host):
    before, neighbour = launch(host), pid(host, "chat")
    said = in_a_trial(host, 'kill -INT $ramp; wait $ramp || echo "ended with $?"')
    assert "ended with 130" in said, host.check_output("cat /run/tuned")
    assert launch(host) == before
    assert not host.file(TRIAL).exists
    assert post(host, "code")[0] == 200
    assert pid(host, "chat") == neighbour


def test_the_guard_ends_a_trial_whose_program_was_killed(host):
    before, guard = launch(host), "vllm-doctor-tune-guard"
    in_a_trial(
        host,
        f"kill -KILL $ramp; wait $ramp || true; test -e {TRIAL}; systemctl is-active {guard}.timer; "
        f"systemctl start {guard}.service; while test -e {TRIAL}; do sleep 0.2; done",  # its time, come early
    )
    served = f"[ \"$(systemctl show -P ExecStart vllm@code | sed 's/ ; start_time.*//')\" = {shlex.quote(before)} ]"
    # The guard asks for the restart and does not wait for it.
    over = "! systemctl list-jobs --no-legend vllm@code.service | grep -q ."
    answers = f"curl --silent --fail --max-time 5 --output /dev/null http://127.0.0.1:{PORTS['code']}/health"
    back = f"until {served} && {over} && {answers}; do sleep 0.2; done"
    host.check_output(f"timeout 600 bash -c {shlex.quote(back)}")
    host.check_output(f"systemctl stop {guard}.timer")
    assert post(host, "code")[0] == 200


def test_five_restarts_over_a_flag_that_this_version_lost_are_one_finding(host):
    folder, service = "/run/systemd/system/vllm@code.service.d", "vllm@code.service"
    start = "/opt/vllm/current/bin/vllm serve /srv/models/other --port 8001 --swap-space 4"
    lines = f"[Unit]\nStartLimitBurst=20\n[Service]\nRestartSec=0\nExecStart=\nExecStart={start}\n"
    host.check_output(f"mkdir -p {folder}; printf %s {shlex.quote(lines)} > {folder}/90-test.conf")
    host.check_output(f"systemctl daemon-reload; systemctl restart {service} || true")
    five = f"[ $(systemctl show -P NRestarts {service}) -ge 5 ]"
    host.check_output(f"timeout 600 bash -c {shlex.quote(f'until {five}; do sleep 0.2; done')}")
    done = host.run(f"vllm-doctor diagnose --unit {service} --format json < /dev/null")
    host.check_output(f"rm {folder}/90-test.conf; systemctl daemon-reload; systemctl reset-failed {service}")
    host.check_output(f"systemctl restart {service}")
    verdict = json.loads(done.stdout)
    found = verdict["findings"][0]
    assert (done.rc, found["phase"], found["cause"]) == (1, "flag-error", "removed-flag"), verdict
    assert verdict["facts"]["earlier_lives"] >= 4
    answers = "curl -sf -o /dev/null http://127.0.0.1:8001/health"
    host.check_output(f"timeout 600 bash -c {shlex.quote(f'until {answers}; do sleep 0.2; done')}")


def test_a_hook_that_fails_before_leaves_what_serves(host):
    before = pid(host, "chat"), pid(host, "code")
    status, output = play("playbooks/drain.yml", vllm_hook_before=["sh", "-c", "echo no such pool >&2; exit 3"])
    assert status != 0
    assert "no such pool" in output
    assert "Nothing was stopped; what serves goes on." in output
    assert (pid(host, "chat"), pid(host, "code")) == before
    assert host.file("/opt/vllm/out-of-balancer").exists  # what a hook that failed has done is not known


def test_one_of_them_is_the_canary_of_another_release(host):
    chat = pid(host, "chat")
    HOOKED.unlink(missing_ok=True)
    status, output = play("site.yml", CHAT, {**CODE, "version": "0.31.0"}, **HOOKS)
    assert status == 0, output
    assert HOOKED.read_text() == "before vllm@chat vllm@code\nafter vllm@chat vllm@code\n"
    assert not host.file("/opt/vllm/out-of-balancer").exists
    assert pid(host, "chat") == chat
    assert "/opt/vllm/releases/0.31.0+cpu-" in host.check_output(f"tr '\\0' ' ' < /proc/{pid(host, 'code')}/cmdline")
    assert "/opt/vllm/releases/0.32.0+cpu-" in host.check_output("readlink /opt/vllm/current")
    assert post(host, "code")[0] == 200
    assert changed(play("site.yml", CHAT, {**CODE, "version": "0.31.0"})[1]) == 0
    status, output = play("playbooks/rollback.yml")
    assert status == 0, output
    assert (pid(host, "chat"), post(host, "code")[0]) == (chat, 200)
    assert "/opt/vllm/current/bin/vllm" in host.check_output("systemctl cat vllm@code")


def test_one_that_is_no_longer_listed_is_removed_by_consent_only(host):
    status, output = play("site.yml", CHAT, check=True)
    assert status == 0, output
    assert "vllm@code has no entry in vllm_instances and goes on as it is;" in output
    assert "vllm_remove_unlisted: true" in output

    status, output = play("site.yml", CHAT, check=True, vllm_remove_unlisted=True)
    assert status == 0, output
    assert "(item=/etc/systemd/system/vllm@code.service)" in output
    assert host.file("/etc/systemd/system/vllm@code.service").exists

    HOOKED.unlink(missing_ok=True)
    status, output = play("site.yml", CHAT, vllm_remove_unlisted=True, **HOOKS)
    assert status == 0, output
    assert HOOKED.read_text() == "before vllm@chat\nafter vllm@chat\n"
    for path in ("/etc/systemd/system/vllm@code.service", "/etc/vllm/code.secrets", "/opt/vllm/served/code"):
        assert not host.file(path).exists, path
    assert "vllm@code" not in host.check_output("systemctl list-units --all --no-legend 'vllm@*'")
    assert not host.service("vllm@code").is_enabled
    assert post(host, "chat")[0] == 200

    status, output = play("site.yml", CHAT, vllm_remove_unlisted=True)
    assert (status, changed(output)) == (0, 0), output


def test_a_new_one_is_not_given_the_port_of_one_that_goes_on(host):
    chat = pid(host, "chat")
    HOOKED.unlink(missing_ok=True)
    status, output = play("site.yml", {**CODE, "port": 8000}, **HOOKS)
    assert status != 0
    assert not HOOKED.exists(), "a host that nothing is stopped on stays in its balancer"
    for part in ("vllm@chat serves on port 8000,", "which vllm@code wants, and has no", "vllm_remove_unlisted: true"):
        assert part in output
    assert pid(host, "chat") == chat


def test_uninstall_takes_two_words_of_consent_and_leaves_what_may_be_worth_something(host):
    status, output = play("playbooks/uninstall.yml")
    assert status != 0
    assert "site_state is present, and absent is needed" in output
    assert "site_state: absent is set for host" in play("site.yml", site_state="absent")[1]
    status, output = play("playbooks/uninstall.yml", check=True, site_state="absent")
    assert status == 0, output
    assert host.service("vllm@chat").is_running
    status, output = play("playbooks/uninstall.yml", site_state="absent")
    assert status == 0, output
    for path in (
        "/opt/vllm",
        "/opt/vllm-doctor",
        "/usr/local/bin/vllm-doctor",
        "/etc/systemd/system/vllm@chat.service",
        "/etc/vllm",
    ):
        gone = host.run(f"ls -A {path}")
        assert gone.rc != 0 or gone.stdout == "", path
    assert host.file("/srv/models/tiny/config.json").exists
    assert host.file("/var/lib/vllm").exists
    assert changed(play("playbooks/uninstall.yml", site_state="absent")[1]) == 0
