"""The port that a launch listens on."""

import re
from collections.abc import Mapping

from vllm_doctor.knowledge.versions import default_port


def port_of(flags: Mapping[str, str | bool]) -> int:
    """The port that the launch names, else vLLM's own."""
    text = flags.get("port")
    if isinstance(text, str) and re.fullmatch("[0-9]{1,5}", text) and 0 < int(text) < 65536:
        return int(text)
    return default_port()
