"""site.yml on GPU hosts, from nothing: as README says, with the example inventory and a newcomer's lines.

The tests go on from one another, in this order.
"""

from tests.site.conftest import MACHINES, Site, verdict
from tests.site.newcomer import KEY

ASK = (
    f"curl -sf -H 'Authorization: Bearer {KEY}' -H 'Content-Type: application/json' "
    """-d '{"model": "llama-3.1-8b", "prompt": "Hello", "max_tokens": 4}' http://127.0.0.1:8000/v1/completions"""
)


def test_the_plan_of_bare_hosts_changes_nothing(site: Site) -> None:
    run = site.play("--check", "--diff")
    assert run.rc == 0, run.text
    assert KEY not in run.text
    for host in MACHINES:
        assert site.on(host, "ls /opt /etc/apt/preferences.d; cat /proc/driver/nvidia/version || true") == ""


def test_from_nothing_to_a_completion_on_every_host(site: Site) -> None:
    run = site.play()
    assert run.rc == 0, run.text
    assert KEY not in run.text
    for host in MACHINES:
        assert " the the" in site.on(host, ASK)
        assert verdict(site, host)["verdict"] == "ok"
        assert "580.105.08" in site.on(host, "cat /proc/driver/nvidia/version")
        site.on(
            host,
            "command -v gcc g++; echo '#include <Python.h>' | gcc -fsyntax-only $(python3-config --includes) -xc -",
        )


def test_a_second_run_changes_nothing(site: Site) -> None:
    run = site.play()
    assert run.rc == 0, run.text
    assert [host for host, counts in run.recap.items() if counts["changed"]] == [], run.changed()
