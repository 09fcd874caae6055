"""What a person sees: the answer and the change first, nothing that acts on the terminal."""

import statistics
import unicodedata

import msgspec
import pytest
from sample import ARGV, HOSTILE, diagnosis, finding

from tests.scenarios.loading import diagnosis as scenario_diagnosis
from tests.scenarios.loading import names
from vllm_doctor.records.finding import Arithmetic, Change, Evidence, Memory, Missing, Part
from vllm_doctor.records.verdict import Applicability, ChangeKind, Confidence, Direction, Verdict
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.redact.visible import visible
from vllm_doctor.render import human, sentences
from vllm_doctor.render.instructions import deed


def test_what_why_what_to_do_and_how_sure_are_within_ten_lines() -> None:
    shown = human.text(diagnosis(finding()), argv=ARGV, width=80)
    screen = "\n".join(shown.splitlines()[:10])
    for expected in (
        "FINDING  vllm.service on gpu7 does not start",
        "VD131 the KV cache cannot hold one request of 4096 tokens",
        "why   tokens that fit 2,048 tokens",
        "do    --max-model-len 2048   (was 4096; then max concurrency = 1)",
        "sure  confirmed; this finding is wrong if the log says that the engine started",
    ):
        assert expected in screen, shown
    assert max(map(len, shown.partition("On this host")[0].splitlines())) <= 80


def test_what_fails_while_it_serves_is_not_said_not_to_start() -> None:
    judged = msgspec.structs.replace(diagnosis(finding()), facts={"failed_while_serving": True})
    assert "vllm.service on gpu7 failed while it served" in human.text(judged, argv=ARGV, width=80)


def test_a_variable_to_set_is_not_called_by_hand() -> None:
    typed = Change(ChangeKind.ENV, "NCCL_P2P_DISABLE", None, "1", Direction.SET, Applicability.MANUAL)
    assert "do    NCCL_P2P_DISABLE=1\n" in human.text(diagnosis(finding(changes=(typed,))), argv=ARGV, width=80)


def test_what_is_missing_is_the_sum_in_one_line() -> None:
    sums = (
        Arithmetic("needed", 2.0, "GiB", "", "log"),
        Arithmetic("available", 1.5, "GiB", "", "log"),
        Arithmetic("missing", 0.5, "GiB", "2 − 1.5", "log"),
        Arithmetic("tokens that fit", 2048, "tokens", "", "log"),
    )
    assert (
        sentences.because(finding(arithmetic=sums)) == "needed 2 GiB, available 1.50 GiB: 2 − 1.5 = 0.50 GiB too little"
    )
    assert sentences.because(finding(arithmetic=())) == "ValueError: To serve at least one request"


@pytest.mark.parametrize(
    "head",
    [
        "2026-11-22T20:31:42+00:00 gpu7 vllm[1017]: ",
        "ERROR 11-22 20:31:42 engine.py:400] ",
        "(EngineCore pid=7) ERROR 11-22 20:31:42 [core.py:400] ",
        "(RayWorkerVllm pid=343836) ",
        "[rank0]: ",
        "2026-11-22 20:31:42,921 - INFO - vLLM: ERROR 11-22 20:31:42 async_llm_engine.py:616] ",
    ],
)
def test_what_stands_before_the_decisive_words_is_no_reason(head: str) -> None:
    said = finding(arithmetic=(), evidence=(Evidence("journal", "line 7", f"{head}not  one   GPU is left"),))
    assert sentences.because(said) == "not one GPU is left"


@pytest.mark.parametrize(
    "line",
    [
        '{"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404}}',
        "litellm.BadRequestError: Hosted_vllmException - This model's maximum context length is 8192 tokens.",
    ],
)
def test_an_answer_with_an_error_is_shown_as_the_user_has_it(line: str) -> None:
    """It is read in the words of another client, which stand nowhere in the text."""
    said = finding(arithmetic=(), evidence=(Evidence("a file", "line 1", line),))
    assert sentences.because(said) == line


def test_a_path_or_a_command_is_never_broken() -> None:
    long = "/srv/" + "deep/" * 40 + "file.py"
    told = finding(evidence=(Evidence("journal", "line 17", f"OSError: cannot read {long}"),))
    assert long in human.text(diagnosis(told), width=80)


