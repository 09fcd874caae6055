import pytest


@pytest.fixture(scope="module")
def answer(host):
    return host.check_output("cat /srv/pythons/answer").split()


def test_the_interpreter_is_the_brought_one_and_makes_environments(host, answer):
    _, python = answer
    assert host.check_output(f"{python} -c 'import sys; print(sys.prefix)'").startswith("/opt/managed-python/pythons-")
    made = host.run(f"{python} -m venv /tmp/made && /tmp/made/bin/python -c 'import ssl, ctypes, sqlite3'")
    assert made.rc == 0, made.stderr


def test_the_doctor_runs_on_it(host):
    program = host.check_output("readlink -f /opt/vllm-doctor/current/venv/bin/python")
    assert program.startswith("/opt/managed-python/pythons-")
    assert host.check_output("vllm-doctor --version").startswith("vllm-doctor ")


def test_nobody_but_root_can_change_what_root_runs(host):
    found = host.run("find -L /opt/managed-python -perm /022 -not -type l")
    assert found.stdout == ""


def test_an_archive_with_another_hash_is_refused(host, answer):
    uv, _ = answer
    list_ = "--python-downloads-json-url /srv/pythons/wrong.json"
    done = host.run(f"{uv} python install --no-bin --install-dir /tmp/refused {list_} 3.13")
    assert done.rc != 0
    assert "Hash mismatch" in done.stderr
    assert host.run("ls -d /tmp/refused/cpython-*").rc != 0


def test_the_pinned_uv_knows_the_default_interpreter_for_both_architectures(host, answer):
    uv, _ = answer
    listed = host.check_output(f"{uv} python list --only-downloads --all-arches --all-platforms --offline 3.12")
    assert "linux-x86_64-gnu" in listed
    assert "linux-aarch64-gnu" in listed
