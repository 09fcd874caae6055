"""What the command line names and what is wrong with it: every option that takes a file × every way to be no evidence.

A finding in the rest of the evidence is still shown (1); otherwise a name that is empty or of no file is a usage error
(2), and a file that could not be read or understood makes the answer incomplete (3). Never 0, never this host instead.
"""

import inspect
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_diagnose import HEALTHY, TOO_SMALL
from tests.idle_host import no_processes
from tests.plan.models import LLAMA_8B
from vllm_doctor.cli import (
    bundle,
    debug,
    diagnose,
    explain,
    export,
    fleet,
    fragmentation,
    guard,
    history,
    plan,
    recover,
    report,
    tune,
    watch,
)
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import bounded, procfs


@pytest.fixture(autouse=True)
def idle_host(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No vLLM of this machine, such as one of another test's host, is judged with what is named."""
    monkeypatch.setattr(procfs, "PROC", no_processes(tmp_path_factory.mktemp("host") / "proc"))


FILES = {
    "diagnose": {"--log", "--kernel-log", "--metrics", "--nvidia-smi", "--model-config", "--from"},
    "fragmentation": {"--metrics"},
    "guard": {"--policy"},
    "plan": {"--model-config", "--draft-config", "--metrics", "--learn", "--prices"},
    "report": {"--http-config"},
}
# Options whose text names no file that is read.
OTHERS = {
    "diagnose": {
        "--launch",
        "--vllm-version",
        "--gpu",
        "--unit",
        "--output",
        "--notify",
    },
    "fragmentation": {"--unit", "--vllm-version"},
    "plan": {
        "--gpu", "--gpu-memory-gib", "--host-memory-gib", "--vllm-version", "--weights-gib", "--available-kv-gib",
        "--profile", "--sweep",
        "--unit", "--upgrade", "--goal", "--speed", "--context",
    },
    "bundle": {"--output", "--unit"},
    "tune": {"--unit"},
    "guard": {"--store"},
    "recover": {"--unit"},
    "history": {"--unit", "--since"},
    "watch": {"--unit", "--url"},
    "fleet": {"--output"},
    "report": {"--since", "--unit", "--prometheus", "--vllm-version", "--output"},
    "export": {"--vllm-version", "--number", "--without", "--job"},
    "debug": {"--unit", "--for"},
    "explain": {"--vllm-version"},
    "flowchart": set(),
}  # fmt: skip
COMMANDS: dict[str, Callable[..., Any]] = {
    "diagnose": diagnose.diagnose,
    "fragmentation": fragmentation.fragmentation,
    "plan": plan.plan,
    "bundle": bundle.bundle,
    "tune": tune.tune,
    "guard": guard.guard,
    "recover": recover.recover,
    "history": history.history,
    "watch": watch.watch,
    "export": export.export,
    "fleet": fleet.fleet,
    "report": report.report,
    "debug": debug.debug,
    "explain": explain.explain,
    "flowchart": explain.flowchart,
}
BESIDE = {option for option in FILES["diagnose"] if option != "--from"}


def texts(command: str) -> Iterator[str]:
    """The options of a command that take text."""
    for parameter in inspect.signature(COMMANDS[command], eval_str=True).parameters.values():
        option = parameter.annotation.__metadata__[0]
        if "str" not in str(parameter.annotation.__origin__) or type(option).__name__ == "ArgumentInfo":
            continue
        written = [n for n in (option.default, *(option.param_decls or ())) if isinstance(n, str)]
        yield next((n for n in written if n.startswith("--")), "--" + parameter.name.rstrip("_").replace("_", "-"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_known_here_as_a_file_or_as_none(command: str) -> None:
    assert set(texts(command)) == FILES.get(command, set()) | OTHERS[command]


def missing(at: Path) -> str:
    return str(at / "no-such-file")


def folder(at: Path) -> str:
    return str(at)


def empty(at: Path) -> str:
    (at / "empty").touch()
    return str(at / "empty")


def binary(at: Path) -> str:
    (at / "binary").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40)
    return str(at / "binary")


def unreadable(_: Path) -> str:
    return "/proc/self/mem"  # it opens, and to read it is an error, for root too


def pipe(at: Path) -> str:
    os.mkfifo(at / "pipe")  # nobody writes into it
    return str(at / "pipe")


KINDS = (missing, folder, empty, binary, unreadable, pipe)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "WRITER_S", 0.1)
    monkeypatch.setattr(bounded, "TOLD_S", 0.05)


def line(command: str, option: str, value: str, tmp_path: Path) -> list[str]:
    """A question that would be answered without this option."""
    config = tmp_path / "good.json"
    config.write_text(json.dumps(LLAMA_8B))
    if command == "report":
        return [command, "--prometheus", "http://127.0.0.1:9", option, value]
    if command != "plan":
        return [command, option, value]
    given = ["--gpu", "NVIDIA H100 80GB HBM3", "--vllm-version", "0.32.0", option, value]
    if option == "--prices":
        given += ["--goal", "context=8k"]
    if option != "--model-config":
        given += ["--model-config", str(config)]
    return ["plan", *given, "--", "vllm", "serve", "m"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("command", "option"), [(c, o) for c, options in FILES.items() for o in sorted(options)])
def test_what_is_no_evidence_is_never_in_order(
    command: str, option: str, kind: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = kind(tmp_path)
    code = run(line(command, option, name, tmp_path))
    said = capsys.readouterr()
    assert code in ({Exit.USAGE} if kind is missing else {Exit.USAGE, Exit.INCOMPLETE}), said
    assert Path(name).name in said.out + said.err


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("option", sorted(BESIDE))
def test_beside_a_log_in_order_it_is_not_in_order_either(
    option: str, kind: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(HEALTHY)
    name = kind(tmp_path)
    code = run(["diagnose", "--log", str(tmp_path / "log"), option, name, "--format", "json"])
    said = capsys.readouterr()
    if kind is missing:
        assert (code, said.out) == (Exit.USAGE, "")
        assert f"{option} {name}: no such file" in said.err
        return
    told = json.loads(said.out)
    assert (code, told["verdict"]) == (Exit.INCOMPLETE, "unknown")
    assert any(Path(name).name in row["reason"] for row in told["unknown"])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("option", sorted(BESIDE))
def test_a_finding_in_the_rest_is_shown_all_the_same(
    option: str, kind: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(TOO_SMALL)
    code = run(["diagnose", "--log", str(tmp_path / "log"), option, kind(tmp_path), "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["findings"][0]["code"]) == (Exit.FINDINGS, "VD121")
    assert told["unknown"]


@pytest.mark.parametrize("value", ["", "   "])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_value_is_refused_by_its_option_s_name(
    command: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in texts(command):
        assert run([command, f"{option}={value}"]) == Exit.USAGE
        assert f"{option}: its value is empty" in capsys.readouterr().err
        assert run([command, option, value]) == Exit.USAGE
        assert f"{option}: its value is empty" in capsys.readouterr().err


def test_a_launch_may_hold_empty_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = line("plan", "--profile", "balanced", tmp_path)
    assert run([*words, "--chat-template", ""]) in {Exit.OK, Exit.FINDINGS}
    assert "its value is empty" not in capsys.readouterr().err
