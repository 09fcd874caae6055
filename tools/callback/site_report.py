# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What a run did, on the controller: one JSON file for programs and one text for people. No secret is in either."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__
from ansible.template import Templar

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.preflight import run_report as reports  # noqa: E402

DOCUMENTATION = """
name: site_report
type: notification
short_description: A report of each run
description:
  - Writes STAMP-PLAYBOOK.json and .txt into the folder that the variable site_reports names; reports/ of the checkout
    without it, nothing where it is empty. What a task may not show, no_log, is not in it.
"""

FOLDER = "site_reports"
ALWAYS = ("vllm_api_key", "vllm_api_keys", "vllm_secrets", "vllm_hub_token", "vllm_hook_headers")


class CallbackModule(CallbackBase):
    """Listens to a run and writes at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "site_report"

    def __init__(self) -> None:
        """Nothing has happened yet."""
        super().__init__()
        self.disabled = tuple(map(int, __version__.split(".")[:2])) < (2, 19)  # site.yml refuses an older one
        self._began = datetime.now(UTC)
        self._playbook = ""
        self._play: Any = None
        self._hosts: dict[str, dict[str, Any]] = {}
        self._refused: list[dict[str, Any]] = []

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Name the playbook."""
        self._playbook = Path(playbook._file_name).name  # noqa: SLF001

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep what the variables of the hosts are asked of."""
        self._play = play

    def v2_runner_on_ok(self, result: Any) -> None:
        """Keep what changed, and what was said."""
        task, told = result.task, result.result
        for one in told.get("results") or [told]:
            if isinstance(one, dict):
                self._heard(self._of(result.host), task, one)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Keep why."""
        told = result.result
        self._refused += [row for row in told.get("rows") or [] if row.get("verdict") in {"fail", "warn"}]
        if not ignore_errors:
            failed = [one for one in told.get("results") or [] if isinstance(one, dict) and one.get("failed")]
            message = "\n".join(str(one.get("msg", "")) for one in failed or [told])
            self._of(result.host)["failed"] = {"task": result.task.get_name(), "message": message}

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep which host, and what was tried."""
        message = str(result.result.get("msg", ""))
        self._of(result.host)["failed"] = {"task": result.task.get_name(), "message": message}

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write both files; a report that cannot be written ends no run."""
        try:
            inventory = self._play.get_variable_manager()._inventory  # noqa: SLF001
            # A play that failed leaves the inventory cut to its own hosts; secrets and folder are those of all.
            hosts = inventory.get_hosts("all", ignore_restrictions=True) or [inventory.localhost]
            variables = [self._variables(host) for host in hosts]
            folder = next((values[FOLDER] for values in variables if values.get(FOLDER) is not None), None)
            folder = str(REPOSITORY / "reports") if folder is None else str(folder)
            if not folder:
                return
            counts = {host: stats.summarize(host) for host in stats.processed}
            for host, count in counts.items():
                self._host(host).update(count=count)
            words = context.CLIARGS
            report = reports.Report(
                playbook=self._playbook,
                began=self._began,
                ended=datetime.now(UTC),
                inventories=tuple(map(str, words.get("inventory") or ())),
                limit=str(words.get("subset") or ""),
                tags=tuple(tag for tag in words.get("tags") or () if tag != "all"),
                check=bool(words.get("check")),
                hosts=self._hosts,
                refused=tuple(self._refused),
            )
            secrets = frozenset(reports.secrets([values.get(name) for values in variables for name in ALWAYS]))
            path = reports.write(Path(os.path.expanduser(folder)), report, secrets)  # noqa: PTH111
            self._display.display(f"report: {path}")
        except Exception as error:  # noqa: BLE001
            self._display.warning(f"no report of this run could be written: {type(error).__name__}: {error}")

    def _heard(self, host: dict[str, Any], task: Any, told: dict[str, Any]) -> None:
        name = task.get_name()
        if told.get("changed") and name not in host["changed"]:
            host["changed"].append(name)
        action = task.action.rpartition(".")[2]
        if action == "debug" and isinstance(told.get("msg"), str):
            host["said"].append(told["msg"])
        if action == "vllm_ready" and told.get("model"):
            unit = (told.get("unit") or {}).get("name") or told.get("invocation", {}).get("module_args", {}).get(
                "unit", ""
            )
            host["answers"][str(unit).removesuffix(".service")] = told["model"]
        if action == "command" and list(told.get("cmd") or [])[:2] == ["vllm-doctor", "diagnose"]:
            host["doctor"] = {"exit": told.get("rc"), "answer": told.get("stdout", "")}

    def _of(self, host: Any) -> dict[str, Any]:
        return self._host(host.get_name())

    def _host(self, name: str) -> dict[str, Any]:
        return self._hosts.setdefault(name, {"changed": [], "said": [], "answers": {}})

    def _variables(self, host: Any) -> dict[str, Any]:
        """Those of the variables that a report needs; what cannot be said of a host is left out."""
        manager = self._play.get_variable_manager()
        values = manager.get_vars(play=self._play, host=host, include_hostvars=False)
        templar = Templar(loader=self._play.get_loader(), variables=values)
        found = {}
        for name in (FOLDER, *ALWAYS):
            if name in values:
                try:
                    found[name] = templar.template(values[name])
                except Exception:  # noqa: BLE001, S112
                    continue
        return found
