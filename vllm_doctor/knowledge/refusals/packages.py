"""Which package a sentence says is missing or too old."""

import re
from collections.abc import Iterator

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.refusals.words import words

_SPEC = r"[`'\"]?(?P<spec>[A-Za-z][\w.\-]*(?:\[[\w,]+\])?(?:\s?[=<>!~]=\s?[\w.]+)?)"
_PIP = Pattern(r"pip3? install\s+(?P<options>(?:-{1,2}[\w-]+\s+)*)" + _SPEC + r"(?P<late>\s+-U)?")
# A whole command within quotes: every word of it is a package.
_PIP_OF = Pattern(
    r"[`'\"](?:python3? -m )?pip3? install (?P<names>[A-Za-z][\w.\-]{1,80}(?: [A-Za-z][\w.\-]{1,80}){1,8})[`'\"]"
)
_INSTALL = Pattern(
    r"\b[Ii]nstall(?: or (?:update|upgrade))?(?: the)?(?: package)? " + _SPEC + r"(?: (?P<release>\d[\w.]*) or later)?"
)
_RELEASE = Pattern(
    r"(?:[Rr]equires|needs|use) (?P<name>[A-Za-z][\w\-]{1,200})(?: version)? ?>= ?(?P<release>\d[\w.]{0,200})"
    r"|(?P<name2>[A-Za-z][\w\-]{1,200}) >= (?P<release2>\S{1,1000}) is required"
    r"|(?P<name3>[Rr]ay|torch|PyTorch) version (?P<release3>\d[\w.]{0,200})(?: or greater| or higher)? is required"
    r"|and (?P<name4>[A-Z]\w{1,200}) >= (?P<release4>\d[\w.]{0,200})"
)
_NEEDED = Pattern(
    r"[`'\"]?(?P<spec>[A-Za-z][\w.\-]{1,200})[`'\"]?(?: module| package)? (?:is|are) (?:not installed|required)"
    r"|(?P<spec3>\w{1,200}) backend is (?:not available|unavailable)[^\n]{0,40}install the package"
    r"|\b(?P<spec4>[A-Z]\w{1,200}) packages (?:must be|are) installed"
    r"|requires (?P<spec5>[A-Za-z][\w.\-]{1,200}) to be installed"
    r"|requires (?:the )?[`'\"](?P<spec2>[A-Za-z][\w.\-]{1,200})[`'\"] (?:package|module)"
)
# What is installed, and too old for what is asked.
_TOO_OLD = Pattern(r"\b[Ii]nstalled (?P<late>[A-Za-z][\w\-]{1,200}) (?:does not|doesn't|has no|lacks)\b")
_ABOUT_PACKAGES = Pattern(r"install|package|version|import|requires \w+ ?>=|module was not found", re.IGNORECASE)
_NO_PACKAGE = frozenset(
    {
        "it",
        "the",
        "a",
        "an",
        "them",
        "this",
        "by",
        "with",
        "from",
        "vllm",
        "following",
        "and",
        "to",
        "upstream",
        "plugin",
    }
    | {"git", "but", "be", "which", "that", "also", "module", "required", "build", "packages", "newer", "matching"}
    | {"backend", "platform", "higher", "later", "above", "one", "least"}
)


class Package(msgspec.Struct, frozen=True):
    """A package by its name on PyPI, as far as known; `spec` where a release or an extra is asked; `newer`: it may be
    there, too old; `also`: those that the same command installs."""

    name: str
    spec: str | None
    newer: bool
    also: tuple[str, ...] = ()


def package(text: str) -> Package | None:
    """The package that is asked for, by the sentence's own command where it has one."""
    found = next(_found(text), None) if _ABOUT_PACKAGES.search(text) else None
    command = _PIP_OF.search(text) if found is not None else None
    names = command["names"].split() if command is not None else []
    return msgspec.structs.replace(found, also=tuple(names[1:])) if found and names[:1] == [found.name] else found


def _found(text: str) -> Iterator[Package]:
    for old in _TOO_OLD.finditer(text):
        yield Package(words().packages.get(old["late"].lower(), old["late"]), None, True)
    for pattern in (_PIP, _INSTALL, _RELEASE, _NEEDED):
        for found in pattern.finditer(text):
            groups = {k.rstrip("2345"): v for k, v in found.groupdict().items() if v}
            spec = groups.get("spec", groups.get("name", "")).rstrip(".,-")
            name = re.split(r"[\s=<>!~]", spec, maxsplit=1)[0]
            if not name or name.lower() in _NO_PACKAGE:
                continue
            known = words().packages.get(name.lower(), name)
            release = groups.get("release")
            asked = f"{known}>={release.rstrip('.,;')}" if release else spec if spec != name or "[" in spec else None
            upgrade = release is not None or "=" in spec or groups.get("late") or "-U" in groups.get("options", "")
            yield Package(known, asked, bool(upgrade) or "upgrade" in found[0].lower())
