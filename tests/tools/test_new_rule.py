"""CONTRIBUTING's worked example of a rule, played word by word in a copy of the checkout (tools/new_rule.py)."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import new_rule
import pytest

from vllm_doctor.rules.order import by_code

REPO = Path(__file__).resolve().parents[2]
EXAMPLE = re.search(
    r"tools/new_rule\.py (launch .*?)\n\.venv", (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
)
CATALOGUE = "vllm_doctor/log/catalogue/launch.json"
TESTED = (
    "tests/meta/test_registry.py",
    "tests/scenarios",
    "tests/log/test_catalogue.py",
    "tests/rules/test_wordings.py",
)


def words() -> list[str]:
    assert EXAMPLE is not None
    return shlex.split(EXAMPLE[1].replace("\\\n", " "))


def code(checkout: Path, name: str = "kv-scales-missing") -> str:
    """The code that the example was given."""
    order = (checkout / "vllm_doctor/rules/ORDER.md").read_text(encoding="utf-8")
    return f"VD{order.partition(f'| {name} ')[0].rpartition('| VD')[2].strip()}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the tool reads, and the folders that it writes to."""
    for name in ("vllm_doctor/rules/ORDER.md", "vllm_doctor/rules/by_message.toml", CATALOGUE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    for folder in ("vllm_doctor/rules/launch", "tests/scenarios"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def whole_checkout(tmp_path: Path) -> Path:
    """What the example touches, and what its tests import; no other rule's scenarios and answers, which none asks."""
    needless = ("releases", "site", "gpu", "fuzz", "stub_*", "hostile", "approved", "VD*.yaml")
    for name in ("vllm_doctor", "tests"):
        shutil.copytree(REPO / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", *needless))
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    return tmp_path


def played(folder: Path, tests: Sequence[str], asked: str) -> str:
    """What pytest says of these tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *tests, "-k", asked]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False).stdout


def test_the_worked_example_is_a_rule_once_its_page_is_written(whole_checkout: Path) -> None:
    """Beside it a rule of a server that serves: what pytest reads before its first test is read once for both."""
    assert new_rule.main(words(), whole_checkout) == 0
    serving = [word.replace("KV cache scales", "Rotary scales") for word in words()]
    serving[serving.index("kv-scales-missing")] = "rotary-scales-missing"
    assert new_rule.main([*serving, "--serving"], whole_checkout) == 0
    rules = {name: code(whole_checkout, name) for name in ("kv-scales-missing", "rotary-scales-missing")}
    asked = " or ".join((*rules, *rules.values()))
    red = played(whole_checkout, TESTED[:1], asked)
    assert "2 failed" in red, red
    assert len(re.findall(r"^E .*tools/new_rule\.py asks for words of yours", red, re.MULTILINE)) == 2
    for name, its in rules.items():
        page = whole_checkout / f"vllm_doctor/rules/launch/{its.lower()}_{name.replace('-', '_')}.md"
        page.write_text(page.read_text(encoding="utf-8").replace("WRITE: ", ""), encoding="utf-8")
    green = played(whole_checkout, TESTED, asked)
    told = re.findall(r"^(PASSED|FAILED|ERROR) .*\[(.*)\]", green, re.MULTILINE)
    assert {how for how, _ in told} == {"PASSED"}, green
    for name, its in rules.items():
        own = [one for _, one in told if name in one or one == its]
        assert len(own) >= 20, "its row, its page, its three scenarios, what it reads, its message"


def test_the_order_stays_a_table_and_the_row_stands_where_it_was_asked_for(checkout: Path) -> None:
    assert new_rule.main(words(), checkout) == 0
    lines = (checkout / "vllm_doctor/rules/ORDER.md").read_text(encoding="utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {code(checkout)} "))
    assert lines[at + 1].startswith("| VD599 ")
    assert int(code(checkout)[2:]) == max(int(c[2:]) for c in by_code() if "VD500" < c < "VD599") + 1
    assert len({tuple(i for i, c in enumerate(line) if c == "|") for line in lines[at - 3 : at + 3]}) == 1


def test_a_value_of_the_message_is_a_field_that_answers_name() -> None:
    line = "RuntimeError: Rotary cache of layer 4 has 8192 rows, but position 16384 of request r-8192 was asked"
    row = new_rule.regex(line, "Rotary cache of layer", {"rows": "8192", "asked": "16384"})
    assert row == r"Rotary cache of layer \d{1,24} has (?P<rows>\d{1,24}) rows, but position (?P<asked>\d{1,24})"
    found = re.search(row, line.replace("8192", "4096"))
    assert found is not None
    assert found.groupdict() == {"rows": "4096", "asked": "16384"}


def test_a_value_that_the_message_lacks_is_no_field() -> None:
    asked = new_rule.arguments().parse_args([*words(), "--field", "rows=8192"])
    with pytest.raises(new_rule.RefusalError, match="a value that stands in --message after --anchor"):
        new_rule.fields_of(asked)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("launch", "VD599", "was given to a rule already"),
        ("launch", "VD52", "is no family and no code"),
        ("kv-scales-missing", "KV_scales", "is no name"),
        ("VD599", "VD598", "no rule has this code"),
        ("KV cache scales are missing", "nowhere", "does not stand in --message"),
        ("other", "nothing", "--cause nothing: found none of that name; needed: "),
        ("The checkpoint has no scales for an FP8 KV cache", "x" * 71, "needed: 1 to 70"),
        ("0.33.0", "0.31.0-0.33.0", "the first and the last, 0.31.0..0.33.0"),
        (
            "model_executor/layers/quantization/kv_cache.py",
            "vllm/model_executor/layers/quantization/kv_cache.py",
            "needed: the file below vllm/",
        ),
    ],
)
def test_what_a_test_would_refuse_later_is_refused_before_anything_is_written(
    checkout: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, why: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in checkout.rglob("*") if path.is_file()}
    assert new_rule.main([new if word == old else word for word in words()], checkout) == 2
    assert why in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in checkout.rglob("*") if path.is_file()} == before


def test_all_that_is_wrong_is_said_at_once(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"not-memory": "memory", "other": "nothing"}
    assert new_rule.main([wrong.get(word, word) for word in words()], checkout) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said] == ["--box", "--cause", "--phase"]


def test_a_message_of_many_releases_has_its_span_and_the_scenario_its_last(checkout: Path) -> None:
    assert new_rule.main(["0.31.0..0.33.0" if word == "0.33.0" else word for word in words()], checkout) == 0
    catalogue = (checkout / CATALOGUE).read_text(encoding="utf-8")
    assert '{"versions": "0.31.0..0.33.0", "line": "ValueError: KV cache scales' in catalogue
    scenarios = (checkout / f"tests/scenarios/{code(checkout)}.yaml").read_text(encoding="utf-8")
    assert scenarios.count("API server version 0.33.0\n") == 2
    assert ".." not in scenarios


@pytest.mark.parametrize("asked", [["--serving"], ["--phase", "runtime-prefill-burst"]])
def test_a_message_of_a_server_that_serves_is_tried_on_one(checkout: Path, asked: list[str]) -> None:
    assert new_rule.main([*words(), *asked], checkout) == 0
    fires = (checkout / f"tests/scenarios/{code(checkout)}.yaml").read_text(encoding="utf-8").partition("near-miss")[0]
    assert "Application startup complete" in fires.partition("ValueError: KV cache scales")[0]


def test_it_prints_the_code_and_the_commands_that_are_left(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new_rule.main(words(), checkout) == 0
    said = capsys.readouterr().out
    assert f"The rule is {code(checkout)}." in said
    assert f'-k "{code(checkout)} or kv-scales-missing"' in said
    for path in re.findall(r"tests/[\w/.]+", said):
        assert (REPO / path.format(code="VD599")).exists() or path.endswith(f"{code(checkout)}.yaml"), path
