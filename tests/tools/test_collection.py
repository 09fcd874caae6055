"""The checkout is the collection that it ships: its playbooks play it by name, and the archive has its very files."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import collection
import pytest
import yaml

from tests.preflight.test_site import GOOD

REPO = collection.REPO
WHOLE = f"{collection.NAMESPACE}.{collection.NAME}"
BIN = Path(sys.executable).parent
ROLES = sorted(role.name for role in (REPO / "roles").iterdir() if (role / "tasks").is_dir())
PLAYED = [
    path
    for folder in ("roles", "playbooks", ".config/molecule")
    for path in sorted((REPO / folder).rglob("*"))
    if path.suffix in {".yml", ".j2"}
] + [REPO / "site.yml"]


def filters() -> list[str]:
    """The names of all filters."""
    trees = [ast.parse(file.read_text()) for file in sorted((REPO / "plugins" / "filter").glob("*.py"))]
    tables = (node for tree in trees for node in ast.walk(tree) if getattr(node, "name", "") == "filters")
    keys = (key for table in tables for node in ast.walk(table) if isinstance(node, ast.Dict) for key in node.keys)
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


def maps(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a document."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from maps(child)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collection.build(tmp_path_factory.mktemp("collection"))


@pytest.fixture(scope="module")
def installed(archive: Path) -> Path:
    """A folder in which there is nothing but what the archive brings."""
    folder = archive.parent / "elsewhere"
    folder.mkdir()
    words = ["collection", "install", "--offline", "--no-deps", "-p", str(folder / "collections"), str(archive)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    subprocess.run([BIN / "ansible-galaxy", *words], cwd=folder, env=environment, check=True, capture_output=True)
    return folder


def play(folder: Path, *words: str) -> str:
    """What a person sees of playbooks that are called in a folder, with a host that nobody can reach."""
    (folder / "hosts").mkdir(exist_ok=True)
    (folder / "hosts" / "hosts.yml").write_text(yaml.safe_dump({"vllm": {"hosts": {"gpu01": GOOD}}}))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", "hosts", *words],
        cwd=folder,
        env={**environment, "ANSIBLE_NOCOLOR": "1"}
        | ({} if (folder / "ansible.cfg").exists() else {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")}),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_no_file_is_written_anew_on_its_way_into_the_archive(archive: Path) -> None:
    of_galaxy = {"MANIFEST.json", "FILES.json"}
    with tarfile.open(archive) as packed:
        members = [member for member in packed.getmembers() if not member.isdir()]
        assert [member.name for member in members if not member.isreg()] == []
        names = {member.name for member in members}
        changed = [
            member.name  # in the archive's order: each step back would unpack it from its beginning
            for member in members
            if member.name not in of_galaxy and packed.extractfile(member).read() != (REPO / member.name).read_bytes()  # type: ignore[union-attr]
        ]
    assert changed == []
    assert names - of_galaxy == {*collection.shipped()}
    assert {f"roles/{role}/tasks" for role in ROLES} <= {str(Path(name).parent) for name in names}
    assert {name for name in names if "/molecule/" in name or name.startswith(("tests/", "inventories/"))} == {
        name for name in names if name.startswith(("tests/sanity/", "inventories/example/"))
    }


def test_the_checkout_is_found_as_the_collection_by_a_link_that_may_lie_anywhere() -> None:
    link = REPO / "collections" / "ansible_collections" / collection.NAMESPACE / collection.NAME
    assert str(link.readlink()) == "../../.."
    assert link.resolve() == REPO


def test_roles_and_plugins_are_called_by_the_name_of_the_collection() -> None:
    named = "|".join(filters())
    bare = re.compile(rf"\|\s*({named})\b|\b(?:map|select|reject)\('({named})'")
    assert len(bare.findall("{{ x | vllm_units | map('vllm_known') }}")) == 2
    modules = {file.stem for kind in ("modules", "action") for file in (REPO / "plugins" / kind).glob("*.py")}
    found, called = [], 0
    for path in PLAYED:
        text = path.read_text()
        found += [(str(path), name) for name in bare.findall(text)]
        mappings = list(maps(yaml.load(text, yaml.CSafeLoader))) if path.suffix == ".yml" else []
        found += [(str(path), name) for task in mappings if "name" in task for name in modules & task.keys()]
        asked = [task.get(f"ansible.builtin.{how}_role") for task in mappings for how in ("include", "import")]
        roles = [role["name"] for role in asked if role] + [str(role.get("role")) for role in mappings]
        called += sum(name.startswith(WHOLE) for name in roles)
        found += [(str(path), name) for name in roles if name in ROLES and path.parent.name != "vars"]
    assert found == []
    assert called > 100


WITHOUT_THE_PACKAGE = """
import importlib.util, sys
from pathlib import Path
sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(sys.argv[1])]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
assert importlib.util.find_spec("vllm_doctor") is None
spec = importlib.util.spec_from_file_location("plugin", sys.argv[2])
spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


