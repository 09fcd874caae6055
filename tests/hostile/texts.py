"""What a stranger may write, and where the doctor may come upon it: the material of `sweep.py`.

A text is put into every place; a place is a command line and the files it reads. All but `MAY_BE_OK` also get a log in
which vLLM failed, so whatever else they say, no answer may be "ok".
"""

import csv
import gzip
import io
import json
import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

FAILED = (
    "(APIServer pid=1) INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
    "(EngineCore pid=2) INFO 01-01 00:00:01 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n"
    "(EngineCore pid=2) ERROR 01-01 00:00:02 [core.py:1] ValueError: To serve at least one request with the models's "
    "max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.31 "
    "GiB). Based on the available memory, the estimated maximum model length is 43472.\n"
)
SERVED = (
    "(APIServer pid=1) INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
    "(EngineCore pid=2) INFO 01-01 00:00:01 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n"
    "(APIServer pid=1) INFO:     Application startup complete.\n"
)
STOPPED = SERVED + (
    "(APIServer pid=1) INFO:     Shutting down\n"
    "(APIServer pid=1) INFO:     Application shutdown complete.\n"
    "(APIServer pid=1) INFO:     Finished server process [1]\n"
)

# Stands before every text: where an answer has it, the text was told.
TOLD = "strAnger7"
TEXTS = {
    "a screen wiped": "\x1b[2J\x1b[H\x1b[31m",
    "a title set": "\x1b]0;owned\x07\x1b]8;;http://a.example\x1b\\x",
    "controls of eight bits": "\x9b2J\x85\x90q\x9c",
    "a direction turned": "\u202etxt.exe\u2066\u200f\u061c",
    "a line drawn over": "fine\rOK No fault found\b\b\b\x7f\x00",
    "lines of other kinds": "a\x0bb\x0cc\u2028d\u2029e",
    "a script": "<script>alert(1)</script>",
    "an attribute": "\" onmouseover=alert(1) x='><img src=x onerror=alert(1)>",
    "entities": "&lt;script&gt;&#60;script&#62;</pre></td>",
    "a sample of metrics": '"} 1\nvllm_doctor_up 1\nx{a="',
    "a section of a unit": "x\n[Service]\nExecStart=/bin/false\n",
    "a command": "$(touch owned)`touch owned`;touch owned|touch owned&",
    "quotation marks": "'\"'\"\\'\\\"'",
    "a template": "{{ 7 * 7 }}{% for x in y %}{{ lookup('pipe', 'touch owned') }}{% endfor %}",
    "a format": "%s%n%d {0.__class__} {} %(x)s",
    "markup": "[bold red]x[/bold red][link=file:///etc/passwd]y[/link]",
    "halves of characters": "\udcff\udcfe\ud800",
    "digits of others": "\uff11\uff12 \u0663\u00b2 1e999 nan -0 " + "9" * 500,
    "a path of tokens": "token-" * 2000,
    "brackets": "[{(" * 3000,
    "joined characters": "e\u0301\u200d\U0001f468\u200d" * 300 + "\ufeff",
    "an end of JSON": '"}]}\n{"verdict": "ok"}\n',
}  # fmt: skip


class Place(NamedTuple):
    """A command line (without its format) and the files that it reads, by their names."""

    words: tuple[str, ...]
    files: Mapping[str, bytes]
    stdin: bytes = b""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape" if all(not 0xD800 <= ord(c) < 0xDC80 for c in text) else "replace")


def word(text: str) -> str:
    """`text` as a word that a command line can hold: without NUL, and with bytes that are no UTF-8 as they are."""
    return _bytes(text.replace("\0", "")).decode("utf-8", "surrogateescape")


def _log(*lines: str) -> Place:
    return Place(("diagnose", "--log", "log"), {"log": _bytes("".join(lines))})


def _beside(*words: str, **files: str) -> Place:
    named = {name.replace("_", "-"): _bytes(text) for name, text in files.items()}
    return Place(("diagnose", "--log", "log", *map(word, words)), {"log": FAILED.encode(), **named})


def _bundle(text: str, log: str) -> Place:
    """Every text of a snapshot is the stranger's; the server failed by the words of `log`."""
    lines = [{"number": n, "text": one, "excerpt": one} for n, one in enumerate(log.splitlines(), 1)]
    told = {"source": text, "earlier_lives": 0, "last": {"lines": lines}}
    started = {
        "argv": ["vllm", "serve", text],
        "model": text,
        "flags": {text: text, "api-key": text},
        "env": {text: text},
    }
    known = {"type": "known", "source": text}
    shot = {"taken_at": text, "subject": {"host": text, "unit": text, "gpu": text}, "log": known | {"value": told},
            "launch": known | {"value": started}, "version": known | {"value": text},
            "kernel": {"type": "unknown", "reason": text, "remedy": text}}  # fmt: skip
    return Place(("diagnose", "--from", "shots.json"), {"shots.json": json.dumps([shot]).encode()})


