"""A release of a library that vLLM calls: of its wheel only the files that a launch or a request reaches.

libraries.json has them, by the distribution's name. A wheel of vLLM is read whole.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from releases.wheel import Wheel, WheelError, contents, of_vllm

_OWN = r"vllm/.*\.py"


@cache
def libraries() -> dict[str, str]:
    """Distribution → the files of it that are read."""
    found: dict[str, str] = json.loads(Path(__file__).with_name("libraries.json").read_text(encoding="utf-8"))
    return found


def read(place: Path) -> Wheel:
    """A wheel of vLLM or of a library, or a folder with one unpacked. Raises WheelError."""
    held = contents(place, "*", re.compile("|".join((_OWN, *libraries().values()))))
    name = re.sub(r"[-_.]+", "-", held.project).lower()
    if name not in libraries():
        return of_vllm(place, held)
    files = {path: text for path, text in held.files.items() if re.fullmatch(libraries()[name], path)}
    if not re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?", held.version.partition("+")[0]) or not files:
        raise WheelError(f"{place}: {name} {held.version[:40]!r} with {len(files)} sources; needed: a release of it")
    return replace(held, version=held.version.partition("+")[0], project=name, files=files)