@pytest.mark.parametrize("kind", ["action", "filter"])
def test_each_plugin_of_the_controller_finds_the_package_by_itself(kind: str) -> None:
    """Whichever is loaded first: Ansible leaves out a file that cannot be imported, with a warning."""
    files = sorted((REPO / "plugins" / kind).glob("*.py"))
    said = {}
    for file in files:
        command = [sys.executable, "-I", "-c", WITHOUT_THE_PACKAGE, str(REPO), str(file)]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        if done.returncode:
            said[file.name] = done.stderr
    assert said == {}
    assert files


def test_a_playbook_imports_what_stands_where_it_stands_in_the_archive() -> None:
    imported = [
        (playbook.parent / play["ansible.builtin.import_playbook"]).resolve()
        for playbook in (*(REPO / "playbooks").glob("*.yml"), REPO / "site.yml")
        for play in yaml.safe_load(playbook.read_text()) or []
        if "ansible.builtin.import_playbook" in play
    ]
    assert {str(path.relative_to(REPO)) for path in imported} <= {*collection.shipped()}
    assert REPO / "site.yml" in imported


def test_the_archive_plays_the_site_where_there_is_no_checkout(installed: Path) -> None:
    said = play(installed, f"{WHOLE}.site", "--check", "--diff", "-v")
    assert f"TASK [{WHOLE}.preflight : Ask for GPUs" in said, said
    assert "1 of 1 hosts refused; nothing was changed on any host." in said, said
    assert re.search(r"gpu01\s+connection\b", said), said
    assert "[WARNING]: Skipping" not in said


def test_each_of_its_playbooks_can_be_read_there(installed: Path) -> None:
    playbooks = sorted((REPO / "playbooks").glob("*.yml"))
    said = play(installed, *(f"{WHOLE}.{playbook.stem}" for playbook in playbooks), "--syntax-check")
    read = re.findall(r"^playbook: .*/ansible_collections/vllm_doctor/hosts/playbooks/(.*)$", said, re.MULTILINE)
    assert read == [playbook.name for playbook in playbooks], said


def test_a_checkout_plays_itself_in_a_path_with_a_blank_and_beside_an_installed_one(
    installed: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "a checkout"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    wanted = [name for name in names.split("\0") if name.startswith(("collections/", "tools/"))]
    for name in {*wanted, *collection.shipped(), "ansible.cfg"}:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        if (REPO / name).is_symlink():
            (checkout / name).symlink_to((REPO / name).readlink())
        else:
            (checkout / name).write_bytes((REPO / name).read_bytes())
    task = checkout / "roles" / "preflight" / "tasks" / "ask.yml"
    task.write_text(task.read_text().replace("Ask for GPUs", "Ask in this checkout for GPUs"))
    manifest = json.loads((installed / "collections/ansible_collections/vllm_doctor/hosts/MANIFEST.json").read_text())
    assert manifest["collection_info"]["name"] == collection.NAME
    said = play(checkout, "site.yml", "--check")
    assert f"TASK [{WHOLE}.preflight : Ask in this checkout for GPUs" in said, said
    assert re.search(r"gpu01\s+connection\b", said), said
