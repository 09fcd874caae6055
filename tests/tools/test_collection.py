"""The collection that is built of the roles: plugins under one namespace, and no name of the checkout left in it."""

import re
from pathlib import Path

import collection
import pytest
import yaml


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("collection")
    whole = out / "ansible_collections" / collection.NAMESPACE / collection.NAME
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "OUT", out)
        patch.setattr(collection, "TREE", whole)
        collection.write()
    return whole


def test_the_plugins_of_all_roles_stand_under_one_namespace(tree: Path) -> None:
    roles = {role.name for role in (collection.REPO / "roles").iterdir() if (role / "tasks").is_dir()}
    assert {role.name for role in (tree / "roles").iterdir()} == roles
    left = {folder.name for folder in (tree / "roles").glob("*/*")}
    assert left & {*collection.PLUGINS, "molecule"} == set()
    kept = {f.stem for kind in collection.PLUGINS for f in (collection.REPO / "roles").glob(f"*/{kind}/*.py")}
    assert {file.stem for file in (tree / "plugins").rglob("*.py")} == kept


def test_each_filter_is_called_by_its_whole_name(tree: Path) -> None:
    named = [
        name for file in (tree / "plugins" / "filter").glob("*.py") for name in collection.filters(file.read_text())
    ]
    assert len(named) > 15
    bare = re.compile(rf"\|\s*({'|'.join(named)})\b|\b(?:map|select|reject)\('({'|'.join(named)})'")
    found = [
        f"{file.relative_to(tree)}: {line.strip()}"
        for file in (*(tree / "roles").rglob("*.yml"), *(tree / "playbooks").glob("*.yml"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if bare.search(line)
    ]
    assert found == []


def test_no_plugin_looks_for_what_it_had_beside_it_in_its_role(tree: Path) -> None:
    sources = {file: file.read_text(encoding="utf-8") for file in (tree / "plugins").rglob("*.py")}
    assert [str(f) for f, text in sources.items() if "ansible.module_utils.vllm_" in text] == []
    for file, text in sources.items():
        if "REPOSITORY" in text:
            assert "REPOSITORY = Path(__file__).resolve().parents[2]\n" in text, file
    assert (tree / "vllm_doctor" / "knowledge" / "compat.json").is_file()
    assert (tree / "templates").is_dir()


def test_a_playbook_of_the_collection_imports_only_those_beside_it(tree: Path) -> None:
    for playbook in (tree / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(playbook.read_text(encoding="utf-8")) or []:
            other = play.get("ansible.builtin.import_playbook")
            assert other is None or (playbook.parent / other).is_file(), f"{playbook.name}: {other}"


def test_a_files_text_changes_only_where_a_name_does() -> None:
    text = 'x: "{{ y | vllm_units | default(vllm_units) }}"  # vllm_units'
    assert collection.rewritten("roles/vllm/tasks/main.yml", text, ["vllm_units"]) == (
        'x: "{{ y | vllm_doctor.hosts.vllm_units | default(vllm_units) }}"  # vllm_units'
    )
