"""A controller that cannot play the roles: site.yml says so before anything else, and what to do."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NO_REPORT = ("-e", '{"site_reports": ""}')
OLD = "import ansible.release\nansible.release.__version__ = {version!r}\n"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has no package, as one of a distribution beside its Ansible."""
    folder = tmp_path_factory.mktemp("controller") / "venv"
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def said(python: Path | str, folder: Path, **more: str) -> str:
    """What ansible-playbook says under this Python, which finds Ansible by a path with modules of `more`."""
    for name, text in more.items():
        (folder / f"{name}.py").write_text(text)
    environment = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "PYTHONPATH": f"{folder}:{sysconfig.get_path('purelib')}",
    }
    command = [
        python,
        Path(sys.executable).with_name("ansible-playbook"),
        "-i",
        "inventories/example",
        "site.yml",
        *NO_REPORT,
    ]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Gathering Facts" not in done.stdout
    return " ".join(done.stdout.split())


def test_a_python_without_the_packages_of_the_judge(bare: Path, tmp_path: Path) -> None:
    told = said(bare, tmp_path)
    assert f"{bare} lacks packages that the roles need on the controller. `make venv` brings them" in told


@pytest.mark.parametrize("version", ["2.14.18", "2.17.14"])
def test_an_ansible_that_is_too_old(tmp_path: Path, version: str) -> None:
    told = said(sys.executable, tmp_path, sitecustomize=OLD.format(version=version))
    assert f"This is ansible-core {version} of {sys.executable}; needed: 2.19 or newer. `make venv` brings it" in told
