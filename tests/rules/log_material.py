"""What the tests of a log's runs are made of: healthy runs of several releases, ends, failures before a start says
anything, lines that mean nothing, envelopes. The text is ours: templates of vLLM, uvicorn, torch and the shell."""

import json
import re
from collections.abc import Callable
from pathlib import Path


def _listed(name: str) -> list[str]:
    return Path(__file__).with_name("logs").joinpath(name).read_text(encoding="utf-8").splitlines()


CONFIG = "model='acme/chat-8b', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1"
STATS = (
    "Engine 000: Avg prompt throughput: 512.0 tokens/s, Avg generation throughput: 64.0 tokens/s, "
    "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 2.1%, Prefix cache hit rate: 0.0%"
)
GROUP_LEFT = (
    "[rank0]:[W102 10:09:00.100000000 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not "
    "called before program exit, which can leak resources."
)
LEAKED = [
    "/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: 1 leaked semaphore",
    "  warnings.warn('resource_tracker: There appear to be %d '",
]


def run_0_6() -> list[str]:
    """V0, no process signs its lines."""
    at = "INFO 01-02 10:00:"
    return [
        f"{at}00 api_server.py:459] vLLM API server version 0.6.3",
        f"{at}01 api_server.py:460] args: Namespace(host=None, port=8000, model='acme/chat-8b', max_model_len=8192)",
        f"{at}02 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: {CONFIG}",
        f"{at}05 model_runner.py:1056] Starting to load model acme/chat-8b...",
        f"{at}15 model_runner.py:1067] Loading model weights took 14.9888 GB",
        f"{at}25 gpu_executor.py:122] # GPU blocks: 7812, # CPU blocks: 2048",
        f"{at}45 model_runner.py:1523] Graph capturing finished in 18 secs.",
        "INFO:     Started server process [70811]",
        "INFO:     Waiting for application startup.",
        "INFO:     Application startup complete.",
        'INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    ]


def run_0_9() -> list[str]:
    """V1, no process signs its lines."""
    at = "INFO 01-02 10:00:"
    return [
        f"{at}00 [api_server.py:1395] vLLM API server version 0.9.2",
        f"{at}01 [cli_args.py:325] non-default args: {{'model': 'acme/chat-8b', 'max_model_len': 8192}}",
        f"{at}02 [core.py:70] Initializing a V1 LLM engine (v0.9.2) with config: {CONFIG}",
        f"{at}05 [gpu_model_runner.py:1770] Starting to load model acme/chat-8b...",
        f"{at}15 [gpu_model_runner.py:1801] Model loading took 14.9889 GiB and 9.1 seconds",
        f"{at}25 [gpu_worker.py:232] Available KV cache memory: 50.10 GiB",
        f"{at}25 [kv_cache_utils.py:716] GPU KV cache size: 410,000 tokens",
        f"{at}45 [core.py:172] init engine (profile, create kv cache, warmup model) took 29.20 seconds",
        "INFO:     Started server process [70811]",
        "INFO:     Application startup complete.",
        'INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        f"INFO 01-02 10:01:00 [loggers.py:118] {STATS}",
    ]


def run_signed(
    version: str = "0.19.1", core: str = "EngineCore", server: int = 70811, engine: int = 70902
) -> list[str]:
    """V1, each process signs its lines with its name and number."""
    api, eng = f"(APIServer pid={server}) ", f"({core} pid={engine}) "
    at = "INFO 01-02 10:00:"
    return [
        f"{api}{at}00 [api_server.py:1839] vLLM API server version {version}",
        f"{api}{at}01 [utils.py:233] non-default args: {{'model': 'acme/chat-8b', 'max_model_len': 8192}}",
        f"{eng}{at}02 [core.py:77] Initializing a V1 LLM engine (v{version}) with config: {CONFIG}",
        f"{eng}{at}05 [gpu_model_runner.py:2602] Starting to load model acme/chat-8b...",
        f"{eng}{at}15 [gpu_model_runner.py:2653] Model loading took 14.99 GiB and 4.200000 seconds",
        f"{eng}{at}25 [gpu_worker.py:298] Available KV cache memory: 50.10 GiB",
        f"{eng}{at}25 [kv_cache_utils.py:1087] GPU KV cache size: 410,000 tokens",
        f"{eng}{at}45 [core.py:210] init engine (profile, create kv cache, warmup model) took 31.20 seconds",
        f"{api}INFO:     Started server process [{server}]",
        f"{api}INFO:     Application startup complete.",
        f'{api}INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        f"{api}INFO 01-02 10:01:00 [loggers.py:236] {STATS}",
    ]


def end_0_6() -> list[str]:
    return [
        "INFO 01-02 10:09:00 launcher.py:57] Shutting down FastAPI HTTP server.",
        "INFO:     Shutting down",
        "INFO:     Waiting for application shutdown.",
        "INFO:     Application shutdown complete.",
        "INFO:     Finished server process [70811]",
        *LEAKED,
    ]


def end_0_9() -> list[str]:
    return [
        "INFO 01-02 10:09:00 [launcher.py:80] Shutting down FastAPI HTTP server.",
        GROUP_LEFT,
        "INFO:     Shutting down",
        "INFO:     Waiting for application shutdown.",
        "INFO:     Application shutdown complete.",
    ]


def end_signed(server: int = 70811, engine: int = 70902) -> list[str]:
    """An orderly stop with all its noise: the server misses the engine that was told to end."""
    api, eng = f"(APIServer pid={server}) ", f"(EngineCore pid={engine}) "
    failed = f"{api}ERROR 01-02 10:09:01 [async_llm.py:704] "
    return [
        f"{eng}INFO 01-02 10:09:00 [core.py:1214] [shutdown] EngineCore: trigger received signal=SIGTERM",
        f"{api}INFO 01-02 10:09:00 [launcher.py:100] [shutdown] API server: shutdown triggered",
        f"{eng}INFO 01-02 10:09:00 [core.py:1333] [shutdown] EngineCore: start mode=abort timeout=0s",
        f"{api}WARNING 01-02 10:09:01 [utils.py:626] [shutdown] Process manager: force killing count=1",
        f"{failed}AsyncLLM output_handler failed.",
        f"{failed}Traceback (most recent call last):",
        f'{failed}  File "/opt/v/vllm/v1/engine/core_client.py", line 1046, in get_output_async',
        f"{failed}    raise self._format_exception(outputs) from None",
        f"{failed}vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        f"{api}INFO:     Shutting down",
        f"{api}INFO:     Waiting for application shutdown.",
        f"{api}INFO:     Application shutdown complete.",
        *LEAKED,
    ]


def engine_failed(*, noted: bool) -> list[str]:
    """An exception that ends the engine at run time, with the engine's own word for it or with that line lost."""
    at = "(EngineCore pid=70902) ERROR 01-02 10:05:00 [core.py:1108] "
    return [
        *([f"{at}EngineCore encountered a fatal error."] if noted else []),
        f"{at}Traceback (most recent call last):",
        f'{at}  File "/opt/v/vllm/v1/engine/core.py", line 1100, in run_engine_core',
        f"{at}    engine_core.run_busy_loop()",
        f'{at}  File "/opt/v/vllm/v1/worker/gpu_model_runner.py", line 10, in execute_model',
        f"{at}    self._prepare(scheduled)",
        f"{at}RuntimeError: something peculiar",
    ]


def server_answers_on() -> list[str]:
    """Statistics and health checks come from the server's own process, whether its engine lives or not."""
    api = "(APIServer pid=70811) "
    idle = STATS.replace("512.0", "0.0").replace("64.0", "0.0")
    return [
        f"{api}INFO 01-02 10:05:05 [loggers.py:236] {STATS}",
        f'{api}INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 200 OK',
        f"{api}INFO 01-02 10:05:15 [loggers.py:236] {idle}",
        f'{api}INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
        f'{api}INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 200 OK',
    ]


# Runs that were healthy and came to an orderly end.
STOPPED: dict[str, list[str]] = {
    "0.6": [*run_0_6(), *end_0_6()],
    "0.9": [*run_0_9(), *end_0_9()],
    "0.11": [*run_signed("0.11.0", "EngineCore_DP0"), *(f"(APIServer pid=70811) {line}" for line in end_0_9())],
    "0.27": [*run_signed("0.27.1"), *end_signed()],
}
# The same, still serving where the text ends.
RUNNING: dict[str, list[str]] = {"0.9": run_0_9(), "0.27": run_signed("0.27.1")}

# What a start says that fails before vLLM says anything of itself, one line each.
EARLY = _listed("early-failures.txt")
# What healthy servers, their libraries and their surroundings say, one line of each kind; add what you meet.
BENIGN = _listed("benign-lines.txt")

# Line by line, as collectors and people hand a log on.
ENVELOPES: dict[str, Callable[[str], str]] = {
    "docker": lambda text: f"2026-01-02T10:00:00.123456789Z {text}",
    "docker-json": lambda text: json.dumps({"log": text + "\n", "stream": "stderr", "time": "2026-01-02T10:00:00.1Z"}),
    "compose": lambda text: f"vllm-1  | {text}",
    "kubectl": lambda text: f"[pod/chat-0/vllm] {text}",
    "cri": lambda text: f"2026-01-02T10:00:00.123456789Z stderr F {text}",
    "journald": lambda text: f"Jan 02 10:00:00 gpu01 vllm[70811]: {text}",
    "journald-iso": lambda text: f"2026-01-02T10:00:00+00:00 gpu01 vllm[70811]: {text}",
    "journald-json": lambda text: json.dumps({"MESSAGE": text, "_PID": "811"}),
    "buildkite": lambda text: f"[2026-01-02T10:00:00Z] {text}",
    "loki": lambda text: json.dumps({"message": text, "timestamp": "2026-01-02T10:00:00Z"}),
    "coloured": lambda text: re.sub(r"^(\(\w+ pid=\d+\))", "\x1b[1;36m\\1\x1b[0;0m", text),
}