def _smi(text: str) -> str:
    page = io.StringIO()
    writer = csv.writer(page)
    writer.writerow(["index", "name", "memory.total [MiB]", "memory.used [MiB]", "driver_version"])
    writer.writerow([0, text, "81559 MiB", "1 MiB", text])
    return page.getvalue()


def _inspected(text: str) -> str:
    config = {"Image": f"vllm/vllm-openai:v0.11.0{text}", "Env": [f"A={text}", f"{text}=1"], "Cmd": ["--model", text]}
    state = {"Status": "exited", "ExitCode": 1, "Error": text, "StartedAt": text, "FinishedAt": text}
    return json.dumps([{"Name": f"/{text}", "Id": text, "State": state, "Config": config}])


def _pod(text: str) -> str:
    ended = {"terminated": {"exitCode": 137, "reason": text, "message": text, "finishedAt": text}}
    status = {"name": text, "restartCount": 3, "state": {"waiting": {"reason": text, "message": text}}}
    spec = {"name": text, "image": f"vllm/vllm-openai:v0.11.0{text}", "args": ["--model", text],
            "env": [{"name": text, "value": text}], "resources": {"limits": {"memory": text, text: text}}}  # fmt: skip
    return json.dumps(
        {
            "kind": "Pod",
            "metadata": {"name": text, "namespace": text},
            "spec": {"nodeName": text, "containers": [spec]},
            "status": {"message": text, "containerStatuses": [status | {"lastState": ended}]},
        }
    )


ON = ("--gpu", "NVIDIA H100 80GB HBM3", "--vllm-version", "0.33.0")


def thrown(text: str) -> str:
    """A log that ends in an exception with this text, which every answer tells."""
    return (
        "(APIServer pid=1) INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
        'Traceback (most recent call last):\n  File "/x/vllm/a.py", line 1, in f\n'
        f"ValueError: cannot load {text} from hub\n"
    )


PLACES: Mapping[str, Callable[[str], Place]] = {
    "an exception": lambda t: _log(thrown(t)),
    "a log's first line": lambda t: _log(t, "\n", thrown(t)),
    "a log's arguments": lambda t: _log(
        f"INFO 01-01 00:00:00 [utils.py:1] non-default args: {{'model': {t!r}}}\n", FAILED
    ),
    "a log's access line": lambda t: _log(FAILED, f'INFO:     10.0.0.1:1 - "GET /{t} HTTP/1.1" 404 Not Found\n'),
    "a frame of a traceback": lambda t: _log(
        thrown(t).replace("/x/vllm/a.py", t).replace("in f", f"in {t}").replace("ValueError", f"{t}Error")
    ),
    "a failure's line": lambda t: _log(f"{FAILED.rstrip()} {t}\n"),
    "standard input": lambda t: Place(("diagnose", "--log", "-"), {}, _bytes(thrown(t))),
    "a packed log": lambda t: Place(("diagnose", "log.gz"), {"log.gz": gzip.compress(_bytes(thrown(t)))}),
    "a log's name": lambda t: Place(
        ("diagnose", "--log", "log", "--log", word(t).replace("/", "")[:80] or "x"), {"log": FAILED.encode()}
    ),
    "a kernel log": lambda t: _beside(
        "--kernel-log", "kernel", kernel=f"[  1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=2, name={t}, Ch 8\n"
    ),
    "a label of metrics": lambda t: _beside(
        "--metrics", "page", page=f'vllm:num_requests_running{{model_name="{t}"}} 1.0\n'
    ),
    "a name of metrics": lambda t: _beside("--metrics", "page", page=f"vllm:{t} 1.0\n"),
    "a card's name": lambda t: _beside("--nvidia-smi", "smi", smi=_smi(t)),
    "a card that is named": lambda t: _beside("--gpu", t or "x"),
    "a version": lambda t: _beside("--vllm-version", t),
    "a value of a configuration": lambda t: _beside(
        "--model-config", "config", config=json.dumps({"architectures": [t], "model_type": t, "hidden_size": t})
    ),
    "a key of a configuration": lambda t: _beside("--model-config", "config", config=json.dumps({t: {t: t}})),
    "a model": lambda t: _beside("--launch", f"vllm serve {shlex.quote(t)} -tp 2"),
    "an option's value": lambda t: _beside("--launch", f"vllm serve m --max-model-len {shlex.quote(t)}"),
    "an option": lambda t: _beside("--launch", f"vllm serve m {shlex.quote('--' + t)} 1"),
    "a variable": lambda t: _beside("--launch", f"VLLM_USE_V1={shlex.quote(t)} vllm serve m"),
    "a launch": lambda t: _beside("--launch", t),
    "a compose file": lambda t: _beside(
        "--launch", "compose.yaml",
        **{"compose.yaml": f"services:\n  a:\n    image: {json.dumps(t)}\n    command: [--model, {json.dumps(t)}]\n"},
    ),
    "a container's record": lambda t: Place(
        ("diagnose", "record", "log"), {"record": _bytes(_inspected(t)), "log": FAILED.encode()}
    ),
    "a pod's record": lambda t: Place(
        ("diagnose", "record", "log"), {"record": _bytes(_pod(t)), "log": FAILED.encode()}
    ),
    "a deed": lambda t: Place(
        ("history", "--since", "2000-01-01"),
        {"folder/deeds.jsonl": _bytes(json.dumps({"at": 1e9, "unit": t, "kind": t, "text": t}) + "\n")},
    ),
    "another host's answer": lambda t: Place(
        ("fleet", "answer.json"), {"answer.json": _bytes(json.dumps({"host": t, "said": t}))}
    ),
    "a bundle": lambda t: _bundle(t, thrown(t)),
    "a bundle with a change": lambda t: _bundle(t, FAILED),
    "a unit": lambda t: _beside("--unit", t),
    "a code": lambda t: Place(("explain", word(t)), {}),
    "metrics alone": lambda t: Place(
        ("fragmentation", "--metrics", "page"), {"page": _bytes(f'vllm:kv_cache_usage_perc{{model_name="{t}"}} 0.5\n')}
    ),
    "a model to plan": lambda t: Place(("plan", *ON, "--", "vllm", "serve", word(t)), {}),
    "an option to plan": lambda t: Place(("plan", *ON, "--", "vllm", "serve", "m", "--dtype", word(t)), {}),
    "a start to learn": lambda t: Place(
        ("plan", *ON, "--learn", "log", "--", "vllm", "serve", "m"), {"log": _bytes(f"{SERVED}{t}\n")}
    ),
}  # fmt: skip
MAY_BE_OK = (
    "a deed",
    "another host's answer",
    "a code",
    "metrics alone",
    "a model to plan",
    "an option to plan",
    "a start to learn",
)

