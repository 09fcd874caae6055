"""A table or a description above the log is the newer of both: what it says of the log's container counts."""

import pytest

from tests.cli.test_diagnose import HEALTHY
from tests.rules.test_ends import diagnosed
from vllm_doctor.records.verdict import Verdict

ANSWER = '(APIServer pid=1) INFO:     10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
LOOPS = "NAME        READY   STATUS             RESTARTS      AGE\n{}   0/1     CrashLoopBackOff   7 (61s ago)   31m\n"
ASKED = "\n$ kubectl logs {} --previous\n"
RESTARTS = '77aa   {}   "serve"   40 minutes ago   Restarting (1) 12 seconds ago   chat\n'


@pytest.mark.parametrize(
    "above",
    [
        LOOPS.format("vllm-0"),
        LOOPS.format("chat-0") + ASKED.format("chat-0"),
        RESTARTS.format("vllm/vllm-openai:v0.11.0"),
        RESTARTS.format("acme/serve:1") + "$ docker logs chat\n",
        "    State:          Waiting\n      Reason:       CrashLoopBackOff\n",
        "     Active: activating (auto-restart) (Result: exit-code) since Fri 2026-01-02 10:09:01 UTC; 2s ago\n",
    ],
)
def test_a_container_that_is_started_again_and_again_is_not_well(above: str) -> None:
    told = diagnosed(above + HEALTHY + ANSWER)
    assert told.verdict is Verdict.UNKNOWN
    assert "above the log" in told.path[-1].because


@pytest.mark.parametrize(
    "above",
    [
        LOOPS.format("grafana-0") + ASKED.format("vllm-0"),  # another pod of the same table
        LOOPS.format("vllm-0").replace("0/1     CrashLoopBackOff   7 (61s ago)", "1/1     Running            0"),
        "     Active: active (running) since Fri 2026-01-02 10:09:01 UTC; 2h ago\n",
    ],
)
def test_what_runs_or_is_another_s_says_nothing(above: str) -> None:
    assert diagnosed(above + HEALTHY + ANSWER).verdict is Verdict.OK


def test_between_two_runs_it_tells_of_the_first_one() -> None:
    again = HEALTHY.replace("pid=1)", "pid=11)").replace("pid=2)", "pid=12)")
    assert diagnosed(HEALTHY + ANSWER + LOOPS.format("vllm-0") + again + ANSWER).verdict is Verdict.OK
