"""site.yml on GPU hosts, from nothing: as README says, with the example inventory and a newcomer's lines.

The tests go on from one another, in this order.
"""

import json
from hashlib import sha256
from pathlib import Path

import yaml

from tests.site.conftest import MACHINES, RELEASE, Site, verdict
from tests.site.newcomer import KEY

DOCTOR = Path(__file__).parents[2] / "roles/vllm_doctor/tasks"
ASK = (
    f"curl -sf -H 'Authorization: Bearer {KEY}' -H 'Content-Type: application/json' "
    """-d '{"model": "llama-3.1-8b", "prompt": "Hello", "max_tokens": 4}' http://127.0.0.1:8000/v1/completions"""
)
LOCK = "/var/lib/vllm-doctor-roles/run.json"
LAID_DOWN = (
    "/opt/vllm /opt/vllm-doctor /opt/managed-python /etc/vllm /etc/apt/preferences.d/* /proc/driver/nvidia/version "
    "/var/lib/vllm-doctor-roles"
)


def test_a_person_who_may_not_become_root_is_told_that_and_nothing_else(site: Site) -> None:
    site.line("hosts.yml", "ansible_become: true", "ansible_become: false")
    run = site.play("--check")
    site.line("hosts.yml", "ansible_become: false", "ansible_become: true")
    assert run.rc != 0
    assert "3 of 3 hosts refused; nothing was changed on any host." in run.text
    assert "set ansible_become: true" in run.text
    assert "kernel headers" not in run.text


def test_a_sudo_that_refuses_is_a_row_of_the_same_table(site: Site) -> None:
    run = site.play("--check", "-e", "ansible_user=plain")
    assert run.rc != 0
    assert "let its user become root" in run.text


def test_the_plan_of_bare_hosts_changes_nothing(site: Site) -> None:
    run = site.play("--check", "--diff")
    assert run.rc == 0, run.text
    assert KEY not in run.text
    for host in MACHINES:
        assert site.on(host, f"ls -d {LAID_DOWN} 2>/dev/null || true") == ""


def test_from_nothing_to_a_completion_on_every_host(site: Site) -> None:
    run = site.play()
    assert run.rc == 0, run.text
    assert KEY not in run.text
    for chosen in ("8 x NVIDIA H100 80GB HBM3: --tensor-parallel-size 1", "1 x NVIDIA A10: --gpu-memory-utilization"):
        assert f"vllm@main on {chosen}" in run.text
    for host in MACHINES:
        assert " the the" in site.on(host, ASK)
        assert verdict(site, host)["verdict"] == "ok"
        assert "580.105.08" in site.on(host, "cat /proc/driver/nvidia/version")
        site.on(
            host,
            "command -v gcc g++; echo '#include <Python.h>' | gcc -fsyntax-only $(python3-config --includes) -xc -",
        )


def test_a_second_run_changes_nothing_and_knows_its_own_mirror(site: Site) -> None:
    run = site.play()
    assert run.rc == 0, run.text
    assert [host for host, counts in run.recap.items() if counts["changed"]] == [], run.changed()
    # One question stands for all roles; the first host has the judge's tasks and the page's, too.
    assert run.recap["gpu01"]["ok"] <= 28
    assert max(run.recap[host]["ok"] for host in ("edge01", "edge02")) <= 22
    # The doctor's verdict is asked in every run; nothing else of these roles is.
    asked = {
        task["name"] for file in ("fleet", "page") for task in yaml.safe_load((DOCTOR / f"{file}.yml").read_text())
    }
    played = [name.partition(" : ") for name in run.names()]
    assert not [
        name
        for role, _, name in played
        if role in {"nvidia_driver", "cuda_toolkit", "vllm_doctor"} and name not in asked
    ]


def test_one_number_changed_is_one_line_of_one_hosts_unit(site: Site) -> None:
    site.line("group_vars/a10.yml", "vllm_max_num_seqs: 32", "vllm_max_num_seqs: 24")
    plan = site.play("--check", "--diff")
    assert plan.rc == 0, plan.text
    assert [line for line in plan.text.splitlines() if "max-num-seqs" in line and line[:1] in "+-"] == [
        "-  --max-num-seqs 32 \\",
        "+  --max-num-seqs 24 \\",
    ]
    assert site.on("edge02", "systemctl cat vllm@main | grep -c -- '--max-num-seqs 32'") == "1"
    # Another host does not answer, which by the inventory's word stops nobody else.
    down, words = (site.inventory / name for name in ("host_vars/edge01.example.net.yml", "group_vars/vllm/down.yml"))
    down.write_text("---\nansible_connection: ssh\nansible_host: 127.0.0.1\nansible_port: 1\n")
    words.write_text("---\nsite_unreachable: skip\n")
    run = site.play()
    down.unlink()
    words.unlink()
    assert {host: row["unreachable"] for host, row in run.recap.items() if row["unreachable"]} == {"edge01": 1}, (
        run.text
    )
    assert {host for host, row in run.recap.items() if row["failed"]} == set(), run.text
    assert run.changed() == ["edge02"], run.text
    assert run.recap["edge02"]["ok"] <= 25
    serves = site.on("edge02", "tr '\\0' ' ' < /proc/$(systemctl show -P MainPID vllm@main)/cmdline")
    assert " --max-num-seqs 24 " in serves


