"""Pre-commit runs the very checks of `make lint`."""

from pathlib import Path

import lint
import yaml

REPO = Path(__file__).resolve().parents[2]


def test_precommit_has_every_check_and_no_other() -> None:
    config = yaml.safe_load((REPO / ".pre-commit-config.yaml").read_text())
    hooks = {hook["id"]: hook["entry"].split() for repo in config["repos"] for hook in repo["hooks"]}
    assert hooks == {name: [".venv/bin/python", "tools/lint.py", name] for name in lint.CHECKS}


def test_an_unknown_check_is_refused() -> None:
    assert lint.main(["spelling"]) == 2


def test_ansible_lint_has_no_global_skips() -> None:
    config = yaml.safe_load((REPO / ".ansible-lint").read_text())
    assert config["profile"] == "production"
    assert not {"skip_list", "warn_list"} & config.keys()
