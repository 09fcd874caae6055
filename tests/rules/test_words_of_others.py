"""What a text still tells that no server wrote, or of which somebody cut the part that says why."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.verdict import Verdict

V0 = "ERROR 03-14 09:26:53 [engine.py:161]"
ENGINE = "/opt/vllm/lib/python3.12/site-packages/vllm/engine/multiprocessing/engine.py"


def found(text: str) -> Finding:
    told = diagnosed(text).findings
    assert told, diagnosed(text).path[-1].because
    return told[0]


def test_the_options_of_another_program_are_not_vllms() -> None:
    one = found("room-router: error: unrecognized arguments: --door-policy any\nvllm-router 0.1 starts")
    assert (one.code, one.changes[0].name) == ("VD531", "foreign-package")
    assert "--door-policy" in (one.changes[0].after or "")
    of_vllm = found("vllm serve: error: unrecognized arguments: --door-policy any")
    assert of_vllm.code == "VD502"
    of_a_script = found("serve_room.py: error: unrecognized arguments: --swap-spaces 4")
    assert of_a_script.code == "VD502"


def test_a_line_of_a_refused_request_stands_alone() -> None:
    said = "Error in applying chat template from request: Conversation roles must alternate user/assistant"
    one = found(f"ERROR 03-14 09:26:53 api_server.py:247] {said}")
    assert (one.code, one.title) == ("VD529", "The chat template refuses the order of the messages")
    assert [change.name for change in one.changes] == ["chat-template"]


def test_a_program_that_runs_the_workers_ends_itself() -> None:
    one = found("(Task pid=7) [2026-03-14 09:27:20,002 C 209 223] task_receiver.cc:219:  Check failed: room_valid ")
    assert (one.code, one.title) == (
        "VD531",
        "A program beside vLLM ended itself: a check of its own code failed",
    )
    another = diagnosed("F0314 09:27:20.000002     1 room.cc:219] Check failed: room_valid ")
    assert another.verdict is Verdict.UNKNOWN


def test_who_waits_for_vllm_is_not_what_failed() -> None:
    one = found(
        'E0314 09:27:20.427556       1 proxy.go:268] "waiting for vLLM to be ready" err="dial tcp [::1]:8200: connect: '
        'connection refused"'
    )
    assert one.title == "A program in front waits for vLLM, which is not ready"
    assert one.changes[0].name == "server-log"


def test_a_call_whose_head_was_cut_is_a_call() -> None:
    one = found(
        '/site-packages/vllm/config.py", line 41, in <module>\n    room = open_room()\n'
        'vllm/room.py", line 7, in open_room\n    raise ValueError("Duplicate layer name: door")\n'
    )
    assert (one.code, one.changes[0].name) == ("VD527", "own-process")


def test_the_exception_above_a_traceback_that_was_cut() -> None:
    calls = f'{V0} Traceback (most recent call last):\n{V0}   File "{ENGINE}", line 9, in start\n{V0}     self.run()\n'
    one = found(f"{V0} ValueError('Duplicate layer name: door')\n{calls}")
    assert one.changes[0].name == "own-process"
    assert found(f"{V0} ready\n{calls}").code == "VD599"


def test_a_weights_name_alone_tells_no_model() -> None:
    one = found("KeyError: 'layers.0.mlp.down_proj.weight'")
    assert one.title == "The checkpoint has weights that the model's code does not know"


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("agent: step 1 failed: Internal Server Error", "its own log of that minute"),
        ("the client shows 400 status code (no body)", "send the same request by hand"),
        ('fetch("/v2/room") gave 404, {"detail":"Not Found"}', "openapi.json"),
    ],
)
def test_a_failed_request_says_where_its_cause_stands(said: str, where: str) -> None:
    told = diagnosed(f"we use vLLM\n{said}")
    assert told.verdict is Verdict.UNKNOWN
    because = told.path[-1].because
    assert because.startswith("this log mentions vLLM, but vLLM wrote no line of it; line 2 tells of a request")
    assert where in because
    assert diagnosed("we use vLLM\nthe room is full").path[-1].because.endswith("give the server's own log")


def test_a_trainer_that_asks_paths_of_its_own_server() -> None:
    call = 'File "/x/site-packages/trl/extras/vllm_client.py", line 233, in init_communicator'
    one = found(f'{call}\nException: Request failed: 404, {{"detail":"Not Found"}}')
    assert (one.code, one.changes[0].name) == ("VD521", "server-address")
    assert "`trl vllm-serve`" in one.changes[0].why


def test_a_body_behind_a_clients_words_is_the_servers_answer() -> None:
    body = '{"error":{"message":"top_p must be in (0, 1], got 7.0.","type":"BadRequestError","param":null,"code":400}}'
    assert found(f"Error: {body}").changes[0].name == "client-input"
    assert diagnosed("Error: {not a body}").verdict is Verdict.UNKNOWN


def test_a_program_keeps_the_words_of_its_own_server() -> None:
    one = found("RuntimeError: Room: vLLM process failed to load!")
    assert (one.changes[0].name, one.changes[0].direction.value) == ("server-log", "change")


def test_a_request_waits_for_blocks_that_never_come() -> None:
    wait = "DEBUG 03-14 09:26:53 [scheduler.py:345] cmpl-8f-0 is still in WAITING_FOR_REMOTE_KVS state."
    one = found("\n".join([wait] * 3))
    assert (one.code, one.changes[0].name) == ("VD528", "kv-peer")
    served = "INFO 03-14 09:26:59 [loggers.py:236] Engine 000: Avg prompt throughput: 4.0 tokens/s"
    assert not diagnosed("\n".join([*[wait] * 3, served])).findings


def test_a_class_of_vllms_own_is_no_matter_of_transformers() -> None:
    one = found("AttributeError: 'MistralTokenizer' object has no attribute 'room_key'")
    assert (one.code, one.title) == ("VD514", "vLLM's own MistralTokenizer has no room_key")
    assert one.changes[0].name == "vllm-version"
    other = found("AttributeError: 'AcmeTokenizer' object has no attribute 'init_kwargs'")
    assert other.title == "transformers does not fit this vLLM: AcmeTokenizer has no init_kwargs"


def test_two_packages_that_vllm_does_not_ask_for() -> None:
    call = 'File "/x/site-packages/roomserve/cli.py", line 33, in <module>\n    from roomserve_core.types import Door'
    said = "ImportError: cannot import name 'Door' from 'roomserve_core.types' (/x/roomserve_core/types.py)"
    one = found(f"Traceback (most recent call last):\n  {call}\n{said}")
    assert one.title == "roomserve and the installed roomserve_core do not fit each other"
    assert one.changes[0].command == "pip install -U roomserve roomserve-core; pip check"
