"""The validation of site.yml itself, on a host that nobody can reach: a good inventory gets as far as asking it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.playbook import play

REPOSITORY = Path(__file__).resolve().parents[2]
GOOD: dict[str, object] = {
    "ansible_host": "127.0.0.1",
    "ansible_port": 1,
    "nvidia_driver_version": "580.105.08",
    "vllm_version": "0.32.0",
    "vllm_variant": "auto",
    "vllm_model": "/srv/models/llama",
    "vllm_max_num_batched_tokens": 8192,
    "preflight_gpus": ["NVIDIA H100 80GB HBM3"],
    "site_reports": "",
}


def played(
    folder: Path,
    extra: dict[str, object] | None = None,
    *,
    hosts: dict[str, dict[str, object]] | None = None,
    **more: object,
) -> str:
    """What a person sees of a run with these variables of the host, and these of the command line.

    `extra` is for -e, its `words` are more words of the command line, and its `playbook` is another one. `hosts` are
    others than the one, each with what it has beside what is good.
    """
    extra = dict(extra or {})
    playbook = str(extra.pop("playbook", "site.yml"))
    words = [str(word) for word in extra.pop("words", ())]  # type: ignore[attr-defined]
    (folder / "host_vars").mkdir()
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"vllm": {"hosts": dict.fromkeys(hosts or ("gpu01",))}, "others": {"hosts": {"web01": None}}})
    )
    for name, own in (hosts or {"gpu01": more}).items():
        (folder / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump({**GOOD, **own}))
    return run(folder, "--extra-vars", json.dumps(extra), *words, playbook=playbook)


def run(inventory: Path, *words: str, playbook: Path | str = "site.yml") -> str:
    """What a person sees of a run of site.yml, or another playbook, with an inventory."""
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    done = play(["-i", inventory, playbook, *words], env=environment)
    return done.stdout + done.stderr


def test_a_good_inventory_gets_as_far_as_the_host_and_one_that_is_down_is_a_row_of_the_table(tmp_path: Path) -> None:
    said = played(tmp_path)
    assert "UNREACHABLE" in said, said
    assert "1 of 1 hosts refused; nothing was changed on any host." in said
    row = next(line for line in said.splitlines() if line.split()[:2] == ["gpu01", "connection"])
    assert "a host that answers" in row
    assert "site_unreachable=skip" in said


def test_an_upgrade_of_a_host_that_is_down_is_refused_by_the_same_table(tmp_path: Path) -> None:
    assert "1 of 1 hosts refused; nothing was changed on any host." in played(
        tmp_path, {"playbook": "playbooks/upgrade.yml"}
    )


def test_what_does_not_answer_can_be_left_out_by_consent(tmp_path: Path) -> None:
    said = played(tmp_path, site_unreachable="skip")
    assert "UNREACHABLE" in said, said
    assert "hosts refused" not in said, said


def test_any_other_word_about_hosts_that_are_down_is_refused(tmp_path: Path) -> None:
    said = played(tmp_path, {"site_unreachable": "ignore"})
    assert "site_unreachable: ignore; needed: fail or skip" in said
    assert "UNREACHABLE" not in said, said


def test_a_bad_one_does_not_and_what_cannot_be_read_is_refused_without_composing_anything_of_it(tmp_path: Path) -> None:
    bad: dict[str, dict[str, object]] = {
        "secret": {"vllm_api_key": "not-in-a-vault"},
        "argument": {"vllm_extra_args": {"tp": 2}},
        "unread": {"vllm_instances": "main", "vllm_max_model_len": "{{ nowhere }}"},
    }
    said = played(tmp_path, hosts=bad)
    assert "UNREACHABLE" not in said, said
    assert "3 of 3 hosts refused; nothing was changed on any host." in said, said
    assert "vllm_api_key (value not shown)" in said, said
    assert "not-in-a-vault" not in said
    assert "set vllm_tensor_parallel_size" in said
    assert "[ERROR]" not in said
    assert "vllm_instances: 'main'" in said
    assert "vllm_max_model_len refers to" in said


def test_what_two_roles_refuse_is_one_table_and_each_of_it_is_said_once(tmp_path: Path) -> None:
    wrong = {"vllm_version": "0.99.0", "vllm_host": "0.0.0.0", "vllm_extra_args": {"port": 9}}  # noqa: S104
    said = played(tmp_path, {"vllm_unit_template": "h100"}, site_reports=str(tmp_path / "reports"), **wrong)
    assert said.count("1 of 1 hosts refused; nothing was changed on any host.") == 1
    assert "[ERROR]" not in said
    (report,) = (tmp_path / "reports").glob("*.json")
    rows = [(row["check"], row["found"]) for row in json.loads(report.read_text())["refused"]]
    assert [(check, " ".join(found.split()[:2])) for check, found in rows] == [
        ("extra argument", "--port in"),
        ("vLLM release", "vLLM 0.99.0"),
        ("launch", "vllm@main: vllm_unit_template:"),
        ("launch", "vllm@main: open"),
    ]
    assert [said.count(f"  {check}  ") for check in ("extra argument", "vLLM release", "launch")] == [1, 1, 2]
    assert "on the command line (-e):" in said


def test_each_run_leaves_a_report_without_secrets(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    wrong = {"vllm_host": "0.0.0.0", "vllm_max_modle_len": 1, "vllm_secrets": {"ANY": "s3cr3t-of-s3"}}  # noqa: S104
    said = played(tmp_path, site_reports=str(reports), **wrong)
    (text,), (file,) = sorted(reports.glob("*.txt")), sorted(reports.glob("*.json"))
    assert f"report: {text}" in said
    report = json.loads(file.read_text())
    assert (report["playbook"], report["outcome"], report["check"]) == ("site.yml", "refused", False)
    assert [(row["host"], row["check"]) for row in report["refused"]] == [
        ("gpu01", "variable name"),
        ("gpu01", "secret in plain text"),
        ("gpu01", "launch"),
    ]
    assert report["hosts"]["gpu01"]["count"]["failures"] == 1
    assert "site.yml: refused" in text.read_text()
    assert "write vllm_max_model_len" in text.read_text()
    assert "s3cr3t" not in text.read_text() + file.read_text()


def test_a_wrong_type_that_e_brings_is_not_blamed_on_a_file(tmp_path: Path) -> None:
    said = played(tmp_path, {"vllm_max_num_batched_tokens": "many"})
    assert "vllm_max_num_batched_tokens:" in said
    assert "on the command line (-e):" in said
    assert "host_vars/gpu01.yml" not in said


def test_a_vault_without_its_password_is_said_with_the_words_that_give_it(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("of-the-vault")
    (tmp_path / "group_vars").mkdir()
    vault = tmp_path / "group_vars" / "vllm.yml"
    vault.write_text("vllm_api_key: a-long-random-key\n")
    program = Path(sys.executable).parent / "ansible-vault"
    words = ["encrypt", "--vault-password-file", tmp_path / "password", vault]
    subprocess.run([program, *words], check=True, capture_output=True)
    said = " ".join(played(tmp_path).split())
    assert "no vault secrets found. Give the password of the vault: --ask-vault-pass, or --vault-password-file" in said
    assert "Refuse a proxy" not in said


def test_a_proxys_password_would_be_seen_on_the_hosts_and_is_refused_unread(tmp_path: Path) -> None:
    proxies = {"no_proxy": "10.0.0.0/8", "https_proxy": "http://ops:s3cr3t@proxy.example:3128"}
    said = " ".join(played(tmp_path, site_environment=proxies).split())
    assert "site_environment: https_proxy holds a password" in said
    assert "UNREACHABLE" not in said
    assert "s3cr3t" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tags", "vlm"], "--tags vlm: nothing has this tag, so nothing would be done"),
        # A slip here would play the very stage that is to be left out.
        (["--skip-tags", "drivr"], "--skip-tags drivr: nothing has this tag, so it would leave nothing out"),
    ],
)
def test_a_tag_that_nothing_has_is_refused_with_the_stages(tmp_path: Path, words: list[str], says: str) -> None:
    said = " ".join(played(tmp_path, {"words": words}).split())
    assert says in said
    assert "The stages are preflight, driver, host, doctor, vllm, config, verify." in said


def test_a_stage_is_judged_before_it_is_played(tmp_path: Path) -> None:
    said = played(tmp_path, {"words": ["--tags", "config"]})
    assert "hosts refused; nothing was changed on any host." in said


@pytest.mark.parametrize("words", ["preflight", "always,verify"])
def test_a_run_without_the_checks_is_refused_before_anything_is_changed(tmp_path: Path, words: str) -> None:
    said = " ".join(played(tmp_path, {"words": ["--skip-tags", words]}).split())
    assert f"--skip-tags {words} leaves out the checks, and every stage needs what they find" in said
    assert "UNREACHABLE" not in said, said


def test_any_other_stage_can_be_left_out_and_a_proxy_without_a_password_is_taken(tmp_path: Path) -> None:
    proxy = {"https_proxy": "http://proxy.example:3128"}
    said = played(tmp_path, {"words": ["--skip-tags", "driver,verify"]}, site_environment=proxy)
    assert "leaves out the checks" not in said
    assert "holds a password" not in said
    assert "UNREACHABLE" in said, said


def test_a_limit_that_leaves_nobody_to_serve_is_refused(tmp_path: Path) -> None:
    said = " ".join(played(tmp_path, {"words": ["--limit", "web01"], "site_reports": ""}).split())
    assert "that --limit web01 leaves is in the group vllm" in said


PLAYBOOKS = [REPOSITORY / "site.yml", *sorted((REPOSITORY / "playbooks").glob("*.yml"))]


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.name)
def test_every_playbook_is_played_in_order(playbook: Path) -> None:
    first = yaml.safe_load(playbook.read_text())[0]
    if "ansible.builtin.import_playbook" in first:
        first = yaml.safe_load((playbook.parent / first["ansible.builtin.import_playbook"]).read_text())[0]
    assert "| vllm_doctor.hosts.preflight_in_order }}" in first["hosts"]


def test_a_playbook_finds_its_roles_from_any_folder_and_without_the_checkouts_settings(tmp_path: Path) -> None:
    words = [Path(sys.executable).parent / "ansible-playbook", "-i", "gpu01,", "--syntax-check"]
    settings = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    (tmp_path / "none.cfg").touch()
    done = subprocess.run(
        [*words, REPOSITORY / "playbooks" / "rollback_driver.yml"],
        cwd=tmp_path,
        env={**settings, "ANSIBLE_CONFIG": str(tmp_path / "none.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_that_begins_behind_the_checks_is_refused(tmp_path: Path) -> None:
    said = " ".join(played(tmp_path, {"words": ["--start-at-task", "Install the driver"]}).split())
    assert (
        "--start-at-task 'Install the driver' leaves out what stands before that task, and the checks are there" in said
    )
    assert "PLAY [" not in said


def test_a_run_that_asks_before_each_task_is_refused_since_a_no_leaves_out_a_check(tmp_path: Path) -> None:
    said = " ".join(played(tmp_path, {"words": ["--step"]}).split())
    assert (
        "--step asks before each task, and a No leaves that task out: a check, a question of consent, a drain." in said
    )
    assert "PLAY [" not in said


def test_a_strategy_under_which_hosts_do_not_wait_for_each_other_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_STRATEGY", "free")
    said = " ".join(played(tmp_path).split())
    assert "The strategy is free (ANSIBLE_STRATEGY, or strategy in ansible.cfg); needed: linear." in said
    assert "PLAY [" not in said


@pytest.mark.parametrize(
    ("states", "words", "says"),
    [
        (
            {},
            ["-e", "site_state=absent"],
            "site_state: absent holds for all 2 hosts; needed: -l HOST, or -e uninstall_all=true.",
        ),
        ({"a": "absent"}, ["-l", "a,b"], "b: site_state is present, and absent is needed"),
        ({}, [], "a, b: site_state is present, and absent is needed"),
        ({"b": "absent"}, [], "a: site_state is not absent; nothing is taken off"),
    ],
    ids=["all", "limit", "none", "one"],
)
def test_uninstall_takes_its_consent_before_it_asks_a_host(
    tmp_path: Path, states: dict[str, str], words: list[str], says: str
) -> None:
    down = {"ansible_host": "127.0.0.1", "ansible_port": 1, "site_reports": ""}
    hosts = {name: {**down, **({"site_state": states[name]} if name in states else {})} for name in "ab"}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"vllm": {"hosts": hosts}}))
    said = " ".join(run(tmp_path, *words, playbook="playbooks/uninstall.yml").split())
    assert says in said
    assert said.count("UNREACHABLE!") == (1 if "nothing is taken off" in says else 0), said


OF_THE_PLAYBOOKS = set(yaml.safe_load((REPOSITORY / "playbooks" / "meta" / "variables.yml").read_text()))


def test_the_table_of_the_playbooks_variables_has_all_that_they_read_and_no_other() -> None:
    files = [
        *PLAYBOOKS,
        *(REPOSITORY / "roles").glob("*/tasks/*.yml"),
        *(REPOSITORY / "roles").glob("*/vars/*.yml"),
        REPOSITORY / "tools" / "callback" / "site_report.py",
    ]
    text = "\n".join(path.read_text() for path in files)
    prefixes = {name.partition("_")[0] for name in OF_THE_PLAYBOOKS} - {"monitoring"}  # a role's
    spoken = set(re.findall(rf"(?<![\w.])(?:{'|'.join(prefixes)})_[a-z_]+\b(?!\.yml)", text))
    made_here = set(re.findall(r"^\s+(?:vars: )?(\w+): ", text, re.MULTILINE)) | {"uninstall_by_consent"}
    made_here |= set(re.findall(r"^\s+register: (\w+)", text, re.MULTILINE))
    assert spoken - made_here - {"rollback_driver", "site_report"} <= OF_THE_PLAYBOOKS
    assert {name for name in OF_THE_PLAYBOOKS if not re.search(rf"\b{name}\b", text)} == set()


DOWN = {"ansible_host": "127.0.0.1", "ansible_port": 1, "site_reports": ""}


@pytest.mark.parametrize(
    ("playbook", "words", "says"),
    [
        ("drain", ["-e", "drain_al=true"], "write drain_all"),
        ("undrain", ["-e", "vllm_ready_timeot=5"], "write vllm_ready_timeout"),
        ("rollback", ["-e", '{"rollback_seriel": 2}'], "write rollback_serial"),
        ("recover", ["-e", "@typed.yml"], "typed.yml:1: write site_state"),
        ("uninstall", ["-e", "site_stat=absent"], "write site_state"),
        ("diagnose", ["-e", "diagnose_fail_onn=advice"], "write diagnose_fail_on"),
        ("export_monitoring", ["-e", "monitoring_exprt=x"], "write monitoring_export"),
        ("monitoring", ["-e", "monitoring_exprt=x"], "write monitoring_export"),
    ],
)
def test_a_slip_after_e_is_refused_by_each_playbook_before_it_asks_a_host(
    tmp_path: Path, playbook: str, words: list[str], says: str
) -> None:
    (tmp_path / "typed.yml").write_text("site_stat: absent\n")
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"vllm": {"hosts": dict.fromkeys("ab", DOWN)}}))
    words = [word.replace("@", f"@{tmp_path}/") for word in words]
    said = " ".join(run(tmp_path, *words, playbook=f"playbooks/{playbook}.yml").split())
    assert "2 of 2 hosts refused; nothing was changed on any host." in said, said
    assert said.count("variable name") == 1
    assert says in said
    assert "UNREACHABLE" not in said


def test_a_word_of_ones_own_after_e_is_taken(tmp_path: Path) -> None:
    hosts = {"a": {**DOWN, "preflight_extra_variables": ["site_staff"]}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"vllm": {"hosts": hosts}}))
    said = run(tmp_path, "-e", "site_staff=ops", "-e", "vllm_drain_reason=fans", playbook="playbooks/drain.yml")
    assert "UNREACHABLE" in said, said
