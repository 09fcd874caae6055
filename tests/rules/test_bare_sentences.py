"""A sentence of vLLM or of a library that people quote without the exception's class is read as what is raised."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.verdict import Verdict

TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
TOOLS = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


@pytest.mark.parametrize(
    ("text", "title", "change"),
    [
        (TEMPLATE, "The model's tokenizer has no chat template", "chat-template"),
        (f"we get this now: {TEMPLATE}", "The model's tokenizer has no chat template", "chat-template"),
        ("The model does not support Chat Completions API", "The served model has no such call: it is of another kind",
         "runner"),
        (TOOLS, "The request has tools, and the server was started without them", "enable-auto-tool-choice"),
        (f"(APIServer pid=7) ERROR 03-14 09:04:00 [serving.py:71] Error in preprocessing prompt inputs: {TOOLS}",
         "The request has tools, and the server was started without them", "enable-auto-tool-choice"),
    ],
)  # fmt: skip
def test_a_bare_sentence_gets_the_answer_of_its_exception(text: str, title: str, change: str) -> None:
    told = diagnosed(text).findings[0]
    assert (told.code, told.title) == ("VD527", title)
    assert told.changes[0].name == change


@pytest.mark.parametrize(
    "text",
    [
        f"(APIServer pid=7) INFO 03-14 09:04:00 [serving.py:71] {TEMPLATE}",
        f"(APIServer pid=7) WARNING 03-14 09:04:00 [serving.py:71] {TEMPLATE}",
        f"/srv/own.py:7: UserWarning: {TEMPLATE}",
    ],
)
def test_what_its_writer_calls_no_error_is_none(text: str) -> None:
    assert diagnosed(text).verdict is not Verdict.FINDING


def test_a_sentence_that_nobody_raises_stays_unknown() -> None:
    assert diagnosed("the model answers more slowly than it did on the day before").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("raised", "title"),
    [
        ("openai.APIConnectionError: Connection error.", "The client does not reach the server"),
        ("httpx.ConnectError: All connection attempts failed", "The client does not reach the server"),
        (
            "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 10.2.3.4:8000 ssl:default [None]",
            "The client does not reach the server",
        ),
        ("openai.APITimeoutError: Request timed out.", "The client gave up waiting for the server's answer"),
        (
            "ssl.SSLError: [SSL: WRONG_VERSION_NUMBER] wrong version number",
            "The client speaks TLS to a port that has none",
        ),
    ],
)
def test_what_only_a_client_raises_is_the_clients(raised: str, title: str) -> None:
    told = diagnosed(raised).findings[0]
    assert (told.code, told.layer, told.title) == ("VD527", "client", title)


@pytest.mark.parametrize(
    "around",
    [
        "INFO 03-14 09:04:00 [api_server.py:1896] vLLM API server version 0.13.0",
        "huggingface_hub.errors.LocalEntryNotFoundError: no file of this name is on disk",
    ],
)
def test_a_connection_that_a_hubs_client_or_a_start_made_is_the_hubs(around: str) -> None:
    """requests and httpx are anybody's: what stands around says who asked."""
    told = diagnosed(f"{around}\nhttpx.ConnectError: All connection attempts failed").findings[0]
    assert told.code == "VD511"


@pytest.mark.parametrize(
    "said", ["reasoning helper: 'none5' not found in reasoning_parsers", "Tool parser 'none5' not found."]
)
def test_a_parser_without_a_default_is_asked_for_and_not_emptied(said: str) -> None:
    told = diagnosed(f'KeyError: "{said}"').findings[0]
    assert (told.code, told.changes[0].after) == ("VD503", None)
    assert "--help" in (told.changes[0].command or "")


def test_of_many_errors_the_last_are_read() -> None:
    """Each is held against every sentence that is known, and a server that runs for weeks writes many."""
    noise = "(APIServer pid=7) ERROR 03-14 09:04:00 [serving.py:71] the answer to this one took longer than all before"
    asked = f"(APIServer pid=7) ERROR 03-14 09:04:01 [serving.py:71] {TOOLS}"
    assert diagnosed("\n".join([*60 * [noise], asked])).findings[0].changes[0].name == "enable-auto-tool-choice"
    assert diagnosed("\n".join([asked, *60 * [noise]])).verdict is Verdict.UNKNOWN
