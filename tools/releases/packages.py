"""What a release needs: Python, glibc, and the packages that its metadata asks for."""

from __future__ import annotations

import re

from releases.wheel import Wheel

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:@.*)?\(?([^;()]*)\)?\s*(?:;(.*))?")


def read(wheel: Wheel) -> dict[str, str]:
    """Package → versions, as the metadata has them; `python` and `glibc` among them. Extras and other machines' and
    platforms' requirements are left out."""
    made = {"python": _lower_first((wheel.metadata.get("Requires-Python") or [""])[0])}
    if wheel.glibc is not None:
        made["glibc"] = f">={wheel.glibc}"
    for line in wheel.metadata.get("Requires-Dist", []):
        found = _REQUIREMENT.fullmatch(line.strip())
        if found is None or not _is_ours(found[3] or ""):
            continue
        made[found[1].lower().replace("_", "-")] = found[2].replace(" ", "")
    return {name: made[name] for name in sorted(made)}


def _is_ours(marker: str) -> bool:
    """Does a marker hold on Linux, x86_64, in the newest Python? Written out, because only these words are used."""
    if "extra" in marker:
        return False
    machine = re.findall(r'platform_machine\s*(==|!=)\s*"(\w+)"', marker)
    if machine:
        return any((how == "==") == (what == "x86_64") for how, what in machine)
    return True


def _lower_first(versions: str) -> str:
    """`<3.15,>=3.10` as `>=3.10,<3.15`: the order of the metadata changes with the build tool."""
    parts = [part.strip() for part in versions.split(",") if part.strip()]
    return ",".join(sorted(parts, key=lambda p: (not p.startswith(("=", ">", "~")), p.startswith("<"), p)))