def test_the_memory_is_drawn_with_who_holds_it() -> None:
    held = Memory("GPU 0", 80.0, (Part("others", 60.0), Part("free", 20.0)), Part("vLLM asks", 72.0))
    shown = human.text(msgspec.structs.replace(diagnosis(finding()), memory=held), width=82)
    assert "GPU 0, 80.00 GiB: vLLM asks 72.00" in shown
    assert f"  {'█' * 54}{'░' * 18}\n  █ others 60.00   ░ free 20.00\n" in shown


def test_a_change_for_hands_stands_beside_one_to_type() -> None:
    stop = Change(
        ChangeKind.OS, "other-gpu-processes", None, None, Direction.STOP, Applicability.MANUAL, command="nvidia-smi"
    )
    shown = human.text(diagnosis(finding(changes=(stop, *finding().changes))))
    assert (
        "do    stop the other programs that hold the GPU's memory   (by hand)\n      $ nvidia-smi\n"
        "or    --max-model-len 2048" in shown
    )


def test_nothing_invisible_reaches_the_terminal() -> None:
    """Whatever Unicode calls a control, a format character, a separator or half a pair is written out."""
    unseen = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
    assert [hex(ord(c)) for c in unseen if c in visible(c)] == []
    assert visible("a\U000e0041\u202e\x1b") == "a\\U000e0041\\u202e\\x1b"


def test_a_command_to_paste_has_the_units_name_as_one_word_of_the_shell() -> None:
    shown = human.text(diagnosis(finding(), unit="vllm@srv-m\\x2dx.service"), argv=ARGV, width=200)
    assert "systemctl restart 'vllm@srv-m\\x2dx.service'" in shown


def test_the_repair_on_this_host_stands_before_the_inventorys_line() -> None:
    shown = human.text(diagnosis(finding()), argv=ARGV)
    assert shown.index("zz-vllm-doctor.conf") < shown.index("vllm_max_model_len: 2048")


def test_who_has_no_such_host_reads_nothing_of_an_inventory() -> None:
    assert "nventory" not in human.text(diagnosis(finding(), unit=None), why=True)


def test_what_could_not_be_seen_is_said_with_the_remedy() -> None:
    assert "not seen: kernel log" in human.text(diagnosis(finding()))
    shown = human.text(diagnosis(finding()), why=True)
    assert "kernel log: no permission" in shown
    assert "-> sudo usermod -aG systemd-journal ops" in shown


def test_what_only_the_host_tells_is_one_line() -> None:
    missing = (
        Missing("unit", "not given", ""),
        Missing("probe", "not given", ""),
        Missing("log", "not given", "--log"),
    )
    shown = human.text(msgspec.structs.replace(diagnosis(finding()), unknown=missing), why=True)
    assert "systemd unit, the server's answer: visible only on the host itself" in shown
    assert "log: not given" in shown


def test_what_was_read_is_said_in_words() -> None:
    facts = {"vllm_version": "0.32.0", "kv_tokens": 65536.0, "bytes_skipped": 0, "complete_head": False, "model": None}
    shown = human.text(msgspec.structs.replace(diagnosis(verdict=Verdict.OK), facts=facts))
    assert "  vLLM 0.32.0 · KV cache 65536 tokens\n  the beginning of this run was not in what was read\n" in shown


def test_a_planned_change_says_what_it_leads_to() -> None:
    change = msgspec.structs.replace(
        finding().changes[0], predicted={"available_kv_gib": 5.31, "kv_tokens": 43488, "outcome": "ok"}
    )
    shown = human.text(diagnosis(finding(changes=(change,))), width=160)
    assert "then 5.31 GiB for the KV cache, 43,488 tokens in it; as planned, it starts" in shown


def test_consequences_are_listed_under_their_cause() -> None:
    shown = human.text(diagnosis(finding(), finding("VD901", title="engine dead", explained_by="VD131")), why=True)
    assert shown.index("Explains") < shown.index("VD901 engine dead")
    assert shown.count("vllm-doctor explain") == 1


def test_hostile_text_is_shown_and_does_nothing() -> None:
    hostile = finding(title=HOSTILE, evidence=(Evidence(HOSTILE, HOSTILE, HOSTILE),), refute=HOSTILE)
    for color in (False, True):
        shown = human.text(diagnosis(hostile, unit=HOSTILE), color=color, argv=(HOSTILE, HOSTILE))
        assert "\x1b]" not in shown
        assert "\x1b[2J" not in shown
        assert "\r" not in shown
        assert "\x00" not in shown
        assert "\u202e" not in shown
        assert "[bold]" in shown
        assert ":smile:" in shown
        assert "\\x1b" in shown


