#!/usr/bin/env python3
"""ansible-lint, whole, with what it does again and again done once.

It expands the braces of some hundred globs for each of 2,000 files, copies each task deeply for each rule, and starts
`ansible-playbook --syntax-check` for each of sixty playbooks and roles, of which two thirds are imports. Here globs are
compiled once, tasks are read once, and the checks are forks of one Python that has Ansible imported.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from copy import copy
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
_begin = threading.Lock()


def syntax_check(words: list[str], environment: dict[str, str], outputs: tuple[str, str], ended: str) -> None:
    """In a fork that has Ansible imported: be the program that these words call; its status goes into a file."""
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(outputs, 1):
        os.dup2(os.open(file, os.O_WRONLY), number)
    from ansible.cli.playbook import main

    status: object = 0
    try:
        main(words)
    except SystemExit as told:
        status = told.code or 0
    Path(ended).write_text(str(status))


def run(words: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
    """What subprocess.run does for ansible-lint's `ansible-playbook --syntax-check`.

    `exitcode` does not tell how a process ended: a thread that starts one asks all others for their status, which is
    there once; to the thread that waits it is then 255 (multiprocessing/process.py _cleanup, popen_forkserver.py poll).
    """
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        ended = Path(folder, "status")
        for file in outputs:
            file.touch()
        with _begin:
            FORKS.set_forkserver_preload(["ansible.cli.playbook"])
            os.environ.update(env)  # Ansible's configuration is read where it is imported
            process = FORKS.Process(target=syntax_check, args=(words, env, tuple(map(str, outputs)), str(ended)))
            process.start()
        process.join()
        told = [file.read_text(errors="replace") for file in outputs]
        status = int(ended.read_text()) if ended.exists() else 255
    return subprocess.CompletedProcess(words, status, *told)


@cache
def matcher(glob: str, flags: int) -> Any:
    """A glob, compiled once."""
    import wcmatch.glob

    return wcmatch.glob.compile(glob, flags=flags | wcmatch.glob.FORCEUNIX)


def globmatch(path: Any, glob: str, *, flags: int = 0) -> bool:
    """As wcmatch's, for a path that need not exist."""
    return bool(matcher(glob, flags).match(str(path)))


def normalized_once(normalize: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Each rule asks for each task anew, and is given a mapping of its own: some add to it."""
    known: dict[int, tuple[Any, Any]] = {}

    def once(task: Any) -> Any:
        written = task.raw_task
        if id(written) not in known:
            known[id(written)] = (written, normalize(task))  # kept, so that its id is no other's
        made = copy(known[id(written)][1])
        made["action"] = copy(made["action"])
        return made

    return once


def main() -> int:
    """Be ansible-lint, with the words of this command line."""
    import ansiblelint.runner
    import wcmatch.pathlib
    from ansiblelint.__main__ import main as lint
    from ansiblelint.utils import Task

    for owner, name, ours in (
        (wcmatch.pathlib.PurePath, "globmatch", globmatch),
        (Task, "_normalize_task", normalized_once(Task._normalize_task)),  # noqa: SLF001
        (ansiblelint.runner, "subprocess", SimpleNamespace(run=run, PIPE=subprocess.PIPE)),
    ):
        setattr(owner, name, ours)
    try:
        return int(lint(["ansible-lint", *sys.argv[1:]]))
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # noqa: SLF001 (so that its processors count as ours)


if __name__ == "__main__":
    sys.exit(main())
