"""README tables come from argument_specs, and the defaults stated there are the defaults."""

from pathlib import Path

import pytest
import role_docs

SPEC = """
argument_specs:
  main:
    short_description: Bake bread
    description: [One loaf.]
    options:
      bread_flour: {type: str, default: rye, choices: [rye, wheat], description: What it is made of.}
      bread_water_g: {type: int, required: true, description: Water in grams.}
      bread_seeds: {type: list, elements: str, default: [], description: On top.}
"""


@pytest.fixture
def role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(role_docs, "REPO", tmp_path)
    folder = tmp_path / "roles" / "bread"
    for name in ("meta", "defaults", "tasks"):
        (folder / name).mkdir(parents=True)
    (tmp_path / "playbooks" / "meta").mkdir(parents=True)
    (tmp_path / "playbooks" / "meta" / "variables.yml").write_text("site_oven_c: {type: int, description: Degrees.}\n")
    (tmp_path / "playbooks" / "README.md").write_text("# Playbooks\n")
    (folder / "meta" / "argument_specs.yml").write_text(SPEC)
    (folder / "defaults" / "main.yml").write_text("bread_flour: rye\nbread_seeds: []\n")
    return folder


def test_table_has_a_row_for_each_variable(role: Path) -> None:
    assert role_docs.main([]) == 0
    text = (role / "README.md").read_text()
    assert "| `bread_flour` | str | `rye` | What it is made of. One of `rye`, `wheat`. |" in text
    assert "| `bread_water_g` | int | **required** | Water in grams. |" in text
    assert "| `bread_seeds` | list of str | `[]` | On top. |" in text
    assert role_docs.main(["--check"]) == 0


def test_the_playbooks_have_a_table_of_their_own(role: Path) -> None:
    role_docs.main([])
    text = (role.parents[1] / "playbooks" / "README.md").read_text()
    assert text.startswith("# Playbooks\n")
    assert "| `site_oven_c` | int |  | Degrees. |" in text


def test_prose_around_the_table_stays(role: Path) -> None:
    role_docs.main([])
    readme = role / "README.md"
    readme.write_text("# Bread\n\nMine.\n\n" + readme.read_text().split("One loaf.\n\n")[1] + "\nMore of mine.\n")
    role_docs.main([])
    assert readme.read_text().startswith("# Bread\n\nMine.\n")
    assert readme.read_text().endswith("More of mine.\n")


def test_a_stale_table_is_found(role: Path, capsys: pytest.CaptureFixture[str]) -> None:
    role_docs.main([])
    (role / "README.md").write_text((role / "README.md").read_text().replace("Water in grams", "Milk in grams"))
    assert role_docs.main(["--check"]) == 1
    assert "roles/bread/README.md" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("defaults", "complaint"),
    [
        ("bread_flour: wheat\nbread_seeds: []\n", "bread_flour is 'wheat' in defaults and 'rye' in argument_specs"),
        ("bread_flour: rye\n", "bread_seeds has a default in argument_specs and none in defaults"),
        ("bread_flour: rye\nbread_seeds: []\nbread_salt: 2\n", "bread_salt is in defaults and not in argument_specs"),
    ],
)
def test_defaults_that_differ_are_found(
    role: Path, defaults: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (role / "defaults" / "main.yml").write_text(defaults)
    assert role_docs.main(["--check"]) == 1
    assert complaint in capsys.readouterr().out


def test_null_in_defaults_means_no_default(role: Path) -> None:
    defaults = role / "defaults" / "main.yml"
    defaults.write_text(defaults.read_text() + "bread_water_g:\n")
    role_docs.main([])
    assert role_docs.main(["--check"]) == 0