def test_without_color_there_is_no_escape_character() -> None:
    assert "\x1b" not in human.text(diagnosis(finding()), color=False)
    assert "\x1b" in human.text(diagnosis(finding()), color=True)


def test_a_secret_on_the_command_line_keeps_the_drop_in_from_being_printed() -> None:
    shown = human.text(diagnosis(finding()), argv=(*ARGV, "--api-key", "[hidden]"))
    assert "carries a secret" in shown
    assert "ExecStart=" not in shown


def test_a_change_without_an_inventory_variable_names_the_thing() -> None:
    reboot = Change(ChangeKind.HARDWARE, "host", None, None, Direction.SET, Applicability.MANUAL)
    assert deed(reboot) == "look at the host"
    gone = Change(ChangeKind.FLAG, "swap-space", "4", None, Direction.REMOVE, Applicability.SAFE)
    assert deed(gone) == "remove --swap-space"


def test_each_verdict_has_its_word() -> None:
    for verdict in Verdict:
        shown = human.text(msgspec.structs.replace(diagnosis(), verdict=verdict))
        assert shown.startswith(verdict.value.upper().replace("_", " "))


def test_a_direction_without_a_value_is_said_as_one() -> None:
    upwards = Change(ChangeKind.FLAG, "gpu-memory-utilization", None, None, Direction.RAISE, Applicability.NEEDS_REVIEW)
    assert deed(upwards) == "raise --gpu-memory-utilization"


def test_an_answer_fits_a_screen() -> None:
    """At 80 columns the change is on line 8 at the latest, and the whole on 25; where the name of the folder of the
    tests takes a line more, on some more."""
    heights, first = [], []
    for name in names():
        lines = human.text(scenario_diagnosis(name), width=80).splitlines()
        heights.append(len(lines))
        first += [at for at, line in enumerate(lines, 1) if line.startswith("do ")]
    assert (max(first) <= 8, statistics.median(first) <= 5) == (True, True)
    assert statistics.median(heights) <= 20
    assert max(heights) <= 30
    assert sum(height > 25 for height in heights) < len(heights) / 30


@pytest.mark.parametrize(
    ("detail", "line", "shown"),
    [
        ("rows are too many", "ValueError: rows are too many", ("", "ValueError: rows are too many")),
        ("Rows fail: rows", "rows", ("", "Rows fail: rows")),
        ("48 rows fit", "ValueError: rows are too many", ("48 rows fit", "ValueError: rows are too many")),
        ("the KV cache cannot hold it.", "ValueError: x", ("", "ValueError: x")),
        (HIDDEN, "ValueError: x", ("", "ValueError: x")),
    ],
)
def test_what_the_log_says_stands_once_below_the_title(detail: str, line: str, shown: tuple[str, str]) -> None:
    told = finding(
        title="the KV cache cannot hold it",
        detail=detail,
        arithmetic=(),
        evidence=(Evidence("log", "line 1", line, ""),),
    )
    assert sentences.detail_and_why(told) == shown


def test_a_fault_that_is_only_possible_is_no_verdict_on_vllm() -> None:
    head = human.text(diagnosis(finding(confidence=Confidence.POSSIBLE))).split("\n")[0]
    assert head == "FINDING  vllm.service on gpu7 may have this fault"


def test_gibibytes_are_read_with_two_digits() -> None:
    known = msgspec.structs.replace(diagnosis(verdict=Verdict.OK), facts={"weights_gib": 9.3795, "kv_tokens": 177440})
    assert "weights 9.38 GiB · KV cache 177440 tokens" in human.text(known)


def test_lines_to_paste_of_another_change_than_the_first_say_so() -> None:
    by_hand = Change(ChangeKind.OS, "ray-nodes", None, None, Direction.ADD, Applicability.MANUAL)
    typed = Change(ChangeKind.ENV, "NCCL_IB_DISABLE", None, "1", Direction.SET, Applicability.NEEDS_REVIEW)
    newer = Change(ChangeKind.PACKAGE, "vllm-version", None, "0.33.0", Direction.UPGRADE, Applicability.MANUAL)
    for changes, heading in (
        ((by_hand, typed), "Or: with the command that starts it\n  export NCCL_IB_DISABLE=1\n"),
        ((typed, by_hand), "\nWith the command that starts it\n  export NCCL_IB_DISABLE=1\n"),
        ((newer, typed), "\nIn the environment that starts it\n  pip install vllm==0.33.0"),
    ):
        told = msgspec.structs.replace(diagnosis(finding(changes=changes), unit=None), medium="command", launch=())
        assert heading in human.text(told)
