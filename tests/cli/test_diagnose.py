"""`vllm-doctor diagnose` on files, as a process: exit codes, formats, usage errors; its short way and the long one."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plan.models import LLAMA_8B
from tests.scenarios.loading import snapshot
from vllm_doctor.cli import diagnose, quick
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather.bundle import write_bundle

HEALTHY = (
    "(APIServer pid=1) INFO 05-21 10:11:12 [api_server.py:1] vLLM API server version 0.11.0\n"
    "(EngineCore pid=2) INFO 05-21 10:11:13 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n"
    "(APIServer pid=1) INFO:     Application startup complete.\n"
)
TOO_SMALL = HEALTHY.rpartition("(APIServer pid=1) INFO:")[0] + (
    "(EngineCore pid=2) ERROR 05-21 10:11:14 [core.py:1] ValueError: To serve at least one request "
    "with the models's max seq "
    "len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory "
    "(5.31 GiB). Based on the "
    "available memory, the estimated maximum model length is 43472.\n"
)


def vllm_doctor(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_doctor.cli.main"]
    entry = f"import sys; from vllm_doctor.cli.main import run; sys.exit(run({list(words)!r}))"
    return subprocess.run(
        [command[0], "-c", entry], input=stdin, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(
    ("log", "words", "code"),
    [
        (HEALTHY, (), Exit.OK),
        (TOO_SMALL, (), Exit.FINDINGS),
        (TOO_SMALL, ("--fail-on", "blocks-start"), Exit.FINDINGS),
        ("nothing of ours\n", (), Exit.INCOMPLETE),
        ("", (), Exit.INCOMPLETE),
        (HEALTHY, ("--format", "yaml"), Exit.USAGE),
        (HEALTHY, ("--fail-on", "catastrophe"), Exit.USAGE),
        (HEALTHY, ("--launch", "vllm serve 'unclosed"), Exit.USAGE),
        (HEALTHY, ("--log", "-"), Exit.USAGE),
        (HEALTHY, ("--unit", "vllm@chat"), Exit.USAGE),
        (HEALTHY, ("--no-such-option",), Exit.USAGE),
        (HEALTHY, ("--gpus", "many"), Exit.USAGE),
        (HEALTHY, ("--gpu-memory-gib", "nan"), Exit.USAGE),
        (HEALTHY, ("--gpu-memory-gib", "inf"), Exit.USAGE),
        (HEALTHY, ("--gpu-memory-gib", "-1"), Exit.USAGE),
        (HEALTHY, ("--gpu-memory-gib", "81559"), Exit.USAGE),
        (HEALTHY, ("--help",), Exit.OK),
    ],
)
def test_exit_codes(log: str, words: tuple[str, ...], code: Exit) -> None:
    done = vllm_doctor("diagnose", "--log", "-", *words, stdin=log)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_milder_finding_than_asked_for_is_no_failure() -> None:
    calm = TOO_SMALL.replace("ValueError", "Nothing")
    assert vllm_doctor("diagnose", "--log", "-", "--fail-on", "blocks-start", stdin=calm).returncode != Exit.INTERNAL


def test_json_names_cause_phase_and_change() -> None:
    answer = json.loads(vllm_doctor("diagnose", "--log", "-", "--format", "json", stdin=TOO_SMALL).stdout)
    (finding,) = answer["findings"]
    assert (answer["verdict"], answer["phase"], finding["code"]) == ("finding", "startup-kv-cache", "VD121")
    assert finding["cause"] == "kv-cache-too-small-for-max-model-len"
    change = finding["changes"][0]
    assert (change["name"], change["to"], change["direction"]) == ("max-model-len", 43472, "lower")
    assert answer["path"]
    assert {m["signal"] for m in answer["unknown"]} >= {"kernel", "metrics"}


@pytest.mark.parametrize("output", ["human", "html"])
def test_other_formats_say_the_same(output: str) -> None:
    done = vllm_doctor("diagnose", "--log", "-", "--format", output, stdin=TOO_SMALL)
    assert "VD121" in done.stdout
    assert "43472" in done.stdout.replace(",", "")


def test_hostile_text_is_neither_run_nor_printed_raw(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    log = TOO_SMALL.replace("model='m'", f"model='$(touch {marker})\x1b]0;owned\x07\x1b[2J'")
    done = vllm_doctor("diagnose", "--log", "-", stdin=log)
    assert not marker.exists()
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


def test_the_short_way_knows_no_option_that_the_long_one_has_not() -> None:
    declared = set()
    for parameter in inspect.signature(diagnose.diagnose).parameters.values():
        option = parameter.annotation.__metadata__[0]
        written = [n for n in (option.default, *(option.param_decls or ())) if isinstance(n, str) and n.startswith("-")]
        written = [one for name in written for one in name.split("/")]  # --on/--no-on
        declared.update(written or ["--" + parameter.name.replace("_", "-")])
    assert set(quick.OPTIONS) <= declared


@pytest.mark.parametrize("words", [["--log"], ["--gpus", "x"], ["--nope"], ["--help"], ["--gpu-memory-gib", "-1"]])
def test_the_short_way_leaves_what_is_not_plain_to_the_long_one(words: list[str]) -> None:
    assert quick.diagnose(words) is None


def test_the_same_answer_by_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text(TOO_SMALL)
    run(["diagnose", "--log", str(path), "--format", "json"])
    short = capsys.readouterr().out
    run(
        [
            "diagnose",
            "--format",
            "json",
            "--log",
            str(path),
            "--fail-on",
            "advice",
            "--gpus",
            "1",
            "--gpu-memory-gib",
            "0",
        ]
    )
    assert json.loads(short)["findings"] == json.loads(capsys.readouterr().out)["findings"]


def test_what_a_bundle_does_not_tell_may_be_said_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, config = tmp_path / "b.tar.gz", tmp_path / "config.json"
    write_bundle([snapshot("vd121-kv-small-fires-0331")], kept)
    config.write_text(json.dumps(LLAMA_8B))
    words = ["diagnose", "--format", "json", "--from", str(kept), "--gpu", "NVIDIA H100 80GB HBM3"]
    run(words)
    (bare,) = json.loads(capsys.readouterr().out)["findings"]
    run([*words, "--model-config", str(tmp_path)])
    (told,) = json.loads(capsys.readouterr().out)["findings"]
    assert "outcome" not in bare["changes"][0]["predicted"]
    assert told["changes"][0]["predicted"]["outcome"] == "ok"


def test_files_beside_a_bundle_are_judged_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, log, kernel = tmp_path / "b.tar.gz", tmp_path / "log", tmp_path / "kern.log"
    write_bundle([snapshot("vd121-kv-small-fires-0331")], kept)
    log.write_text(HEALTHY)
    kernel.write_text("[  1.500000] NVRM: Xid (PCI:0000:17:00): 79, pid=7, GPU has fallen off the bus.\n")
    told = []
    for words in ([], ["--log", str(log)], ["--kernel-log", str(kernel)]):
        run(["diagnose", "--format", "json", "--from", str(kept), *words])
        told.append([f["code"] for f in json.loads(capsys.readouterr().out)["findings"]])
    assert told[0] == ["VD121"]
    assert told[1] == []
    assert told[2][0] == "VD704"


def test_a_log_beside_a_bundle_of_two_units_belongs_to_neither(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, log = tmp_path / "b.tar.gz", tmp_path / "log"
    write_bundle([snapshot("vd121-kv-small-fires-0331")] * 2, kept)
    log.write_text(HEALTHY)
    assert run(["diagnose", "--from", str(kept), "--log", str(log)]) == Exit.USAGE
    assert "holds 2 units" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", "{}", "not json", "[" * 5000, '{"hidden_size": 1e999}'])
def test_a_model_configuration_that_is_none_is_unknown_and_hides_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    log, config = tmp_path / "log", tmp_path / "config.json"
    log.write_text(TOO_SMALL)
    config.write_text(content)
    code = run(["diagnose", "--format", "json", "--log", str(log), "--model-config", str(config)])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["findings"][0]["code"]) == (Exit.FINDINGS, "VD121")
    assert content.startswith('{"') or "model_config" in [m["signal"] for m in told["unknown"]]