def test_another_model_is_served_everywhere_one_after_another(site: Site) -> None:
    shared = "group_vars/vllm/vars.yml"
    site.line(shared, "vllm_model: /srv/models/Llama-3.1-8B-Instruct", "vllm_model: /srv/models/Llama-3.2-3B-Instruct")
    site.line(shared, "vllm_served_model_name: llama-3.1-8b", "vllm_served_model_name: llama-3.2-3b")
    serves = served_by(site)
    plan = site.play("--check", "--diff")
    assert plan.rc == 0, plan.text
    assert sorted(plan.changed("Render the unit (")) == sorted(MACHINES), plan.text
    assert served_by(site) == serves
    run = site.play()
    assert run.rc == 0, run.text
    for host in MACHINES:
        assert " the the" in site.on(host, ASK.replace("llama-3.1-8b", "llama-3.2-3b"))


def served_by(site: Site) -> dict[str, str]:
    """The process that serves on each host, and the version of the driver's library under it."""
    ask = "systemctl show -P MainPID vllm@main; dpkg-query -W -f '${Version}' libcuda1"
    return {host: site.on(host, ask) for host in MACHINES}


def test_another_driver_without_consent_ends_with_one_table_and_leaves_what_serves(site: Site) -> None:
    shared = "group_vars/vllm/vars.yml"
    site.line(shared, 'nvidia_driver_version: "580.105.08"', 'nvidia_driver_version: "580.65.06"')
    site.line(shared, "nvidia_driver_reboot: true", "nvidia_driver_reboot: false")
    serves = served_by(site)
    run = site.play()
    assert run.rc == 2, run.text
    assert "3 of 3 hosts wait for their driver" in run.text
    row = "edge02.example.net            580.105.08                  580.65.06     vllm@main.service computes"
    assert row in run.text
    assert not [name for name in run.names() if name.startswith(("cuda_toolkit :", "vllm_doctor :"))]
    assert serves == served_by(site)


CONSENT = ("-e", '{"nvidia_driver_reboot": true}', "--tags", "driver")


def test_the_first_host_that_fails_stops_the_change_and_the_table_says_where_each_is(site: Site) -> None:
    serves = served_by(site)
    site.on("edge01", "echo 'rc.cuCtxSynchronize.1 = 719' >> /etc/stub-machine/nvml")
    run = site.play(*CONSENT)
    assert run.rc == 2, run.text
    for row in (
        "gpu01.example.net             580.65.06                     changed; a GPU computes, its services answer",
        "edge01.example.net            580.105.08 -> 580.65.06       FAILED after its services had drained",
        "edge02.example.net            580.105.08                    not reached; serves",
        "kernel: GPU 1: cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)",
        "NVML: 8 of 8 GPUs; kernel: computed on 8; torch: computed on 8",
    ):
        assert row in run.text
    assert run.text.count("The driver's change stopped") == 1
    assert served_by(site)["edge02"] == serves["edge02"]
    # The library changed after the service had ended and before it was started again.
    moment = 'date -d "$(systemctl show -P {}EnterTimestamp vllm@main)" +%s; '
    changed = "stat -c %Z /var/lib/dpkg/info/libcuda1.list; "
    moments = site.on("gpu01", moment.format("Inactive") + changed + moment.format("Active")).split()
    assert moments == sorted(moments)
    assert " the the" in site.on("gpu01", ASK.replace("llama-3.1-8b", "llama-3.2-3b"))


def test_the_next_run_goes_on_where_it_stopped_and_then_to_the_services(site: Site) -> None:
    site.on("edge01", "sed -i '/cuCtxSynchronize/d' /etc/stub-machine/nvml /etc/nvml-sim")
    before = served_by(site)
    run = site.play(*CONSENT[:2])
    assert run.rc == 0, run.text
    assert "vllm_doctor.hosts.vllm : Wait for a completion from every service" in run.names()
    assert served_by(site)["gpu01"] == before["gpu01"]
    for host in MACHINES:
        assert "580.65.06" in site.on(host, "cat /proc/driver/nvidia/version")
        assert " the the" in site.on(host, ASK.replace("llama-3.1-8b", "llama-3.2-3b"))


