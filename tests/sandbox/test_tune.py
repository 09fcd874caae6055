"""`tune` on the real service: it climbs, it stops, and what served before serves again.

A trial that is broken off is in roles/vllm/molecule/instances.
"""

import json

import pytest

from tests.sandbox.conftest import Host

pytestmark = pytest.mark.sandbox
# No card, so no plan; the steps are as short as the two cores allow, and the answers long enough that requests overlap
# in the engine on a busy machine, too.
SHORT = (
    "--yes --slowdown 20 --without-plan --load own --prompt-tokens 64 --output-tokens 32 --step-seconds 5 --format json"
)

LAUNCH = "show ExecStart | sed 's/ ; start_time.*//'"


@pytest.fixture(autouse=True)
def served(host: Host) -> None:
    """Each test finds the service as it was rendered, whatever the one before left."""
    host.whole()


def launch(host: Host) -> str:
    """What systemd would start."""
    return host.run(LAUNCH)


def drop_in(host: Host) -> str:
    return f"/run/systemd/system/{host.unit}.d/zzz-vllm-doctor-tune.conf"


def test_a_ramp_measures_recommends_and_leaves_nothing(host: Host) -> None:
    before = launch(host)
    done = host.exec(f"vllm-doctor tune --unit {host.unit} --fresh --most-seqs 16 {SHORT}", timeout_s=1800)
    told = json.loads(done.stdout)
    assert (done.returncode, told["restored"], told["complete"]) == (0, True, True), done.stderr
    first, second = told["rows"][:2]
    assert (first["setting"]["seqs"], second["setting"]["seqs"]) == (8, 16)
    assert second["running_peak"] > first["setting"]["seqs"], "the trial's number was not in force"
    assert all(row["requests"] and row["kv_peak"] and row["preemptions"] == 0 for row in told["rows"])
    assert told["inventory"] in ([], ["vllm_max_num_seqs: 16"])
    assert launch(host) == before
    assert host.answers()
    assert host.exec(f"test -e {drop_in(host)}").returncode == 1
    assert "tune-guard" not in host.run("systemctl list-units --all --no-legend")


def test_it_asks_before_it_restarts_anything(host: Host) -> None:
    pid = host.main_pid()
    done = host.exec(f"vllm-doctor tune --unit {host.unit}")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    shown = host.run(f"vllm-doctor tune --unit {host.unit} --dry-run")
    assert "16 sequences" in shown
    assert host.main_pid() == pid
