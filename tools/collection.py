#!/usr/bin/env python3
"""Build the roles and playbooks as the Ansible collection vllm_doctor.hosts into build/collection.

The checkout keeps roles/ as it is. In the collection the plugins of all roles stand under one namespace, so filters are
called by their whole name; the doctor's package, from which the roles judge and build its wheel, comes along.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from vllm_doctor import __version__  # noqa: E402 - the checkout's own, whatever is installed

NAMESPACE, NAME = "vllm_doctor", "hosts"
WHOLE = f"{NAMESPACE}.{NAME}"
OUT = REPO / "build" / "collection"
TREE = OUT / "ansible_collections" / NAMESPACE / NAME
# Where a role keeps its plugins, and where a collection does.
PLUGINS = {
    "action_plugins": "action",
    "filter_plugins": "filter",
    "library": "modules",
    "module_utils": "module_utils",
}
ALONG = ("vllm_doctor", "templates", "bin", "tools/lock", "pyproject.toml", "LICENSE", "inventories/example")
ANSIBLE = ">=2.19.0"
README = f"""\
# {WHOLE}

GPU hosts from bare Linux to a model that vLLM serves: a driver, CUDA and vLLM that fit each other, a systemd unit with
numbers that were computed, and `vllm-doctor`, which says why one does not start.

```sh
ansible-galaxy collection install {NAMESPACE}-{NAME}-{__version__}.tar.gz
ansible-playbook -i inventory {WHOLE}.site --check --diff    # the plan; changes nothing
ansible-playbook -i inventory {WHOLE}.site
```

The controller's Python needs `msgspec`, `packaging`, `prometheus-client` and `ruamel.yaml`, and, to build the doctor's
wheel, `hatchling` and `uv`.
`inventories/example` is an inventory to copy. Each role has a README.
"""


def tracked(*patterns: str) -> list[str]:
    """The files of the checkout that git knows and that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and (REPO / name).is_file()]


def destination(name: str) -> str | None:
    """Where a file of the checkout stands in the collection; None for what is of the checkout alone."""
    parts = Path(name).parts
    if parts[0] == "roles":
        if parts[2] == "molecule":
            return None
        if parts[2] in PLUGINS:
            return "/".join(("plugins", PLUGINS[parts[2]], *parts[3:]))
        return name
    if name == "site.yml":
        return "playbooks/site.yml"
    return name


