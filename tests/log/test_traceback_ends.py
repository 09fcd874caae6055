"""Where a traceback ends, and which part of a call's path says whose code it is."""

import re

import pytest

from tests.log.judging import judged_text
from tests.scenarios import loading
from vllm_doctor.log.read.assemble import parse_lines
from vllm_doctor.log.read.pieces import NotText, stream
from vllm_doctor.log.traceback import Frame, in_packages, tracebacks
from vllm_doctor.records.log import LogLine
from vllm_doctor.records.verdict import Verdict

SERVES = """\
INFO 11-20 10:00:00 [api_server.py:1212] vLLM API server version 0.11.0
INFO:     Application startup complete.
"""
THREAD = """\
Exception in thread Thread-6 (_report_usage_worker):
Traceback (most recent call last):
  File "/usr/lib/python3.12/threading.py", line 1073, in _bootstrap_inner
    self.run()
  File "/usr/lib/python3.12/site-packages/vllm/usage/usage_lib.py", line 229, in _write_to_file
    os.makedirs(os.path.dirname(_USAGE_STATS_JSON_PATH), exist_ok=True)
PermissionError: [Errno 13] Permission denied: '/.config'
"""
COUNTS = """\
INFO 11-20 10:05:00 [loggers.py:127] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: \
3.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%
INFO:     10.0.0.1:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK
INFO:     10.0.0.1:5001 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""


def test_a_line_with_a_level_is_no_part_of_what_python_wrote_itself() -> None:
    """A thread that tells of usage fails, and the server serves on."""
    assert judged_text(SERVES + THREAD + COUNTS).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (
            "/opt/mamba/envs/x/lib/python3.12/site-packages/vllm/v1/engine/core.py",
            "/site-packages/vllm/v1/engine/core.py",
        ),
        ("C:/ray/Lib/site-packages/torch/cuda/__init__.py", "/site-packages/torch/cuda/__init__.py"),
        ("/srv/verl/verl/workers/rollout.py", "/srv/verl/verl/workers/rollout.py"),
    ],
)
def test_a_path_is_read_from_its_packages_on(file: str, told: str) -> None:
    assert in_packages(file) == told


def test_a_traceback_is_the_same_one_where_windows_printed_its_paths() -> None:
    """What a call is asked for is written with `/`, once for all who ask."""
    seen = 0
    for name in loading.with_a_log():
        text = loading.log_text(name)
        printed = re.sub(r'File "[^"\n]+"', lambda file: file[0].replace("/", "\\"), text)
        assert _calls(printed) == _calls(text), name
        seen += printed != text
    assert seen > 100


def _calls(text: str) -> list[Frame]:
    read = stream(iter([text.encode()]))
    assert not isinstance(read, NotText)
    return [frame for crash in tracebacks(parse_lines(read)) for link in crash.links for frame in link.frames]


def test_a_call_as_ipython_wrote_it_before_its_release_8() -> None:
    """Colab still does: the file, the function, and the line's number in the listing alone."""
    said = """UnsupportedOperation                      Traceback (most recent call last)
/tmp/ipykernel_55/1894.py in <cell line: 0>()
      2 import vllm
----> 3 llm = vllm.LLM(model='m')
/usr/lib/python3.12/site-packages/vllm/utils/system_utils.py in suppress_stdout()
     61
---> 62     stdout_fd = sys.stdout.fileno()
/usr/lib/python3.12/site-packages/vllm/utils/streams.py in <module>
      1 import io
----> 2 io.fileno()
UnsupportedOperation: fileno"""
    (crash,) = tracebacks([LogLine(n, text) for n, text in enumerate(said.splitlines(), 1)])
    assert (crash.root.name, crash.root.message) == ("UnsupportedOperation", "fileno")
    assert [(f.file.rsplit("/", 1)[-1], f.line, f.function, f.code) for f in crash.root.frames] == [
        ("1894.py", 3, "<cell line: 0>", "llm = vllm.LLM(model='m')"),
        ("system_utils.py", 62, "suppress_stdout", "stdout_fd = sys.stdout.fileno()"),
        ("streams.py", 2, "<module>", "io.fileno()"),
    ]


def test_a_traceback_that_was_pasted_further_in_ends_with_its_exception() -> None:
    pasted = "".join(f"    {line}\n" for line in THREAD.splitlines()[1:])
    (found,) = tracebacks([LogLine(n, text) for n, text in enumerate(pasted.splitlines(), 1)])
    assert (found.root.kind, found.root.message) == ("PermissionError", "[Errno 13] Permission denied: '/.config'")


def test_an_exception_without_words_that_stands_further_in_is_no_end() -> None:
    pasted = [f"    {line}" for line in THREAD.splitlines()[1:-1]] + ["    AssertionError", "    [end of output]"]
    assert not any(c.root.name for c in tracebacks([LogLine(n, text) for n, text in enumerate(pasted, 1)]))


def test_of_a_build_that_pip_shows_a_check_without_words_is_left_to_pip() -> None:
    said = ["Traceback (most recent call last):", '  File "/b/setup.py", line 1, in <module>', "    assert sources"]
    for raised, name in (("AssertionError", ""), ("OSError: no sources", "OSError")):
        (crash,) = tracebacks(
            [LogLine(n, text) for n, text in enumerate((*said, raised, "[end of output]", "note"), 1)]
        )
        assert (crash.root.name, crash.root.message) == (name, raised.partition(": ")[2])


@pytest.mark.parametrize("first", ["KeyError: 'a'", "KeyError:", "ValueError: a"])
def test_exceptions_that_are_chained_are_one_failure(first: str) -> None:
    call = ["Traceback (most recent call last):", '  File "/a.py", line 1, in f', "    g()"]
    chain = "During handling of the above exception, another exception occurred:"
    text = [*call, first, "", chain, "", *call, "RuntimeError: b"]
    (crash,) = tracebacks([LogLine(n, line) for n, line in enumerate(text, 1)])
    assert [link.name for link in crash.links] == [first.partition(":")[0], "RuntimeError"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("ValueError: ('Only ', 'packed ', 'is read here')", "Only packed is read here"),
        ("AssertionError: ('it is ray or mp, got %s', 'mpi')", "it is ray or mp, got mpi"),
        ("KeyError: ('a', 'b')", "('a', 'b')"),
        ("OSError: (28, 'No space left on device')", "(28, 'No space left on device')"),
        ("ValueError: ('aborted', Error())", "('aborted', Error())"),
        ("ValueError: (not a tuple)", "(not a tuple)"),
    ],
)
def test_what_was_raised_in_pieces_is_one_sentence(written: str, message: str) -> None:
    calls = ["Traceback (most recent call last):", '  File "/a.py", line 1, in f', "    raise", written, ""]
    assert tracebacks(parse_lines(stream(iter(["\n".join(calls).encode()]))))[0].links[0].message == message


def test_the_stack_that_a_warning_prints_is_no_failure() -> None:
    stack = (
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.9/site-packages/vllm/config.py", line 7, in <module>\n'
        "    import torch\n"
        '  File "/opt/v/lib/python3.9/site-packages/torch/nn/modules/rooms.py", line 20, in <module>\n'
        "    device: torch.device = torch.device('cpu')\n"
    )
    warned = (
        "/opt/v/lib/python3.9/site-packages/torch/nn/modules/rooms.py:20: UserWarning: Failed to initialize NumPy\n"
    )
    assert judged_text(stack).verdict is Verdict.FINDING
    assert judged_text(stack + warned).verdict is Verdict.UNKNOWN
