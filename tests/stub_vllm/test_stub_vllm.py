"""The stand-in does what its README says, as a process of its own with simulated cards."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.nvml_sim.build import build as build_nvml
from tests.roles.vllm.plugins import load
from tests.stub_vllm.build import stand_in

PROFILE = Path(__file__).parents[1] / "nvml_sim" / "profiles" / "h100x2.txt"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
SECONDS = 300  # for what takes half a second: another suite may have the processors


class Stub:
    """One server and its model."""

    def __init__(self, folder: Path, site: Path, nvml: Path) -> None:
        self.folder, self.faults = folder, folder / "faults.json"
        self.model = folder / "model"
        self.model.mkdir()
        self.write(CONFIG)
        index = {"metadata": {"total_size": 16060522496}}
        (self.model / "model.safetensors.index.json").write_text(json.dumps(index))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        known = {"LD_LIBRARY_PATH": str(nvml), "NVML_SIM": str(PROFILE), "STUB_VLLM": str(self.faults)}
        self.environment = {**os.environ, **known, "PYTHONPATH": str(site)}
        self.process: subprocess.Popen[str] | None = None

    def write(self, config: dict[str, object]) -> None:
        (self.model / "config.json").write_text(json.dumps(config))

    def misbehave(self, **words: object) -> None:
        self.faults.write_text(json.dumps(words))

    def command(self, *words: str) -> list[str]:
        serve = ["serve", str(self.model), "--host", "127.0.0.1", "--port", str(self.port), "--max-model-len", "8192"]
        return [sys.executable, "-m", "vllm.cli", *serve, *words]

    def start(self, *words: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            self.command(*words), env={**self.environment, **environment}, stdout=subprocess.PIPE, text=True
        )
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                assert self.ask("/health")[0] == 200
            except OSError:
                assert self.process.poll() is None, self.process.communicate()[0]
            else:
                return
        raise AssertionError("it did not start")

    def fail(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        return done.returncode, done.stdout + done.stderr

    def ask(self, path: str, body: dict[str, object] | None = None, key: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def asking(self, tokens: int) -> "subprocess.Popen[str]":
        """A client of its own whose request is in flight."""
        body = json.dumps({"prompt": "Hello", "max_tokens": tokens})
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        client = subprocess.Popen(
            ["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", url, "-d", body], stdout=subprocess.PIPE, text=True
        )
        while "num_requests_running{" not in (text := self.ask("/metrics")[1]) or _running(text) < 1:
            pass
        return client

    def end(self) -> tuple[int, str]:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        told, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, told


def _running(metrics: str) -> float:
    return float(
        next(line.split()[-1] for line in metrics.splitlines() if line.startswith("vllm:num_requests_running"))
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    ZipFile(stand_in(folder, "0.32.0+cu130")).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture
def stub(tmp_path: Path, installed: Path, nvml: Path) -> Iterator[Stub]:
    made = Stub(tmp_path, installed, nvml)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def test_the_key_guards_what_vllm_guards_and_nothing_else(stub: Stub) -> None:
    stub.start(VLLM_API_KEY="k")
    assert stub.ask("/v1/models")[0] == 401
    assert stub.ask("/v1/models", key="k")[0] == 200
    assert stub.ask("/invocations", {"prompt": "Hello", "max_tokens": 2})[0] == 200
    assert stub.end()[0] == 0


def test_the_roles_guard_is_a_middleware_that_it_takes(stub: Stub) -> None:
    guard = Path(__file__).parents[2] / "roles" / "vllm" / "files" / "guard"
    stub.environment["PYTHONPATH"] += f":{guard}"
    words = {"API_GUARD_OPEN": '["/health"]', "API_GUARD_METRICS_FROM": "[]", "VLLM_API_KEY": "k"}
    stub.start("--middleware", "api_guard.Guard", **words)
    assert stub.ask("/invocations", {"prompt": "Hello", "max_tokens": 2})[0] == 401
    assert stub.ask("/v1/completions", {"prompt": "Hello", "max_tokens": 2}, key="k")[0] == 200


def test_the_log_says_what_the_doctor_reads(stub: Stub) -> None:
    stub.start("--gpu-memory-utilization", "0.9")
    _, told = stub.end()
    assert "vLLM API server version 0.32.0" in told
    assert "Model loading took 14.96 GiB memory" in told
    assert "Available KV cache memory: 54.48 GiB" in told
    assert "GPU KV cache size: 446,256 tokens" in told


def test_what_does_not_fit_ends_in_vllms_own_words(stub: Stub) -> None:
    code, told = stub.fail("--max-model-len", "131072", "--gpu-memory-utilization", "0.3")
    assert code == 1
    assert "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory (6.69 GiB)" in told
    assert "Engine core initialization failed" in told


@pytest.mark.parametrize("words", [["--no-such-option"], ["--max-num-seqs", "many"], ["--kv-cache-dtype", "int3"]])
def test_an_argument_that_the_release_refuses_is_refused(stub: Stub, words: list[str]) -> None:
    assert stub.fail(*words)[0] == 2


def test_a_driver_that_does_not_answer_is_no_platform(stub: Stub) -> None:
    profile = stub.folder / "not-loaded.txt"
    profile.write_text("rc.nvmlInit_v2 = 9\n")
    stub.environment["NVML_SIM"] = str(profile)
    code, told = stub.fail()
    assert (code, "Failed to infer device type" in told) == (1, True)


def test_an_adapter_answers_by_its_name_and_must_be_readable(stub: Stub) -> None:
    adapter = stub.folder / "sql"
    words = ("--enable-lora", "--lora-modules", f"sql={adapter}")
    assert "adapter_config.json" in stub.fail(*words)[1]
    adapter.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (adapter / name).write_text("{}")
    stub.start(*words)
    assert stub.ask("/v1/completions", {"model": "sql", "prompt": "Hello", "max_tokens": 2})[0] == 200
    assert stub.ask("/v1/completions", {"model": "other", "prompt": "Hello", "max_tokens": 2})[0] == 404


def test_what_is_in_flight_is_finished_before_it_ends(stub: Stub) -> None:
    stub.misbehave(token_seconds=0.01)
    stub.start("--shutdown-timeout", "60")
    client = stub.asking(100)
    code, told = stub.end()
    assert (code, client.communicate()[0]) == (0, "200")
    assert "draining in-flight requests count=1 timeout=60s" in told


def test_without_a_time_to_shut_down_it_is_cut_off(stub: Stub) -> None:
    stub.misbehave(token_seconds=0.01)
    stub.start()
    client = stub.asking(100000 // 16)
    assert (stub.end()[0], client.communicate()[0]) == (0, "500")


def test_a_dead_engine_ends_the_server_with_0(stub: Stub) -> None:
    stub.start()
    stub.misbehave(die=True, token_seconds=1)
    assert stub.ask("/v1/completions", {"prompt": "Hello", "max_tokens": 9})[0] == 500
    assert stub.process is not None
    told, _ = stub.process.communicate(timeout=SECONDS)
    assert (stub.process.returncode, "died unexpectedly" in told) == (0, True)


@pytest.mark.parametrize(
    ("architecture", "route", "body"),
    [
        ("BertModel", "/v1/embeddings", {"input": ["a", "b"]}),
        ("BertForSequenceClassification", "/rerank", {"query": "a", "documents": ["b"]}),
    ],
)
def test_a_model_has_the_routes_of_its_task_only(stub: Stub, architecture: str, route: str, body: object) -> None:
    stub.write(CONFIG | {"architectures": [architecture]})
    stub.start()
    assert isinstance(body, dict)
    assert stub.ask(route, body)[0] == 200
    assert stub.ask("/v1/completions", {"prompt": "Hello"})[0] == 404
    assert route in json.loads(stub.ask("/openapi.json")[1])["paths"]


@pytest.mark.parametrize(
    ("config", "words", "route"),
    [
        (CONFIG, (), "/v1/completions"),
        ({**CONFIG, "architectures": ["BertModel"]}, (), "/v1/embeddings"),
        ({**CONFIG, "architectures": ["BertForSequenceClassification"]}, (), "/score"),
        ({**CONFIG, "architectures": ["BertForSequenceClassification"], "num_labels": 3}, (), "/classify"),
        ({**CONFIG, "architectures": ["WhisperForConditionalGeneration"]}, (), "/v1/audio/transcriptions"),
    ],
)
def test_a_model_of_each_task_is_ready_by_its_own_route(
    stub: Stub, config: dict[str, object], words: tuple[str, ...], route: str
) -> None:
    stub.write(config)
    stub.start("--served-model-name", "mine", *words)
    routes = load("plugins/module_utils/vllm_routes.py")
    assert routes.answers(f"http://127.0.0.1:{stub.port}", "", 30) == ("mine", route)
