"""What clients, launchers, runtimes and packages beside vLLM write: the problem, and what is to be changed."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.finding import Finding

SCRIPT = """Traceback (most recent call last):
  File "/srv/acme/rows.py", line 3, in <module>
    llm = LLM(model="acme/chat-8b", {key}=True)
  File "/opt/v/lib/python3.12/site-packages/vllm/entrypoints/llm.py", line 177, in __init__
    engine_args = EngineArgs(
TypeError: EngineArgs.__init__() got an unexpected keyword argument '{key}'
"""
OLD_PYTHON = SCRIPT.replace("EngineArgs.__init__()", "__init__()")
RECORD = """Traceback (most recent call last):
  File "/srv/acme/rows.py", line 3, in <module>
    params = SamplingParams(min_rows=1)
TypeError: Unexpected keyword argument 'min_rows'
"""
LATE = """[Error]: The aicore execution times out.
        Rectify the fault based on the error information in the ascend log.
(EngineCore pid=54) ERROR 05-21 10:20:12 [multiproc_executor.py:231] Worker proc VllmWorker-0 died unexpectedly, \
shutting down executor.
"""
FOLDER = """Traceback (most recent call last):
  File "/srv/acme/run.py", line 1, in <module>
    from acme_rows import Row
ImportError: cannot import name 'Row' from 'acme_rows' (unknown location)
"""
CLIENT = """Traceback (most recent call last):
  File "/opt/v/lib/python3.12/site-packages/litellm/llms/vllm/completion/handler.py", line 22, in validate
    from vllm import LLM
ModuleNotFoundError: No module named 'vllm'
"""
TOKENIZER = """Traceback (most recent call last):
  File "/opt/v/lib/python3.12/site-packages/outlines/models/vllm.py", line 31, in adapt
    for token in tokenizer.all_special_rows:
AttributeError: 'AcmeTokenizerFast' object has no attribute 'all_special_rows'
"""
CONFIG = """ERROR 05-21 10:20:12 [engine.py:448] 1 validation error for ModelConfig
ERROR 05-21 10:20:12 [engine.py:448]   Value error, rope_scaling should have a 'rope_type' key [type=value_error, \
input_value={}, input_type=dict]
"""
NPU = """Traceback (most recent call last):
  File "/opt/v/lib/python3.11/site-packages/vllm_ascend/worker/worker_v1.py", line 9, in execute_model
    torch_npu.npu.synchronize()
RuntimeError: The Inner error is reported as above. The process exits for this inner error, and the current working \
operator name is AcmeOp.
"""
DOCKER = (
    "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: runc create "
    "failed: error running prestart hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\n"
    "nvidia-container-cli: {said}: unknown.\n"
)
NOT_TAKEN = "[{'type': 'int_parsing', 'loc': ('body', 'rows'), 'msg': 'Input should be a valid integer', 'input': 'x'}]"


def only(log: str) -> Finding:
    (found,) = diagnosed(log).findings
    return found


@pytest.mark.parametrize(
    ("log", "title", "what", "to"),
    [
        (
            SCRIPT.format(key="acme_rows"),
            "rows.py passes an argument that this vLLM lacks: acme_rows",
            "vllm-version",
            None,
        ),
        (
            FOLDER,
            "A folder without code stands for acme_rows, which so lacks Row",
            "hiding-file",
            "the folder acme_rows",
        ),
        (CLIENT, "litellm is asked to run vLLM itself, not to ask a server", "program-settings", None),
        (TOKENIZER, "outlines reads what the installed tokenizer does not have", "outlines", None),
        (CONFIG, "The rope_scaling that is given lacks its rope_type", "hf-overrides", None),
        (NPU, "An operator on the NPU failed, earlier than the traceback tells", "ASCEND_LAUNCH_BLOCKING", "1"),
        (
            "RuntimeError: local_world_size (4) must be less than or equal to the number of visible devices (2).\n",
            "The launch asks for more devices than this process sees",
            "tensor-parallel-size",
            2,
        ),
        (
            "RuntimeError: local_world_size (4) must be less than or equal to the number of visible devices (0).\n",
            "The process sees no device, and the launch asks for some",
            "gpu-access",
            None,
        ),
        (
            DOCKER.format(said="initialization error: WSL environment detected but no adapters were found"),
            "Windows gives no GPU to WSL, so no container gets one",
            "driver",
            None,
        ),
        (
            "API Error: 404 {'detail': 'Not Found'}\n",
            "The request's path is none of the server's: check the base URL",
            "server-address",
            None,
        ),
        (
            f"API Error: 400 {NOT_TAKEN}\n",
            "The request has a field that the server does not take so",
            "client-input",
            None,
        ),
    ],
)
def test_the_problem_and_the_first_change(log: str, title: str, what: str, to: str | int | None) -> None:
    found = only("# vllm\n" + log)
    assert (found.title, found.changes[0].name, found.changes[0].after) == (title, what, to)


def test_an_argument_that_other_releases_have_names_the_first_of_them() -> None:
    log = "INFO 05-21 10:20:12 [api_server.py:1] vLLM API server version 0.6.0\n" + SCRIPT.format(key="enable_eplb")
    assert [(c.name, c.after) for c in only(log).changes] == [("vllm-version", "0.9.2"), ("program-settings", None)]


def test_a_program_whose_argument_only_newer_releases_have_names_the_first_of_them() -> None:
    log = OLD_PYTHON.replace("/srv/acme/rows.py", "/srv/acme/acme/chat/vllm_engine.py").format(key="enable_eplb")
    first = only("# vllm\n" + log).changes[0]
    assert (first.name, first.after) == ("vllm-version", "0.9.2")


@pytest.mark.parametrize(
    "said",
    [
        "[ERROR] the pump of room 3 failed: ValueError('no water in room 3')",
        "the pump of room 3 failed: ValueError: no water in room 3",
        'Error while pumping: acme.rooms.WaterError("no water in room 3")',
    ],
)
def test_an_exception_behind_its_writers_words_is_what_failed(said: str) -> None:
    found = diagnosed(said).findings
    assert [f.title.endswith("no water in room 3") for f in found] == [True]


@pytest.mark.parametrize(
    "said",
    [
        "INFO 04-07 11:39:13 [rows.py:7] the pump failed: ValueError('no water in room 3')",
        "retrying after ValueError('no water in room 3')",
    ],
)
def test_what_its_writer_calls_no_error_is_none(said: str) -> None:
    assert diagnosed(said).findings == ()


def test_an_executor_that_failed_leaves_the_reason_to_the_worker_that_died() -> None:
    said = (
        "ERROR 11-08 11:01:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down "
        "executor.\n"
        "ERROR 11-08 11:01:30 [core.py:502] Traceback (most recent call last):\n"
        'ERROR 11-08 11:01:30 [core.py:502]   File "/opt/v/lib/python3.12/site-packages/vllm/v1/engine/core.py", line '
        "572, in _handle_client_request\n"
        'ERROR 11-08 11:01:30 [core.py:502]     raise RuntimeError("Executor failed.")\n'
        "ERROR 11-08 11:01:30 [core.py:502] RuntimeError: Executor failed.\n"
    )
    assert diagnosed(said).findings[0].code == "VD601"


def test_a_variable_that_has_the_first_of_two_values_is_set_to_the_other() -> None:
    said = (
        "INFO 09-26 00:17:30 [api_server.py:1805] vLLM API server version 0.10.1.1\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.12/site-packages/vllm/v1/engine/async_llm.py", line 84, in __init__\n'
        "    raise ValueError(\n"
        "ValueError: Using V1 AsyncLLMEngine, but envs.VLLM_USE_V1=False. This should not happen. As a workaround, try "
        "using AsyncLLMEngine.from_vllm_config(...) or explicitly set VLLM_USE_V1=0 or 1 and report this issue."
    )
    change = diagnosed(said).findings[0].changes[0]
    assert (change.name, change.after) == ("VLLM_USE_V1", 1)


UCX = (
    "[1746690477.974497] [host7:611  :0]     ucp_context.c:1268 UCX  WARN  transports 'cuda_ipc','cuda_copy' are not "
    "available, please use one or more of: posix, self, tcp\n"
)
NIXL = (
    "ERROR 05-08 00:47:57 [core.py:396] Traceback (most recent call last):\n"
    'ERROR 05-08 00:47:57 [core.py:396]   File "/opt/v/lib/python3.12/site-packages/nixl/_api.py", line 234, in '
    "register_memory\n"
    "ERROR 05-08 00:47:57 [core.py:396]     self.agent.registerMem(descs, handles)\n"
    "ERROR 05-08 00:47:57 [core.py:396] nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND\n"
)


def test_what_ucx_logged_above_nixls_exception_is_its_reason() -> None:
    told, bare = (diagnosed(text).findings[0] for text in (UCX + NIXL, NIXL))
    assert told.title == "UCX, over which NIXL sends, has no transport for GPU memory"
    assert [c.name for c in told.changes if c.name in {"nixl", "UCX_TLS"}] == ["nixl"]
    assert [c.name for c in bare.changes if c.name in {"nixl", "UCX_TLS"}] == ["UCX_TLS"]
