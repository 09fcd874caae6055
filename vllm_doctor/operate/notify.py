"""Tell somebody of a finding: a webhook, or a program that gets the answer on its standard input.

Whom is in a file that only its owner reads: the address of a webhook is a secret, and a command line is everybody's.
"""

import json
import os
import stat
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.http_config import LOOPBACK
from vllm_doctor.gather.processes import NotRun, run
from vllm_doctor.records.finding import Diagnosis, subject
from vllm_doctor.records.reading import Known
from vllm_doctor.redact.visible import visible

DEADLINE_S = 10.0
_MOST_FILE = 1 << 14


class NotifyTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either the `url` of a webhook, with `headers` of one's own, or `exec`: a program's absolute path, its words."""

    url: str = ""
    headers: dict[str, str] = {}
    exec: tuple[str, ...] = ()


class BadTargetError(Exception):
    """The file cannot be used: what was found, and what is needed. Nothing of its content is in the text."""


def notify_target(path: str) -> NotifyTarget:
    """The target that a file holds. Raises BadTargetError."""
    try:
        status = os.stat(path)  # noqa: PTH116 - one call, which says why
    except OSError as problem:
        raise BadTargetError(f"{path}: {problem.strerror}") from None
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o077:
        raise BadTargetError(f"{path}: it may hold a secret; needed: a file of yours that nobody else reads: chmod 600")
    read = whole_file(path, _MOST_FILE)
    if not isinstance(read, Known):
        raise BadTargetError(f"{path}: {read.reason}")
    try:
        found = msgspec.json.decode(read.value, type=NotifyTarget)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadTargetError(f'{path}: needed: {{"url": "https://…"}} or {{"exec": ["/path/to/program"]}}') from None
    if bool(found.url) == bool(found.exec):
        raise BadTargetError(f"{path}: needed: one of url and exec")
    if found.exec and not found.exec[0].startswith("/"):
        raise BadTargetError(f"{path}: exec begins with the program's absolute path")
    if found.url and not _is_safe(found.url):
        raise BadTargetError(f"{path}: url is https://…, or http:// on this machine, without a user and a password")
    return found


def _is_safe(url: str) -> bool:
    try:
        parsed = urlsplit(url)
        host = parsed.hostname
    except ValueError:
        return False
    plain = parsed.scheme == "http" and host in LOOPBACK
    return bool(host) and (parsed.scheme == "https" or plain) and parsed.username is None and url.isprintable()


def message(judged: Sequence[Diagnosis]) -> bytes:
    """`text` is for people (Slack, Mattermost and Teams show it), `diagnoses` are the answers of --format json."""
    told = [
        f"{visible(subject(one.subject), 200) or 'vLLM'}: {one.findings[0].code} {visible(one.findings[0].title, 200)}"
        for one in judged
        if one.findings
    ]
    body = {"text": "\n".join(told), "diagnoses": [msgspec.to_builtins(one) for one in judged]}
    return json.dumps(body, ensure_ascii=True).encode()


def notify(where: NotifyTarget, judged: Sequence[Diagnosis], deadline_s: float = DEADLINE_S) -> str:
    """Send it, once; "" where it was taken, else why not, without a word of the target's secrets."""
    body = message(judged)
    if where.exec:
        ended = run(where.exec, deadline_s=deadline_s, stdin=body, max_bytes=1 << 16)
        if isinstance(ended, NotRun):
            return ended.reason
        return f"{where.exec[0]} ended with {ended.code}" if ended.code != 0 else ""
    sent: Task[str] = Task(lambda: _post(where, body, deadline_s))
    return sent.within(deadline_s, f"the webhook did not answer within {deadline_s:g} s")


def _post(where: NotifyTarget, body: bytes, deadline_s: float) -> str:
    import urllib3

    headers = {"Content-Type": "application/json", "User-Agent": "vllm-doctor", **where.headers}
    try:
        with urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(total=deadline_s)) as pool:
            answer = pool.request("POST", where.url, body=body, headers=headers, redirect=False, preload_content=False)
            answer.close()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
        return f"the webhook was not reached: {type(problem).__name__}"
    return "" if 200 <= answer.status < 300 else f"the webhook answers {answer.status}"