def filters(source: str) -> list[str]:
    """The names of the filters that a plugin's `filters` returns."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "filters":
            return [
                key.value
                for table in ast.walk(node)
                if isinstance(table, ast.Dict)
                for key in table.keys
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
    return []


def rewritten(name: str, text: str, named: list[str]) -> str:
    """The text of a file as it has to be in the collection."""
    if name.endswith((".yml", ".j2")):
        if named and not name.startswith("templates/"):
            known = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
            text = re.sub(rf"(\|\s*)({known})\b(?!\s*[.=:])", rf"\1{WHOLE}.\2", text)
            text = re.sub(rf"(\b(?:map|select|reject)\(')({known})'", rf"\1{WHOLE}.\2'", text)
        text = text.replace("role_path ~ '/../preflight/library/", "role_path ~ '/../../plugins/modules/")
        text = text.replace("import_playbook: ../site.yml", "import_playbook: site.yml")
        text = text.replace("import_playbook: playbooks/", "import_playbook: ")
    if name.endswith(".py") and Path(name).parts[0] == "roles":
        if "/library/" in name:
            text = re.sub(r"\A#!/usr/bin/(?:env )?python3?\n", "#!/usr/bin/python\n", text)
        text = text.replace(
            "from ansible.module_utils.vllm_", f"from ansible_collections.{WHOLE}.plugins.module_utils.vllm_"
        )
        text = text.replace(
            "REPOSITORY = Path(__file__).resolve().parents[3]", "REPOSITORY = Path(__file__).resolve().parents[2]"
        )
        text = text.replace(
            "ROLES = Path(__file__).resolve().parents[2]", 'ROLES = Path(__file__).resolve().parents[2] / "roles"'
        )
    return text


PROGRAMS = (b"#!/usr/bin/python3", b"#!/usr/bin/env python3")
# What ansible-test's sanity tests are not asked for, and why.
IGNORED = {
    "missing-gplv3-license": "the licence is Apache-2.0",
    "import-before-documentation": "imports stand first in this project",
    "invalid-documentation": "the author is no account of GitHub's",
}


def ignored(modules: list[str], filters_: list[str], programs: list[str]) -> str:
    """tests/sanity/ignore-2.19.txt: the file, the test and the reason."""
    lines = [f"plugins/modules/{m} validate-modules:{what} # {why}" for m in modules for what, why in IGNORED.items()]
    lines += [
        "plugins/modules/preflight_facts.py validate-modules:use-run-command-not-popen # it runs without Ansible too",
        "plugins/action/preflight_judge.py action-plugin-docs # it runs on the controller alone, and has no module",
        *(f"plugins/filter/{f} import-3.11!skip # the controller's Python has msgspec" for f in filters_),
        *(f"{name} shebang # a program of the hosts, no module" for name in programs),
        "vllm_doctor/log/catalogue/build.json no-smart-quotes # a message of a compiler, as it is printed",
    ]
    return "\n".join(sorted(lines)) + "\n"


def galaxy() -> dict[str, Any]:
    """What galaxy.yml says."""
    return {
        "namespace": NAMESPACE,
        "name": NAME,
        "version": __version__,
        "readme": "README.md",
        "authors": ["the authors of vllm-doctor"],
        "description": "GPU hosts from bare Linux to a model that vLLM serves, and why it does not start",
        "license": ["Apache-2.0"],
        "tags": ["infrastructure", "linux", "monitoring"],
        "dependencies": {"ansible.posix": ">=1.5.0"},
        "build_ignore": ["*.pyc", "__pycache__"],
    }


def write() -> int:
    """Write the collection's tree; returns how many files it has."""
    shutil.rmtree(OUT, ignore_errors=True)
    names = tracked("roles", "playbooks", "site.yml", *ALONG)
    named = [f for n in names if "/filter_plugins/" in n for f in filters((REPO / n).read_text(encoding="utf-8"))]
    count = 0
    for name in names:
        to = destination(name)
        if to is None:
            continue
        source, target = REPO / name, TREE / to
        if target.exists():
            raise SystemExit(f"two roles have a plugin of one name: {name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in {".yml", ".j2", ".py"} and Path(name).parts[0] in {"roles", "playbooks", "site.yml"}:
            target.write_text(rewritten(name, source.read_text(encoding="utf-8"), named), encoding="utf-8")
            shutil.copymode(source, target)
        else:
            shutil.copy2(source, target)
        count += 1
    (TREE / "README.md").write_text(README, encoding="utf-8")
    (TREE / "galaxy.yml").write_text(yaml.safe_dump(galaxy(), sort_keys=False), encoding="utf-8")
    (TREE / "meta").mkdir()
    (TREE / "meta" / "runtime.yml").write_text(f'---\nrequires_ansible: "{ANSIBLE}"\n', encoding="utf-8")
    sanity = TREE / "tests" / "sanity"
    sanity.mkdir(parents=True)
    modules = sorted(path.name for path in (TREE / "plugins" / "modules").glob("*.py"))
    importing = [f for f in (TREE / "plugins" / "filter").glob("*.py") if "from vllm_doctor." in f.read_text("utf-8")]
    programs = [f for f in (TREE / "roles").glob("*/files/*") if f.is_file() and f.read_bytes().startswith(PROGRAMS)]
    text = ignored(modules, [f.name for f in importing], [str(f.relative_to(TREE)) for f in programs])
    (sanity / "ignore-2.19.txt").write_text(text, encoding="utf-8")
    return count + 4


def main() -> int:
    """Write the tree and have ansible-galaxy build the archive."""
    count = write()
    build = [
        str(REPO / ".venv" / "bin" / "ansible-galaxy"),
        "collection",
        "build",
        "--force",
        "--output-path",
        str(OUT),
    ]
    done = subprocess.run([*build, str(TREE)], cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        return 1
    archive = OUT / f"{NAMESPACE}-{NAME}-{__version__}.tar.gz"
    print(f"{count} files: ansible-galaxy collection install {archive.relative_to(REPO)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
