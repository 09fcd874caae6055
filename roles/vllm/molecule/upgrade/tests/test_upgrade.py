"""A → B → A: the first release serves again, and the second is kept for the next time."""

import json


def test_the_first_release_serves_again(host):
    assert json.loads(host.check_output("curl -s http://127.0.0.1:8000/version"))["version"].startswith("0.31.0")
    body = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 2})
    answer = host.check_output(
        f"curl -s -H 'Content-Type: application/json' -d '{body}' http://127.0.0.1:8000/v1/completions"
    )
    assert json.loads(answer)["usage"]["completion_tokens"] == 2


def test_both_releases_are_there_and_the_way_forward_is_kept(host):
    releases = host.check_output("ls /opt/vllm/releases").split()
    assert [name.split("+")[0] for name in releases] == ["0.31.0", "0.32.0"]
    assert "0.31.0" in host.check_output("cat /opt/vllm/served/main/now/release")
    assert "0.32.0" in host.check_output("cat /opt/vllm/served/main/before/release")


def test_the_unit_is_the_one_of_the_release(host):
    assert "vLLM 0.31.0" in host.check_output("systemctl show vllm@main -p Description --value")
    assert host.service("vllm@main").is_enabled
