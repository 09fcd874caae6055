"""What a start logged is kept once, found again however the launch is spelled, and used by the next plan."""

import json

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.cli import plan_host
from vllm_doctor.cli.main import run
from vllm_doctor.cli.plan_learn import tell_history
from vllm_doctor.operate.history import deeds
from vllm_doctor.plan.question.logged_starts import Difference

LOG = """\
INFO 04-22 [gpu_model_runner.py:1] Model loading took 15.50 GiB memory and 9 s
DEBUG 04-22 [gpu_worker.py:1] 14.9 GiB for weight, 2.00 GiB for peak activation, 0.30 GiB for non-torch memory
INFO 04-22 [gpu_worker.py:2] Available KV cache memory: 52.00 GiB
INFO 04-22 [gpu_model_runner.py:2] Graph capturing finished in 9 secs, took 1.10 GiB
"""


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """Plan a launch of one model on one card, on a host whose records lie in a folder of the test."""
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    config, log = tmp_path / "config.json", tmp_path / "start.log"
    config.write_text(json.dumps(LLAMA_8B))
    log.write_text(LOG)

    def plan(*flags, learn=None, gpu="H100", version="0.19.0"):
        words = ["--vllm-version", version, "--gpu", gpu, "--gpus", "2", "--model-config", str(config)]
        words += ["--learn", str(log) if learn == "log" else learn] if learn else []
        code = run(["plan", "--format", "json", *words, "--", "vllm", "serve", "m", *flags])
        told = capsys.readouterr()
        return code, json.loads(told.out) if told.out else told.err

    return plan


def test_the_difference_is_told_and_a_second_look_is_no_news(ask):
    code, told = ask(learn="log")
    assert (code, told["changed"]) == (0, True)
    assert {d["term"]: d["logged_gib"] for d in told["compared"]}["KV cache"] == 52.0
    assert ask(learn="log")[1]["changed"] is False


def test_the_next_plan_uses_the_logged_terms(ask):
    ask(learn="log")
    _, told = ask()
    p = told["predicted"]
    assert (p["weights_gib"], p["activation_gib"], p["non_torch_gib"], p["cudagraph_gib"]) == (15.5, 2.0, 0.3, 1.1)
    assert any("earlier start" in note for note in told["notes"])


@pytest.mark.parametrize(
    "flags",
    [
        ("--port", "9000", "--served-model-name", "x"),  # nothing of memory
        ("--max_num_seqs=1024", "--max-num-batched-tokens", "8192"),  # the defaults, spelled out
        ("--gpu-memory-utilization", "0.8"),  # sizes the pool, not the terms
    ],
)
def test_a_launch_is_known_again_however_it_is_spelled(ask, flags):
    ask(learn="log")
    assert ask(*flags)[1]["predicted"]["activation_gib"] == 2.0


def test_other_settings_get_the_weights_alone(ask):
    ask(learn="log")
    p = ask("--max-num-seqs", "64")[1]["predicted"]
    assert p["weights_gib"] == 15.5
    assert p["activation_gib"] != 2.0


@pytest.mark.parametrize("other", [{"gpu": "L4"}, {"version": "0.25.1"}])
def test_another_card_or_release_is_not_what_was_measured(ask, other):
    ask(learn="log")
    assert ask(**other)[1]["predicted"]["weights_gib"] != 15.5


def test_two_cards_are_not_one(ask):
    ask(learn="log")
    assert ask("--tensor-parallel-size", "2")[1]["predicted"]["weights_gib"] < 8


def test_a_start_of_the_cpu_build_has_nothing_to_compare(ask, monkeypatch):
    monkeypatch.setattr(plan_host, "start_log", lambda _unit: (True, ["Available KV cache memory: 1.0 GiB"]))
    code, told = ask(learn="journal")
    assert (code, told["verdict"], told["changed"]) == (0, "not_applicable", False)


def test_the_journal_of_the_unit_teaches_too(ask, monkeypatch):
    monkeypatch.setattr(plan_host, "start_log", lambda _unit: (False, LOG.splitlines()))
    assert ask(learn="journal")[1]["changed"] is True
    assert deeds.events() == []  # of no unit that is named


def test_history_shows_what_a_units_start_took_beside_its_plan(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    tell_history("vllm@main", [Difference("weights", 15.0, 15.5), Difference("KV cache", 53.25, 52.0)])
    (event,) = deeds.events()
    assert (event.unit, event.kind) == ("vllm@main.service", "plan")
    tell_history("vllm@qwen2.5", [Difference("weights", 1.0, 1.0)])
    assert deeds.events()[1].unit == "vllm@qwen2.5.service"
    assert event.text == "weights 15.00 planned, 15.50 logged; KV cache 53.25 planned, 52.00 logged (GiB)"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema_version": 2, "starts": 7}', '{"schema_version": 2, "starts": {"a": {"family": []}}}'],
)
def test_damaged_records_are_no_records(ask, tmp_path, text):
    state = tmp_path / "state"
    state.mkdir()
    (state / "starts.json").write_text(text)
    assert ask()[0] == 0
    assert ask(learn="log")[1]["changed"] is True


def test_what_a_quiet_log_leaves_out_follows_from_the_pool(ask, tmp_path):
    (tmp_path / "start.log").write_text("Model loading took 15.00 GiB\nAvailable KV cache memory: 51.00 GiB\n")
    ask(learn="log")
    assert ask()[1]["predicted"]["available_kv_gib"] == 51.0
    assert ask("--gpu-memory-utilization", "0.8")[1]["predicted"]["available_kv_gib"] == pytest.approx(43.08, abs=0.01)


def test_what_is_recommended_stays_while_it_is_safe(ask, tmp_path):
    before = ask()[1]["recommended"]["launch"]
    flags = [w for k, v in before.items() for w in ((f"--{k}",) if v is True else (f"--{k}", str(v)))]
    (tmp_path / "start.log").write_text("Model loading took 15.10 GiB\nAvailable KV cache memory: 51.20 GiB\n")
    ask(*flags, learn="log")
    assert ask()[1]["recommended"]["launch"] == before


def test_what_turns_out_not_to_be_safe_is_chosen_anew(ask, tmp_path):
    before = ask("--max-model-len", "auto")[1]["recommended"]["launch"]
    (tmp_path / "start.log").write_text("Model loading took 60.00 GiB\n")
    ask("--max-num-seqs", "8", learn="log")
    after = ask("--max-model-len", "auto")[1]["recommended"]["launch"]
    assert after != before
