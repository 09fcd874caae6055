import json

import pytest


def test_it_is_on_everybodys_path(host):
    assert host.check_output("vllm-doctor --version").startswith("vllm-doctor ")


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_a_host_without_vllm_is_not_applicable_and_says_so(host, user):
    done = host.run(f"setpriv --reuid={user} --clear-groups vllm-doctor diagnose --format json")
    assert done.rc in {0, 3}, done.stderr
    assert json.loads(done.stdout)["verdict"] in {"not_applicable", "unknown"}


def test_nobody_but_root_can_change_what_root_runs(host):
    assert host.run("find -L /opt/vllm-doctor/current /usr/local/bin/vllm-doctor -perm /022 -not -type l").stdout == ""


def test_one_release_serves(host):
    assert len(host.check_output("ls /opt/vllm-doctor/releases").split()) == 1


def test_nothing_in_the_folder_one_stands_in_runs(host):
    traps = "json pynvml typer msgspec vllm_doctor sitecustomize usercustomize"
    told = host.check_output(
        f"d=$(mktemp -d) && cd $d && for m in {traps}; do echo \"open('RAN-$m', 'w')\" > $m.py; done; "
        "python3 -c 'import json'; PYTHONPATH=$d LD_LIBRARY_PATH=: vllm-doctor diagnose > answer; ls"
    )
    assert [name for name in told.split() if name.startswith("RAN")] == ["RAN-json"], "python3 alone springs the trap"
