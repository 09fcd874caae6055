"""The names of drop-ins that take themselves away: each says what it is for and until when."""

import datetime
import re

# Behind every other drop-in, and before a trial of `tune`.
_NAME = re.compile(r"zzy-vllm-doctor-(recover|debug)-until-(\d{8}T\d{6}Z)\.conf")
_STAMP = "%Y%m%dT%H%M%SZ"


def name(purpose: str, end: datetime.datetime) -> str:
    """The file's name; `end` is in UTC."""
    return f"zzy-vllm-doctor-{purpose}-until-{end.strftime(_STAMP)}.conf"


def until(path: str) -> datetime.datetime | None:
    """When the drop-in of this path ends; None where it is none of ours."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    try:
        return datetime.datetime.strptime(found[2], _STAMP).replace(tzinfo=datetime.UTC) if found else None
    except ValueError:
        return None


def purpose(path: str) -> str:
    """`recover` or `debug`; empty where it is none of ours."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return found[1] if found else ""