# What another start wrote after an orderly stop: never ok.
TAILS = {
    "a command that is not there": "bash: line 1: vllm: command not found\n",
    "a module that is not there": 'Traceback (most recent call last):\n  File "/x/vllm", line 3, in <module>\n'
    "ModuleNotFoundError: No module named 'vllm'\n",
    "an undefined symbol": "ImportError: /x/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEi\n",
    "a kill": "Killed\n",
    "a port in use": "OSError: [Errno 98] Address already in use\n",
    "a model behind a gate": "OSError: You are trying to access a gated repo.\nMake sure to have access to it\n",
    "an old driver": "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n",
    "no memory": "(EngineCore pid=77) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
    "has a total capacity of 79.11 GiB of which 1.00 GiB is free.\n",
    "an engine that did not start": "RuntimeError: Engine core initialization failed. See root cause above.\n",
    "a fatal signal": "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n",
    "no card": "RuntimeError: Failed to infer device type\n",
    "a folder that is not there": "OSError: Can't load the configuration of '/models/x'.\n",
    "a full disk": "OSError: [Errno 28] No space left on device\n",
}
# What no release serves with.
REFUSED = (
    "vllm", "serve", "   ", "vllm serve", "vllm serve x -tp 0", "vllm serve x -tp -3", "vllm serve x -tp 2.5",
    "vllm serve x -tp", "vllm serve x --gpu-memory-utilization nan", "vllm serve x --gpu-memory-utilization -1",
    "vllm serve x --gpu-memory-utilization 0", "vllm serve x --gpu-memory-utilization 90%",
    "vllm serve x --gpu-memory-utilization 1e999", "vllm serve x --gpu-memory-utilization 1.2",
    "vllm serve x --max-model-len 0", "vllm serve x --max-model-len \u20135",
    f"vllm serve x --max-model-len {'9' * 400}", f"vllm serve x -pp {'9' * 400}", f"vllm serve x -dp {'9' * 5000}",
    "vllm serve x --max-num-seqs 0", "vllm serve x \u2013\u2013max-model-len 5",
    "vllm serve x --max-num-batched-tokens many", "vllm serve x --dtype int3", "vllm serve x --no-such-option 1",
    "vllm serve x --port 70000", "vllm serve x --port -1", "vllm serve x --block-size 0",
    "vllm serve x --max-model-len=",
    "vllm serve x --hf-overrides {", "vllm serve x --speculative-config '['", "vllm serve x -O.mode nine",
    "vllm serve x --kv-cache-dtype fp2", "vllm serve x --chat-template-content-format json", "vllm serve x -q fp88",
    "vllm serve x --attention-backend FLASH_ATTN4", "vllm serve x -O9", "vllm serve x --optimization-level O2",
    "vllm serve x --max-logprobs -5", "vllm serve x --long-prefill-token-threshold -1", "vllm serve x --watermark 1",
    "vllm serve x --attention-config.backend NOPE", "vllm serve x -ac '{\"backend\": \"NOPE\"}'",
    "vllm serve x --structured-outputs-config.backend nope", "vllm serve x --eplb-config.window_size 0",
    "vllm serve x --attention-config.no_such_key 1", "vllm serve x --load-format nope",
    "vllm serve x --tokenizer-mode nope", "vllm serve x --enable-auto-tool-choice --tool-call-parser nope",
    "vllm serve x --reasoning-parser nope",
    "vllm serve x --cpu-offload-gb nan", "vllm serve x --swap-space -4", "vllm serve x --max-loras 0",
)  # fmt: skip
