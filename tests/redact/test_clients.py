"""What a client may have written, by where it stands in a log: none of it is shown, and what the program says stays."""

import tarfile
from pathlib import Path

import msgspec
import pytest

from tests.log.judging import judged_text
from vllm_doctor.gather.bundle import read_bundle, write_bundle
from vllm_doctor.log.read.assemble import cut, parse_lines
from vllm_doctor.log.read.pieces import NotText, stream
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.clients import of_clients
from vllm_doctor.rules.engine import diagnose

SERVED = """\
INFO 11-20 10:00:00 [api_server.py:1212] vLLM API server version 0.11.0
INFO 11-20 10:00:00 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B'}
INFO 11-20 10:00:31 [kv_cache_utils.py:1087] GPU KV cache size: 364,800 tokens
INFO:     Application startup complete.
INFO:     10.0.0.1:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""
HANDLER = """\
Traceback (most recent call last):
  File "/site-packages/uvicorn/protocols/http/httptools_impl.py", line 409, in run_asgi
    result = await app(
  File "/site-packages/vllm/entrypoints/openai/serving_chat.py", line 311, in place
"""
# The code that raised, and what it said; `Canary` and `CANARY` are a client's.
RAISED = {
    "f-string": ('raise ValueError(f"no turn for {role}")', "ValueError: no turn for Canary's diary"),
    "assertion": ("assert ok, said", "AssertionError: Canary told CANARY"),
    "value": ("float(text)", "ValueError: could not convert string to float: 'Canary CANARY'"),
    "key": ("place = turns[role]", "KeyError: 'Canary my diagnosis'"),
    "keyword": ("call(**given)", "TypeError: call() got an unexpected keyword argument 'Canary'"),
    "file": ("open(url)", "OSError: [Errno 36] File name too long: 'data:Canary,CANARY'"),
    "template": ("raise TemplateError(text)", "jinja2.exceptions.TemplateError: Canary wrote CANARY"),
    "address": ("raise InvalidURL(url)", "aiohttp.client_exceptions.InvalidURL: http//Canary.example/CANARY"),
    "class of a plugin": ("raise Refused(text)", "acme.guard.Refused: Canary asked for CANARY"),
    "further lines": ("raise ValueError(told)", "ValueError: bad grammar near\n   root ::= Canary | CANARY\n       ^"),
    "a caret under it": ("raise exc", "lark.exceptions.UnexpectedCharacters: No terminal\n\nCanary has CANARY\n^\n"),
    "a note": ("raise ValueError(told)", "ValueError: bad turn\nNote of the request: Canary has CANARY"),
    "known sentence": (
        "raise HarmonyError(told)",
        'openai_harmony.HarmonyError: unexpected tokens remaining in message header: Some("Canary to=CANARY")',
    ),
    "pydantic": (
        "return validate(body)",
        """pydantic_core._pydantic_core.ValidationError: 1 validation error for ChatCompletionRequest
messages.0.content.Canary field
  Value error, Canary has CANARY [type=value_error, input_value={'a': 'CANARY'}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.11/v/value_error""",
    ),
}  # fmt: skip
OF_CHAT = "ERROR 11-20 10:05:00 [serving_chat.py:250] "
RECEIVED = "INFO 11-20 10:05:00 [logger.py:39] "
PARSED = "(APIServer pid=17) WARNING 11-20 10:05:00 [entrypoints/openai/tool_parsers/hermes_tool_parser.py:96] "
RECORDS = {
    "prompt of several lines": f"{RECEIVED}Received request c-1: prompt: 'a Canary\nsecond CANARY\nCanary', params: x",
    "the same, a head on each": f"{RECEIVED}Received request c-1: prompt: 'a Canary\n{RECEIVED}CANARY', params: x",
    "body of several lines": f'{RECEIVED}request body: {{\n "messages": [\n  "Canary\nCANARY"\n ]}}',
    "logger of requests": f"{OF_CHAT}Error in applying chat template: Canary has CANARY\nsecond CANARY",
    "grammar": "ERROR 11-20 10:05:00 [backend_xgrammar.py:120] Failed to compile: root ::= Canary\nCANARY ::= x",
    "path of a module": f"{PARSED}Failed to parse: Canary\n{PARSED}CANARY more",
}


def of(text: str) -> Snapshot:
    read = stream(iter([text.encode()]))
    assert not isinstance(read, NotText)
    return Snapshot(taken_at="t", log=Known(cut(parse_lines(read), "log"), "log"))


def heard(text: str) -> list[str]:
    return [line for line in text.splitlines() if "canary" in line.lower()]


def bundled(shot: Snapshot, folder: Path) -> str:
    write_bundle([shot], folder / "b.tgz", [diagnose(shot)])
    with tarfile.open(folder / "b.tgz") as tar:
        return "".join(part.read().decode() for member in tar if (part := tar.extractfile(member)) is not None)


@pytest.mark.parametrize("logger", ["", OF_CHAT], ids=["uvicorn", "vLLM's logger"])
@pytest.mark.parametrize("case", RAISED)
def test_an_exception_of_a_request_shows_no_words_of_a_client(case: str, logger: str, tmp_path: Path) -> None:
    code, said = RAISED[case]
    told = "".join(f"{logger}{line}\n" for line in f"{HANDLER}    {code}\n{said}".splitlines())
    shot = of(f"{SERVED}ERROR:    Exception in ASGI application\n{told}")
    found = diagnose(shot)
    assert heard(msgspec.json.format(msgspec.json.encode(found)).decode()) == []
    assert heard(bundled(shot, tmp_path)) == []
    again = read_bundle(tmp_path / "b.tgz")
    assert isinstance(again, tuple)
    assert [one.code for one in diagnose(again[0]).findings] == [one.code for one in found.findings]


@pytest.mark.parametrize("case", RECORDS)
def test_lines_that_go_on_with_what_a_client_wrote_are_hidden(case: str, tmp_path: Path) -> None:
    shot = of(f"{SERVED}{RECORDS[case]}\nFatal Python error: Segmentation fault\n")
    assert heard(bundled(shot, tmp_path)) == []
    again = read_bundle(tmp_path / "b.tgz")
    assert isinstance(again, tuple)
    assert [one.code for one in diagnose(again[0]).findings] == ["VD601"]


# What the program says by itself, and what it says of tensors, is the diagnosis.
STAYS = {
    "words of its code": ('raise ValueError(f"no turn for {role}")', "ValueError: no turn for x y", "no turn for "),
    "a name of code": ("role.name", "AttributeError: 'NoneType' object has no attribute 'name'", "no attribute 'name'"),
    "a package": ("import cv2", "ModuleNotFoundError: No module named 'cv2'", "No module named 'cv2'"),
    "JSON's own": ("raise JSONDecodeError(x)", "json.decoder.JSONDecodeError: Expecting value: line 1", "value"),
    "of tensors": (
        'return f(x)\n  File "/site-packages/torch/nn/functional.py", line 9, in f\n    return g(x)',
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (7x8 and 9x8)",
        "(7x8 and 9x8)",
    ),
    "a count": (
        'raise ValueError(f"no room for {count} items of {kind}")',
        "ValueError: no room for 20418 items of mine",
        "no room for 20418 items of [hidden]",
    ),
    "known sentence": (
        "raise ValueError(told)",
        "ValueError: This model's maximum context length is 4096 tokens. However, you requested 5418 tokens (5318 in",
        "4096 tokens. However, you requested 5418 tokens (5318 in",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_what_the_program_says_stays(case: str, tmp_path: Path) -> None:
    code, said, stays = STAYS[case]
    assert stays in bundled(of(f"{SERVED}{HANDLER}    {code}\n{said}\n"), tmp_path)


@pytest.mark.parametrize(
    ("raised_in", "shown"), [("model_executor/models/utils.py", True), ("entrypoints/chat_utils.py", False)]
)
def test_a_quotation_of_what_code_of_tensors_said_stays(raised_in: str, shown: bool) -> None:
    said = "1280 tokens for 1024 places"
    first = f'{HANDLER}    await merge()\n  File "/site-packages/vllm/{raised_in}", line 9, in merge\n    raise X(\n'
    shot = of(f"{SERVED}{first}ValueError: {said}\n{HANDLER}    raise X(\nDeadError: first: ValueError('{said}')\n")
    assert isinstance(shot.log, Known)
    told = list(of_clients(shot.log.value.last.lines).values())
    assert (said in told[-1].text) is shown


def test_an_exception_of_the_start_is_shown_whole() -> None:
    start = of(
        "INFO 11-20 10:00:00 [api_server.py:1212] vLLM API server version 0.11.0\nTraceback (most recent call last):\n"
        '  File "/site-packages/vllm/entrypoints/openai/api_server.py", line 9, in run_server\n    raise X(\n'
        "ValueError: cannot place 'layers.3' on 2 ranks\n"
    )
    assert isinstance(start.log, Known)
    assert of_clients(start.log.value.last.lines) == {}


def test_the_ledger_counts_the_lines(tmp_path: Path) -> None:
    shot = of(SERVED + f"{RECORDS['logger of requests']}\n" * 3)
    ledger = write_bundle([shot], tmp_path / "b")
    assert [(e.why, e.count) for e in ledger if "client" in e.why] == [("words that a client may have written", 3)]


REFUSED = """(APIServer pid=1)   File "/opt/v/site-packages/vllm/entrypoints/openai/api_router.py", line 61, in create
(APIServer pid=1)     generator = await handler.create_chat_completion(request, raw_request)
(APIServer pid=1)   File "/opt/v/site-packages/vllm/v1/structured_output/backend_guidance.py", line 270, in validate
(APIServer pid=1)     check(grammar)
(APIServer pid=1) ValueError: Grammar error: Unknown format: {}
"""


@pytest.mark.parametrize(
    ("said", "shown"), [("iri-of-seven", "Unknown format: iri-of-seven"), ("my own words", "[hidden]")]
)
def test_a_schema_s_format_is_told_where_it_is_one_word_of_that_language(said: str, shown: str) -> None:
    assert judged_text(REFUSED.format(said)).findings[0].evidence[0].excerpt.endswith(shown)


SHOWN = {
    "a keyword that vLLM's own calls know": (
        "params = SamplingParams(**given)",
        "TypeError: Unexpected keyword argument 'use_beam_search'",
    ),
    "a count and its modality": (
        'raise RuntimeError(f"{count} updates of {count} {modality} items")',
        "RuntimeError: 0 updates of 1 audio items",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_no_client_wrote_is_shown(name: str, tmp_path: Path) -> None:
    code, said = SHOWN[name]
    raised = "".join(f"{OF_CHAT}{line}\n" for line in f"{HANDLER}    {code}\n{said}".splitlines())
    assert said in bundled(of(SERVED + raised), tmp_path)
