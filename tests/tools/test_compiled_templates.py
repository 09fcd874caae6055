"""What templates of test runs are compiled to is kept, is what the source says, and is asked for by name only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
import compiled_templates as ours
from ansible._internal._templating import _jinja_bits as bits
from ansible._internal._templating._engine import TemplateEngine
from ansible.template import trust_as_template
made = []
plain = bits.AnsibleEnvironment._generate
bits.AnsibleEnvironment._generate = lambda *words, **more: made.append(1) or plain(*words, **more)
ours.begin()
engine = TemplateEngine(variables={"a": 3, "word": "x"})
def said(kind, source):
    ask = engine.evaluate_expression if kind == "expression" else engine.template
    try:
        return repr(ask(trust_as_template(source)))
    except Exception as error:
        return type(error).__name__ + " " + str(error)
for kind, source in zip(sys.argv[2::2], sys.argv[3::2]):
    made.clear()
    answer = said(kind, source)
    print("made" if made else "kept", answer)
"""


def said(folder: Path, *asked: str) -> list[str]:
    """What a process of its own makes of these (kind, source, …), and whether it compiled them itself."""
    command = [sys.executable, "-c", PROGRAM, str(TOOLS), *asked]
    environment = {**os.environ, "COMPILED_TEMPLATES": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


ALL = {
    ("template", "{{ a + 1 }} of {{ word }}"): "'4 of x'",
    ("template", "{{ a + 1 }}"): "4",
    ("template", "{{ word | regex_replace('(.)', '\\1\\1') }}"): "'xx'",
    ("template", "#jinja2: variable_start_string: '[[', variable_end_string: ']]'\n[[ a ]] {{ a }}"): "'3 {{ a }}'",
    ("expression", "a + 1 == 4"): "True",
    ("expression", "word"): "'x'",
}


def test_each_source_is_compiled_once_and_says_the_same_to_the_next_process(tmp_path: Path) -> None:
    asked = [word for pair in ALL for word in pair]
    assert said(tmp_path, *asked) == [f"made {answer}" for answer in ALL.values()]
    assert said(tmp_path, *asked) == [f"kept {answer}" for answer in ALL.values()]


def test_the_same_words_as_a_template_and_as_an_expression_are_two_things(tmp_path: Path) -> None:
    assert said(tmp_path, "template", "a", "expression", "a", "template", "a")[1] == "made 3"
    assert said(tmp_path, "expression", "a") == ["kept 3"]
    assert said(tmp_path, "template", "{{ a }}", "expression", "a") == ["made 3", "kept 3"]


@pytest.mark.parametrize("kind", ["template", "expression"])
def test_what_does_not_compile_says_so_each_time_and_a_later_source_is_not_taken_for_it(
    tmp_path: Path, kind: str
) -> None:
    wrong = "{{ a +* }}" if kind == "template" else "a +*"
    first = said(tmp_path, kind, wrong, "template", "{{ a }} {{ word }}")
    assert "Syntax error" in first[0]
    assert said(tmp_path, kind, wrong)[0].partition(" ")[2] == first[0].partition(" ")[2]
    assert said(tmp_path, "template", "{{ a }} {{ word }}") == ["kept '3 x'"]


def test_without_the_folder_or_with_a_torn_file_the_source_counts(tmp_path: Path) -> None:
    none = tmp_path / "file"
    none.write_text("")
    assert said(none, "expression", "a") == said(none, "expression", "a") == ["made 3"]
    kept = tmp_path / "kept"
    assert said(kept, "template", "{{ a }} {{ a }}") == ["made '3 3'"]
    for file in kept.iterdir():
        file.write_bytes(file.read_bytes()[:20])
    assert said(kept, "template", "{{ a }} {{ a }}") == ["made '3 3'"]


def test_a_folder_that_has_grown_for_years_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILED_TEMPLATES", str(tmp_path))
    program = "import sys; sys.path.insert(0, sys.argv[1]); import compiled_templates as c; c.KEPT = 3; c.begin()"
    for count, left in ((3, 3), (4, 0)):
        for number in range(count):
            (tmp_path / f"{number}").write_bytes(b"")
        subprocess.run([sys.executable, "-c", program, str(TOOLS)], check=True)
        assert len(list(tmp_path.iterdir())) == left
