"""How a unit is named."""

import re

# What systemd takes; no pattern, as `systemctl stop 'vllm@*'` would mean every one.
_SERVICE = re.compile(r"[A-Za-z0-9:_.\\@-]{1,247}\.service")


def service(name: str) -> str:
    """The whole name: who types vllm@main means vllm@main.service."""
    return name if name.endswith(".service") else f"{name}.service"


def is_service(name: str) -> bool:
    """Is it the whole name of one service?"""
    return _SERVICE.fullmatch(name) is not None
