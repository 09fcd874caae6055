"""What people paste into a report: a quoted log, an exception's last line, a version beside it, the piece of a log."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.knowledge.versions import newest_known
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.verdict import Verdict

ARGUMENT = """\
{version}
  File "/opt/v/lib/python3.12/site-packages/vllm/entrypoints/llm.py", line 129, in __init__
    engine_args = EngineArgs(
TypeError: EngineArgs.__init__() got an unexpected keyword argument '{name}'
"""
QUOTED = """\
The second start says:
> [rank0]: Traceback (most recent call last):
> [rank0]:   File "/opt/v/lib/python3.12/site-packages/vllm/model_executor/models/llama.py", line 401, in load_weights
> [rank0]:     param = params_dict[name]
> [rank0]: KeyError: 'layers.3.self_attn.qkv_proj.weight'
"""
QUEUE = """\
(EngineCore_0 pid=7) ERROR 11-20 10:00:00 [core.py:684] Traceback (most recent call last):
(EngineCore_0 pid=7) ERROR 11-20 10:00:00 [core.py:684]   File "/opt/v/lib/python3.12/site-packages/vllm/distributed/\
device_communicators/shm_broadcast.py", line 469, in acquire_read
(EngineCore_0 pid=7) ERROR 11-20 10:00:00 [core.py:684]     raise TimeoutError
(EngineCore_0 pid=7) ERROR 11-20 10:00:00 [core.py:684] TimeoutError
"""
SIGNALLED = """\
INFO 11-20 10:00:00 [api_server.py:981] vLLM API server version 0.8.2
CRITICAL 11-20 10:00:09 [core_client.py:269] Got fatal signal from worker processes, shutting down. See stack trace \
above for root cause issue.
Killed
"""
MARLIN = """\
vllm {version}
  File "/opt/v/lib/python3.12/site-packages/vllm/model_executor/layers/quantization/{kind}_marlin.py", line 84, in new
    verify_marlin_supported(
ValueError: Marlin does not support weight_bits = uint4b8. Only types = [] are supported (for group_size = 64, \
min_capability = 75, zp = False).
"""
NO_CLASS = "Following weights were not initialized from checkpoint: {'%s'}"
OPERATOR = """\
(Worker_TP0 pid=9) ERROR 11-20 10:00:00 [multiproc_executor.py:949] WorkerProc hit an exception.
(Worker_TP0 pid=9) ERROR 11-20 10:00:00 [multiproc_executor.py:949]     out, lse = torch.ops._vllm_fa2_C.varlen_fwd(
(Worker_TP0 pid=9) ERROR 11-20 10:00:00 [multiproc_executor.py:949] torch.AcceleratorError: CUDA error: an illegal \
memory access was encountered
"""
UNBOUND = """\
Traceback (most recent call last):
  File "/srv/vllm/collect_env.py", line 17, in <module>
    from vllm.envs import environment_variables
ImportError: /srv/vllm/vllm/_C.abi3.so: undefined symbol: _ZN3c104acme
"""


@pytest.mark.parametrize(
    ("text", "code", "change", "to"),
    [
        (ARGUMENT.format(version="vllm==0.12.0", name="num_scheduler_steps"), "VD501", "num-scheduler-steps", None),
        (ARGUMENT.format(version="vllm==0.6.3", name="num_scheduler_steps"), "VD502", "num-scheduler-steps", None),
        (QUOTED, "VD523", "vllm-version", str(newest_known())),
        (QUEUE, "VD801", "NCCL_P2P_DISABLE", "1"),
        (SIGNALLED, "VD601", None, None),
        ("vllm\ntorch._dynamo.exc.Unsupported: call to a builtin\n", "VD527", "enforce-eager", "True"),
        (
            "vllm\nhuggingface_hub.utils._http.OfflineModeIsEnabled: Cannot reach the hub: offline mode is enabled.\n",
            "VD511",
            "model-files",
            None,
        ),
        (MARLIN.format(version="0.6.3", kind="gptq"), "VD527", "quantization", "gptq"),
        (MARLIN.format(version="0.6.3", kind="awq"), "VD527", "quantization", "awq"),
        (
            "vllm\nValueError: Failed to find a kernel that can implement the WNA16 linear layer.\n",
            "VD527",
            "dtype",
            "half",
        ),
        (f"vllm\nValueError: {NO_CLASS % 'score.weight'}\n", "VD512", "hf-overrides", None),
        (f"vllm\nValueError: {NO_CLASS % 'layers.3.mlp.weight'}\n", "VD512", "weights", None),
        (OPERATOR, "VD705", "attention-backend", "FLASHINFER"),
        (UNBOUND, "VD514", "python-env", None),
        (
            "vLLM ends with `RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)`.",
            "VD803",
            "shm volume",
            None,
        ),
    ],
)
def test_the_problem_and_the_first_change(text: str, code: str, change: str | None, to: str | None) -> None:
    found = judged_text(text).findings[0]
    first = found.changes[0] if found.changes else None
    told = (first.name, None if first.after is None else str(first.after)) if first is not None else (None, None)
    assert (found.code, *told) == (code, change, to)


def test_marlin_runs_on_turing_from_0_14_on() -> None:
    (found,) = judged_text(MARLIN.format(version="0.16.0", kind="gptq")).findings
    assert "quantization" not in {change.name for change in found.changes}


def test_the_name_of_an_argument_that_no_release_has_is_the_callers_own() -> None:
    text = ARGUMENT.format(version="vllm==0.12.0", name="acme_rows")
    assert {found.code for found in judged_text(text).findings} & {"VD501", "VD502"} == set()


def test_a_log_that_holds_calls_keeps_the_exceptions_that_a_sentence_quotes() -> None:
    told = "vLLM ends with `RuntimeError: an older one`:\n" + QUOTED.replace("> ", "")
    assert judged_text(told).findings[0].code == "VD523"


def test_a_warning_that_quotes_an_exception_is_none() -> None:
    warned = (
        "WARNING 11-20 10:00:00 [system_utils.py:258] Found ulimit of 1024. This can cause fd limit errors like "
        "`OSError: [Errno 24] Too many open files`.\n"
    )
    assert judged_text(f"{warned}INFO:     Application startup complete.\n").findings == ()


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("vllm==0.9.2", "0.9.2"),
        ("- vLLM: `0.24.0` (newest image)", "0.24.0"),
        ("vllm version: 0.6.3.post1", "0.6.3.post1"),
        ("vllm 0.9.0 starts, and 0.9.1 does not", None),
        ("vllm==0.9.2\nvllm==0.9.1", None),
    ],
)
def test_the_version_that_stands_beside_a_log(line: str, version: str | None) -> None:
    run = AnalysedRun(log_of_lines(f"{line}\n{QUEUE}".splitlines(), "log"))
    assert run.told_version == version


def test_a_piece_of_a_log_that_ends_with_an_engine_made_is_ok() -> None:
    made = "INFO 11-20 10:00:39 [core.py:159] init engine (profile, create kv cache, warmup model) took 20.1 seconds\n"
    assert judged_text(made).verdict is Verdict.OK


def test_an_ok_tells_of_requests_that_are_refused_at_the_end() -> None:
    answered = '127.0.0.1:5900 - "POST /v1/chat/completions HTTP/1.1" {}\n'
    stats = (
        "INFO 11-20 10:05:00 [loggers.py:127] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 3.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit "
        "rate: 0.0%\n"
    )
    ok, refused = ("INFO:     " + answered.format(status) for status in ("200 OK", "400 Bad Request"))
    late, early = (judged_text(text) for text in (ok + stats + refused, refused + stats + ok))
    assert (late.verdict, early.verdict) == (Verdict.OK, Verdict.OK)
    assert "from line 3 on it refuses requests (400)" in late.path[-1].because
    assert "refuses" not in early.path[-1].because


def test_an_error_of_the_engine_that_a_client_got_is_no_error_of_that_client() -> None:
    text = """\
(APIServer pid=9) ERROR 11-20 10:00:00 [serving.py:1007] Traceback (most recent call last):
(APIServer pid=9) ERROR 11-20 10:00:00 [serving.py:1007]   File "/opt/v/pydantic/main.py", line 782, in validate_json
(APIServer pid=9) ERROR 11-20 10:00:00 [serving.py:1007] pydantic_core._pydantic_core.ValidationError: 1 validation \
error for ChatCompletionStreamResponse
(APIServer pid=9) ERROR 11-20 10:00:00 [serving.py:1007] choices
(APIServer pid=9) ERROR 11-20 10:00:00 [serving.py:1007]   Field required [type=missing, input_value={'error': \
{'message': 'En...am': None, 'code': 500}}, input_type=dict]
"""
    told = judged_text(text)
    assert told.verdict is Verdict.UNKNOWN
    assert "pass a failure of the engine on to a client" in told.path[-1].because
