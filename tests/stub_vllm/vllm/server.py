"""The two processes of `vllm serve`: an API server that answers, and an engine that can die under it."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import inspect
import json
import os
import signal
import socket
import ssl
import sys
import time
from pathlib import Path

from vllm.api import Api
from vllm.asgi import Server
from vllm.cli import release
from vllm.log import Log
from vllm.memory import CannotStartError, cache, cards, config_of, gib, plan, weight_bytes

FAULTS = Path(os.environ.get("STUB_VLLM", "/etc/stub-vllm.json"))
WATCHDOG = 0.2  # seconds between looks at the engine; vLLM's own is 5


def faults() -> dict[str, object]:
    """How it was told to misbehave, read at each use."""
    try:
        return dict(json.loads(FAULTS.read_text()))
    except (OSError, ValueError):
        return {}


def serve(options) -> None:
    """Start as vLLM does, or fail as vLLM does."""
    api_log, engine_log = Log("APIServer"), Log("EngineCore")
    given = {name: number(value) for name, value in vars(options).items() if value is not None and name != "model_tag"}
    model = str(options.model_tag or options.model or "Qwen/Qwen3-0.6B")
    api_log.info("utils.py:299", f"vLLM API server version {release()}, serving model {model}")
    api_log.info("utils.py:233", f"non-default args: { ({'model_tag': model} | given) }")
    listening = bind(options, api_log)
    engine = os.fork()
    if engine == 0:
        engine_log.pid = os.getpid()
        run_engine(model, given, engine_log)
    engine_log.pid = engine
    os.close(READY[1])
    told = b""
    while part := os.read(READY[0], 65536):
        told += part
    if not told:
        os.waitpid(engine, 0)
        sys.stdout.write(TRACEBACK.format(pid=os.getpid()))
        sys.exit(1)
    api = Api(options, model, json.loads(told), faults, engine)
    asyncio.run(answer(options, api, listening, engine, (api_log, engine_log)))


READY = os.pipe()  # the engine's word that it has loaded, or the end of it
TRACEBACK = """(APIServer pid={pid}) Traceback (most recent call last):
(APIServer pid={pid})   File "/vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup
(APIServer pid={pid})     raise RuntimeError(
(APIServer pid={pid}) RuntimeError: Engine core initialization failed. See root cause above. \
Failed core proc(s): {{'EngineCore': 1}}
"""


def number(value: object) -> object:
    """Numbers as numbers; the table does not know every type."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


def bind(options, out: Log) -> socket.socket:
    """vLLM binds before it loads, and listens when it has loaded."""
    if options.uds:
        made = socket.socket(socket.AF_UNIX)
        made.bind(options.uds)
        return made
    host, port = options.host or "0.0.0.0", int(options.port or 8000)  # noqa: S104 (vLLM's default)
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        sys.exit(f"(APIServer pid={os.getpid()}) OSError: {error}")
    return made


def run_engine(model: str, given: dict[str, object], out: Log) -> None:
    """The engine's process: it loads, says so, and waits to be told to end. Never returns."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"VLLM::EngineCor", 0, 0, 0)  # PR_SET_NAME
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    os.close(READY[0])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        found = load(model, given, out)
    except CannotStartError as error:
        out.error("core.py:1510", "EngineCore failed to start.")
        out.error("core.py:1510", "Traceback (most recent call last):")
        out.error("core.py:1510", f'  File "/vllm/{error.place}", line 1, in start')
        out.error("core.py:1510", f"{error.kind}: {error.text}")
        os._exit(1)
    os.write(READY[1], json.dumps(found).encode())
    os.close(READY[1])
    while True:
        signal.pause()


def load(model: str, given: dict[str, object], out: Log) -> dict[str, object]:
    """What a start logs, with the sums of this host's cards; returns what the server must know of it."""
    wrong = faults()
    out.info(
        "core.py:133", f"Initializing a V1 LLM engine (v{release()}) with config: model='{model}', {settings(given)}"
    )
    if Path(__file__).with_name("cpu").exists():
        config = config_of(model)
        longest = int(given.get("max_model_len") or config.get("max_position_embeddings") or 2048)
        sums = cache(config, given, weights=weight_bytes(model), available=1 << 30, longest=longest, ranks=(1, 1))
    else:
        visible = cards()
        sums = plan(model, given, visible)
    out.info("gpu_model_runner.py:5040", f"Starting to load model {model}...")
    time.sleep(float(str(wrong.get("start_seconds", 0))))
    if wrong.get("start") == "oom":
        text = (
            "CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of "
            f"{gib(cards()[0].total)} GiB of which 311.00 MiB is free. Including non-PyTorch memory, this process has "
            f"{gib(cards()[0].total - (311 << 20))} GiB memory in use."
        )
        raise CannotStartError("torch.OutOfMemoryError", text, "model_executor/model_loader/default_loader.py")
    if wrong.get("start") == "exit":
        os._exit(1)
    out.info("default_loader.py:397", "Loading weights took 0.10 seconds")
    out.info("gpu_model_runner.py:5150", f"Model loading took {gib(sums.weights)} GiB memory and 0.100000 seconds")
    out.info("gpu_worker.py:759", f"Available KV cache memory: {gib(sums.available)} GiB")
    out.info(
        "kv_cache_utils.py:2327",
        f"GPU KV cache size: {sums.tokens:,} tokens, Maximum concurrency for {sums.longest:,} tokens per request: "
        f"{sums.tokens / sums.longest:.2f}x",
    )
    if not given.get("enforce_eager"):
        out.info("gpu_model_runner.py:6582", "Graph capturing finished in 0 secs, took 0.55 GiB")
    out.info("core.py:402", "init engine (profile, create kv cache, warmup model) took 0.10 s")
    return {"blocks": sums.blocks, "block_size": sums.block_size, "tokens": sums.tokens, "longest": sums.longest}


def settings(given: dict[str, object]) -> str:
    """The engine's configuration as far as the doctor reads it."""
    shown = {
        "max_seq_len": given.get("max_model_len"),
        "tensor_parallel_size": given.get("tensor_parallel_size") or 1,
        "pipeline_parallel_size": given.get("pipeline_parallel_size") or 1,
        "quantization": given.get("quantization"),
        "enforce_eager": bool(given.get("enforce_eager")),
        "kv_cache_dtype": given.get("kv_cache_dtype") or "auto",
    }
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def layered(options, api: Api):
    """The application inside the classes that --middleware names, the last one outermost."""
    application = api
    for name in options.middleware or []:
        module, _, attribute = name.rpartition(".")
        layer = getattr(importlib.import_module(module), attribute)
        if not inspect.isclass(layer):
            raise SystemExit(f"Invalid middleware {name}: this stand-in takes classes")
        application = layer(application)
    return application


async def listen(options, server: Server, listening: socket.socket, out: Log):
    """From here on clients are heard."""
    tls = None
    if options.ssl_certfile:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
    start = asyncio.start_unix_server if options.uds else asyncio.start_server
    where = options.uds or f"http{'s' if tls else ''}://{listening.getsockname()[0]}:{options.port or 8000}"
    out.info("api_server.py:600", f"Starting vLLM server on {where}")
    out.uvicorn(f"Started server process [{os.getpid()}]")
    out.uvicorn("Waiting for application startup.")
    return await start(server.connection, sock=listening, ssl=tls, limit=1 << 20)


async def answer(options, api: Api, listening: socket.socket, engine: int, logs: tuple[Log, Log]) -> None:
    """Listen and answer until SIGTERM or the engine's end."""
    out, engine_log = logs
    listener = await listen(options, Server(layered(options, api), out), listening, out)
    out.uvicorn("Application startup complete.")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not stop.is_set() and not api.dead:
        try:
            await asyncio.wait_for(stop.wait(), WATCHDOG)
        except TimeoutError:
            api.dead = os.waitpid(engine, os.WNOHANG)[0] == engine
    if api.dead:
        out.error("core_client.py:817", "Engine core proc EngineCore died unexpectedly, shutting down client.")
        await asyncio.sleep(WATCHDOG)
    else:
        await drain(options, api, out, engine_log)
        os.kill(engine, signal.SIGKILL)
        os.waitpid(engine, 0)
    out.info("launcher.py:282", "[shutdown] API server: shutting down FastAPI HTTP server")
    listener.close()
    out.uvicorn("Shutting down")
    out.uvicorn("Application shutdown complete.")
    out.uvicorn(f"Finished server process [{os.getpid()}]")
    sys.stdout.flush()
    os._exit(0)


async def drain(options, api: Api, out: Log, engine_log: Log) -> None:
    """What is in flight is finished within --shutdown-timeout, or aborted at once where that is 0."""
    seconds = int(options.shutdown_timeout or 0)
    mode = "drain" if seconds else "abort"
    out.info("launcher.py:258", "[shutdown] API server: shutdown triggered")
    out.info("launcher.py:270", f"[shutdown] API server: stopping engine client mode={mode} timeout={seconds}s")
    engine_log.info("core.py:1635", f"[shutdown] EngineCore: start mode={mode} timeout={seconds}s")
    api.closing = True
    if api.running + api.waiting:
        verb = "draining" if seconds else "aborting"
        count = api.running + api.waiting
        engine_log.info(
            "core.py:1655", f"[shutdown] EngineCore: {verb} in-flight requests count={count} timeout={seconds}s"
        )
    end = time.monotonic() + seconds
    while api.running + api.waiting and time.monotonic() < end:
        await asyncio.sleep(0.01)
    api.aborting = True
    await asyncio.sleep(0.05)
    engine_log.info("core.py:1668", "[shutdown] EngineCore: request processing complete; starting resource teardown")
    out.info("launcher.py:276", "[shutdown] API server: engine client stopped")