def test_a_host_goes_back_to_the_driver_before(site: Site) -> None:
    run = site.play(*CONSENT, "-l", "edge02.example.net", playbook="playbooks/rollback_driver.yml")
    assert run.rc == 0, run.text
    assert "edge02.example.net goes from 580.65.06 back to 580.105.08" in run.text
    assert "580.105.08" in site.on("edge02", "cat /proc/driver/nvidia/version")
    assert " the the" in site.on("edge02", ASK.replace("llama-3.1-8b", "llama-3.2-3b"))


ALONE = ("-l", "edge02.example.net")


def balancer(site: Site, meanwhile: str = "") -> tuple[tuple[str, ...], Path]:
    """The words of a command line that name a balancer's hooks, and the file in which it writes what it was told.

    `meanwhile` is what else happens then, in the checkout.
    """
    program, heard = site.logs / "balancer", site.logs / "heard"
    heard.write_text("")
    program.write_text(
        f'#!/bin/sh\necho "$VLLM_HOOK_EVENT $VLLM_HOOK_HOST" >> {heard}\ncd {site.checkout}\n{meanwhile}\n'
    )
    program.chmod(0o755)
    hooks = {"vllm_hook_before": [str(program)], "vllm_hook_after": [str(program)]}
    return ("-e", json.dumps(hooks)), heard


def answers(site: Site, host: str) -> str:
    """A completion from whatever model a host serves."""
    listed = site.on(host, f"curl -sf -H 'Authorization: Bearer {KEY}' http://127.0.0.1:8000/v1/models")
    return site.on(host, ASK.replace("llama-3.1-8b", json.loads(listed)["data"][0]["id"]))


TAKEN_OUT_AND_PUT_IN = "before edge02.example.net\nafter edge02.example.net\n"


def test_a_turn_of_the_driver_is_rehearsed_and_changes_nothing(site: Site) -> None:
    told, heard = balancer(site)
    before = served_by(site)
    other = ("-e", '{"nvidia_driver_version": "580.65.06"}')
    run = site.play(*CONSENT, *ALONE, *told, *other, "--check", "--diff")
    assert run.rc == 0, run.text
    assert "before on edge02.example.net" in run.text
    assert served_by(site) == before
    assert heard.read_text() == ""


def test_a_turn_of_the_driver_tells_the_balancer_before_and_after(site: Site) -> None:
    # Somebody else plays at the same moments, before and after the host's restart.
    second = site.logs / "second"
    second.write_text("")
    words = f"-i inventories/mine --vault-password-file .vault-password {' '.join(ALONE)} >> {second} 2>&1"
    plays = f".venv/bin/ansible-playbook site.yml {words}; .venv/bin/ansible-playbook playbooks/drain.yml {words}; true"
    told, heard = balancer(site, plays)
    other = ("-e", '{"nvidia_driver_version": "580.65.06"}')
    run = site.play(*CONSENT, *ALONE, *told, *other)
    assert run.rc == 0, run.text
    said = " ".join(second.read_text().split())
    assert said.count("1 of 1 hosts refused; nothing was changed on any host.") == 2, said
    assert said.count("Another run has this host: site.yml of ") >= 2, said
    assert site.on("edge02", f"test ! -e {LOCK} && echo free") == "free"
    assert heard.read_text() == TAKEN_OUT_AND_PUT_IN
    assert "580.65.06" in site.on("edge02", "cat /proc/driver/nvidia/version")
    back = site.play(*CONSENT, *ALONE, "-e", '{"nvidia_driver_version": "580.105.08"}')
    assert back.rc == 0, back.text


def test_a_start_that_fails_is_put_back_and_the_balancer_hears_of_both(site: Site) -> None:
    told, heard = balancer(site)
    site.on("edge02", 'echo \'{"start": "oom"}\' > /etc/stub-fails.json')
    fails = ("-e", '{"vllm_environment": {"STUB_VLLM": "/etc/stub-fails.json"}}')
    run = site.play(*ALONE, *told, *fails, "--tags", "config")
    assert run.rc == 2, run.text
    assert "vllm@main: what served before is back and answers" in run.text
    assert heard.read_text() == TAKEN_OUT_AND_PUT_IN
    assert " the the" in answers(site, "edge02")


