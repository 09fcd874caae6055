"""An engine's traceback that was cut before its exception, among answers that were made before it."""

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.verdict import Verdict

ERROR = "(EngineCore_DP0 pid=9) ERROR 05-02 09:31:40 [core.py:710] "
CALL = f'{ERROR}  File "/opt/v/site-packages/vllm/v1/engine/core.py", line 754, in step\n'
CODE = f"{ERROR}    outputs = self.step_fn()\n"
ANSWER = '(ApiServer_3 pid=7) INFO:     127.0.0.1:45516 - "POST /v1/completions HTTP/1.1" 200 OK\n'
WORKS = "(EngineCore_DP0 pid=9) INFO 05-02 09:31:50 [core.py:300] Reset the prefix cache\n"


def test_answers_below_an_engines_last_call_are_no_service() -> None:
    told = diagnosed(ANSWER + CALL + ANSWER + CODE + ANSWER)
    assert told.verdict is Verdict.UNKNOWN
    assert "line 2 says that something ended or failed" in told.path[-1].because


def test_an_engine_that_goes_on_serves() -> None:
    assert diagnosed(ANSWER + CALL + CODE + WORKS + ANSWER).verdict is not Verdict.UNKNOWN
