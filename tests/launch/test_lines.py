"""One launch line, one verdict: what vLLM's own parser did with it, and `diagnose` and `plan` after it."""

import json
import shlex
from pathlib import Path

import pytest

from tests.plan.models import GPT_OSS_20B, LLAMA_8B
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.versions import Version, as_version
from vllm_doctor.launch.command import parse_command, parse_line
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.launch.parse import parse_launch

V = "0.32.0"
ROWS = [
    row.split("\t")
    for row in Path(__file__).with_name("lines.txt").read_text(encoding="utf-8").splitlines()
    if not row.startswith("#")
]
NOT_A_LAUNCH = ["vllm", "serve", "vllm serve", "vllm serve --max-model-len 5", "vllm chat x", "python x.py", "ls -l"]


@pytest.mark.parametrize(("does", "line"), ROWS)
def test_it_is_read_as_vllm_reads_it(does: str, line: str) -> None:
    read = parse_launch(shlex.split(line), as_version(V))
    assert read.model == "acme/chat"
    assert bool(read.refusals) is (does == "refuses"), read.refusals


@pytest.mark.parametrize(("does", "line"), [row for row in ROWS if row[0] == "accepts"])
@pytest.mark.parametrize("version", ["0.31.0", "0.33.0", None])
def test_what_one_release_accepts_its_neighbours_and_an_unknown_one_do_too(
    does: str, line: str, version: str | None
) -> None:
    assert does == "accepts"
    assert parse_launch(shlex.split(line), as_version(version) if version else None).refusals == ()


def verdicts(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What `diagnose` and `plan` say of a line: refused, unknown, or neither."""
    card = ["--gpu", "NVIDIA H100 80GB HBM3", "--gpus", "8", "--vllm-version", V]
    run(["diagnose", "--launch", line, *card, "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    codes = {f["code"] for f in told["findings"]}
    diagnosed = "refused" if codes & {"VD501", "VD502", "VD503"} else told["verdict"]
    config = tmp_path / "config.json"
    # Expert parallelism is refused for a model without experts.
    config.write_text(json.dumps(GPT_OSS_20B if " -ep" in line else LLAMA_8B))
    code = run(["plan", *card, "--model-config", str(config), "--format", "json", "--", *shlex.split(line)])
    said = capsys.readouterr()
    if code == Exit.USAGE:
        return diagnosed, "unknown" if "needed: vllm serve" in said.err else "refused"
    return diagnosed, "refused" if json.loads(said.out)["predicted"]["outcome"] == "rejected" else "ok"


@pytest.mark.parametrize(("does", "line"), ROWS)
def test_both_commands_say_the_same(does: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = "ok" if does == "accepts" else "refused"
    assert verdicts(line, tmp_path, capsys) == (wanted, wanted)


@pytest.mark.parametrize("line", NOT_A_LAUNCH)
def test_a_line_that_names_no_server_or_no_model_is_unknown_to_both(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdicts(line, tmp_path, capsys) == ("unknown", "unknown")


@pytest.mark.parametrize(
    "line",
    [
        "numactl -N 0 vllm serve acme/chat -tp 2",
        "env A=b C=d /opt/vllm/bin/vllm serve acme/chat --tensor-parallel-size=2",
        "docker run --gpus all -e HF_TOKEN image vllm serve acme/chat --tensor_parallel_size 2",
        "python3 -m vllm.entrypoints.openai.api_server --model acme/chat -tp 2",
        "/opt/vllm/bin/python /opt/vllm/bin/vllm serve acme/chat -tp 2",
        "vllm serve acme/chat \\\n  -tp 2",
    ],
)
def test_whatever_starts_it_only_vllm_s_own_words_are_read(line: str) -> None:
    launch = parse_line(line)
    assert (launch.model, launch.flags["tensor-parallel-size"]) == ("acme/chat", "2")


def test_variables_before_it_are_the_launch_s() -> None:
    assert parse_line("VLLM_USE_V1=0 vllm serve m").env == {"VLLM_USE_V1": "0"}


def test_another_quote_than_the_shell_s_is_taken_for_one() -> None:
    assert parse_line('vllm serve m --hf-overrides \u2018{"a": 1}\u2019').flags == {"hf-overrides": '{"a": 1}'}


def test_a_unit_that_starts_a_script_is_read_for_its_options() -> None:
    launch = parse_command(["/opt/start.sh", "--port", "8001"])
    assert (launch.model, launch.flags) == (None, {"port": "8001"})


def test_a_value_that_a_shell_would_have_set_is_not_judged() -> None:
    assert parse_launch(shlex.split("vllm serve m -tp '$RANKS' --port '[hidden]'"), Version((0, 32, 0))).refusals == ()


def test_no_word_of_a_secret_is_repeated() -> None:
    with pytest.raises(LaunchError) as raised:
        parse_line("curl -H 'Authorization: Bearer sk-abcdef' http://host")
    assert "sk-abcdef" not in str(raised.value)