def test_a_disk_that_fills_while_a_release_is_built_is_said_and_what_serves_goes_on(site: Site) -> None:
    lock = site.checkout / "roles" / "vllm" / "files" / "locks" / f"{RELEASE}-x86_64.lock"
    before, text = served_by(site), lock.read_text()
    lock.write_text(text + "# the same packages, built anew\n")
    name = sha256((lock.read_text().rstrip() + "3.11").encode()).hexdigest()[:8]
    folder = f"/opt/vllm/releases/{RELEASE}-{name}"
    site.on("edge02", f"mkdir {folder} && mount -t tmpfs -o size=100k none {folder}")
    run = site.play(*ALONE, "--tags", "vllm")
    lock.write_text(text)
    site.on("edge02", f"umount {folder} && rmdir {folder}")
    assert run.rc == 2, run.text
    said = " ".join(run.text.split())
    assert "No space left on device" in said
    assert "Free the space, or mount a larger file system at /opt/vllm, and run again" in said
    assert served_by(site) == before


def test_a_mirror_that_lacks_one_package_is_refused_by_name_before_anything_is_changed(site: Site) -> None:
    pid = "systemctl show -P MainPID vllm@main"
    before = site.on("edge02", pid)
    without = r"/^Package: nvidia-persistenced\n/ && /\nVersion: 580[.]65[.]06/ {next} {print}"
    site.on(
        "edge02",
        "cp -a /srv/nvidia /srv/whole; cd /srv/nvidia; rm nvidia-persistenced_580.65.06*; "
        rf"awk -v RS= -v ORS='\n\n' '{without}' /srv/whole/Packages > Packages; gzip -kf Packages; "
        "sed -i '/^SHA256:/,$d' Release; echo SHA256: >> Release; for f in Packages Packages.gz; do "
        'echo " $(sha256sum < $f | head -c 64) $(stat -c %s $f) $f" >> Release; done; apt-get -qq update',
    )
    run = site.play(*CONSENT, *ALONE, "-e", '{"nvidia_driver_version": "580.65.06"}')
    site.on("edge02", "rm -r /srv/nvidia; mv /srv/whole /srv/nvidia; apt-get -qq update")
    assert run.rc == 2, run.text
    assert "nvidia-persistenced: wanted 580.65.06, offered 580.105.08" in run.text
    assert run.text.count("Nothing was changed. Of these packages") == 1
    assert site.on("edge02", pid) == before


def test_a_host_that_is_taken_away_goes_on_and_the_others_are_not_asked_about_it(site: Site) -> None:
    site.line("group_vars/vllm/vars.yml", "nvidia_driver_reboot: false", "nvidia_driver_reboot: true")
    site.line("hosts.yml", "        edge02.example.net:\n", "        {}\n")
    for words in ("--check", "--diff"), ():
        run = site.play(*words)
        assert run.rc == 0, run.text
        assert "edge02" not in run.recap
        assert run.changed() == []
    assert site.on("edge02", "systemctl is-active vllm@main") == "active"


def test_the_toolkit_comes_by_its_own_word_and_everything_goes_by_two(site: Site) -> None:
    away = ("-l", "edge01.example.net")
    toolkit = ("-e", '{"cuda_toolkit_enabled": true}')
    run = site.play(*away, *toolkit, "--tags", "host")
    assert run.rc == 0, run.text
    assert "cuda-nvcc-13-0" in site.on("edge01", "apt-mark showhold")
    everything = {"cuda_toolkit_absent": True, "nvidia_driver_absent": True, "vllm_absent_data": True}
    run = site.play(*away, *toolkit, "-e", json.dumps(everything), playbook="playbooks/uninstall.yml")
    assert run.rc == 2
    assert "site_state is present, and absent is needed" in " ".join(run.text.split())
    assert site.on("edge01", "systemctl is-active vllm@main") == "active"
    everything |= {"site_state": "absent"}
    run = site.play(*away, *toolkit, "-e", json.dumps(everything), playbook="playbooks/uninstall.yml")
    assert run.rc == 0, run.text
    packages = site.on("edge01", "dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' | grep ' ii\\| hi' || true")
    left = [row for row in packages.splitlines() if row.startswith(("cuda-", "nvidia-", "libcuda", "libnvidia"))]
    assert left == []
    folders = "/opt/vllm /etc/vllm /opt/vllm-doctor/* /usr/local/bin/vllm-doctor /var/lib/vllm-doctor-roles"
    assert site.on("edge01", f"ls -d {folders} 2>&- || true") == ""
    assert site.on("edge01", "apt-mark showhold; ls /etc/systemd/system | grep vllm || true") == ""
