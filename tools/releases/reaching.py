"""Whether the code shows that a way round reaches what fails: in each release of the entry that takes the way, the
function that fails reads the variable or the option's field, or its module runs with the option that is taken away
alone; or the package is the one whose own code shows the mend, and the release asks for it or for no other.

It shows no more than that. The rest is to be read by a person.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version as Number

from releases.accepted import of_vllm, releases_of, why_refused
from releases.compared import Compared
from releases.required import left_out
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.known_issues import Issue
from vllm_doctor.knowledge.version import Version
from vllm_doctor.records.verdict import Direction

# A folder of a release, or its wheel.
Codes = Mapping[str, Path | zipfile.Path]

# Modules that only run where the launch has the option.
_ONLY_WITH = {
    "speculative-config": r"spec_decode/|speculator|(?:eagle|medusa|mtp|dflash|dspark)[\w\\]*\.py",
    "speculative-model": r"spec_decode/",
    "kv-transfer-config": r"kv_transfer/|kv_connector/",
    "kv-offloading-size": r"kv_offload/|offloading/",
    "enable-lora": r"/lora/",
    "num-scheduler-steps": r"multi_step",
    "enable-eplb": r"/eplb/",
}


def reaching(one: Issue, row: Compared, codes: Codes) -> dict[int, str]:
    """The place of an answer in an entry → what shows that it reaches what fails; none where the code does not."""
    return {
        index: why
        for index, answer in enumerate(one.answers)
        if (why := _of_package(one, answer) if answer.kind == "package" else _of_code(one, answer, row, codes))
    }


def _of_code(one: Issue, answer: Answer, row: Compared, codes: Codes) -> str:
    if not of_vllm(answer):
        return ""
    if answer.direction is Direction.REMOVE:
        only = next((_ONLY_WITH[option] for option in answer.options if option in _ONLY_WITH), None)
        if only and any(re.search(only, place) for place in (*one.calls, row.where)):
            return "what fails runs with it alone"
    if not row.where:
        return ""
    taken = [at for at in releases_of(one, answer) if str(at) in codes and why_refused(answer, at) is None]
    file, _, function = row.where.rpartition(":")
    bodies = {at: list(_bodies(codes[str(at)], file, function)) for at in taken}
    # Without a first release an entry is met where its place is.
    met = [at for at in taken if bodies[at] or one.since is not None]
    read = (any(_word(_fields(answer, at), body) for body in bodies[at]) for at in met)
    return f"{function} reads it" if met and all(read) else ""


def _bodies(code: Path | zipfile.Path, file: str, function: str) -> Iterator[str]:
    """The functions of that name in a file, with what is inside them."""
    if not (code / file).is_file():
        return
    text = (code / file).read_text(encoding="utf-8", errors="replace")
    for head in re.finditer(rf"^([ \t]*)(?:async )?def {function}\b.*$", text, re.MULTILINE):
        after = re.compile(rf"^[ \t]{{0,{len(head[1])}}}[^\s)#]", re.MULTILINE).search(text, head.end())
        yield re.sub(r"(?m)#.*$", "", text[head.start() : after.start() if after else len(text)])


def _word(names: set[str], body: str) -> bool:
    return any(re.search(rf"\b{name}\b", body) for name in names)


def _fields(answer: Answer, at: Version) -> set[str]:
    """What code calls an option, or a variable."""
    if answer.kind == "env":
        return set(answer.options)
    options = history("options", "options")
    fields = (options.value(name, at).get("field") for name in answer.options if options.exists(name, at))
    held = {str(field).rpartition(".")[2] for field in fields if field}
    # A field such as `backend` is many other things' name as well.
    return {name for name in (*held, *(name.replace("-", "_") for name in answer.options)) if "_" in name}


def _of_package(one: Issue, answer: Answer) -> str:
    """Does the package's own code show the mend in this release, or in one before, and does no vLLM ask for another?"""
    name, packages = answer.options[0], history("packages", "packages")
    to = answer.to or ""
    mends = [proof.first for proof in one.proof if proof.package == name and proof.of_code]
    if not re.fullmatch(r"\d[\w.]*", to) or not any(Number(first) <= Number(to) for first in mends):
        return ""
    asked = [packages.text(name, at) for at in releases_of(one, answer)] if name in packages.names() else []
    taken = not any(left_out(SpecifierSet(text), to, below=False) for text in asked if text is not None)
    return f"{name} {mends[0]} has the mend" if taken else ""
