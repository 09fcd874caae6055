"""What a release's compiled code refuses in a sentence: the checks of its C++ and CUDA sources, and where they stand.

The sources are in the release's source distribution (csrc/), not in its wheel. No compiler reads them here: a check is
a call of one of a few macros, whose arguments are a condition and what is printed.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from releases import texts
from releases.raised import Raised
from releases.wheel import Wheel, WheelError
from vllm_doctor.knowledge.said_by import COMPILED

# c10/util/Exception.h and torch/csrc/Exceptions.h: which class of Python's a failed check becomes. What native code
# throws itself reaches Python as RuntimeError through torch's dispatcher.
_CHECKS = {
    "": "RuntimeError",
    "_NOT_IMPLEMENTED": "NotImplementedError",
    "_VALUE": "ValueError",
    "_TYPE": "TypeError",
    "_INDEX": "IndexError",
}
_CALL = re.compile(
    r"\b(?:(?:STD_)?TORCH_CHECK(?P<check>|_NOT_IMPLEMENTED|_VALUE|_TYPE|_INDEX)|throw std::\w+)\s*\((?P<inside>)"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NO_FUNCTION = r"(?!#|\s|namespace|template|using|typedef|return|static_assert)"
_FUNCTION = re.compile(rf"^{_NO_FUNCTION}[\w:<>*&,\s]*?\b(?P<name>\w+)\s*\(", re.MULTILINE)
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SOURCE = re.compile(r"(?:[^/]+/)?(csrc/.+\.(?:cuh?|cpp|hpp|h|inl))")
_NAMED = re.compile(r"vllm-(?P<version>\d+(?:\.\d+)*(?:\.post\d+)?)(?:\.tar\.gz)?")
_MEMBERS, _BYTES = 60_000, 8 << 20
_OPENS, _CLOSES = "([{", ")]}"


def is_source(place: Path) -> bool:
    """Is it a source distribution, packed, or a folder with the csrc of one?"""
    return place.name.endswith(".tar.gz") or (place / "csrc").is_dir()


def read(place: Path) -> Wheel:
    """The C++ and CUDA sources of `vllm-VERSION.tar.gz`, or of a folder of that name. Raises WheelError."""
    named = _NAMED.fullmatch(place.name)
    files = dict(_packed(place) if place.is_file() else _unpacked(place))
    if named is None or not files:
        raise WheelError(f"{place}: {len(files)} sources in csrc/; needed: vllm-VERSION.tar.gz, as PyPI has it")
    return Wheel(place.name, named["version"], files, {}, project=COMPILED)


def _packed(place: Path) -> Iterator[tuple[str, str]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(place.read_bytes()), mode="r:gz") as held:
            for number, member in enumerate(held):
                if number > _MEMBERS:
                    raise WheelError(f"{place}: more than {_MEMBERS} members")
                found = _SOURCE.fullmatch(member.name)
                source = held.extractfile(member) if found and member.isfile() and member.size <= _BYTES else None
                if found and source is not None:
                    yield f"vllm/{found[1]}", source.read(_BYTES).decode(errors="replace")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise WheelError(f"{place}: {error}") from error


def _unpacked(place: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(place.rglob("*")):
        found = _SOURCE.fullmatch(file.relative_to(place).as_posix())
        if found and file.is_file():
            yield f"vllm/{found[1]}", file.read_text(encoding="utf-8", errors="replace")


def checks(source: str) -> Iterator[Raised]:
    """Each check with a sentence, in the order of the source; a value in it is a hole. One without words is printed by
    torch with its condition."""
    code = _COMMENT.sub(lambda m: " " if "\n" not in m[0] else "\n", source)
    functions = [(m.start(), m["name"]) for m in _FUNCTION.finditer(code)]
    for call in _CALL.finditer(code):
        arguments = list(_arguments(code, call.end()))
        said = arguments if call["check"] is None else arguments[1:]
        text = "".join(_printed(one) for one in said)
        if call["check"] is not None and not said:
            text = f"Expected {' '.join(arguments[0].split())} to be true, but got false."
        function = next((name for start, name in reversed(functions) if start < call.start()), "")
        if text.strip(texts.HOLE + " "):
            yield Raised(function, function, _CHECKS[call["check"] or ""], text)


def _printed(argument: str) -> str:
    """What one argument prints: literals that stand side by side are one, anything else is a value."""
    alone = not _LITERAL.sub("", argument).strip()
    words = "".join(_LITERAL.findall(argument)).replace("\\n", "\n").replace('\\"', '"')
    return words if alone else f"{words}{texts.HOLE}" if words and "+" in argument else texts.HOLE


def _arguments(code: str, at: int) -> Iterator[str]:
    """The arguments of a call, from behind its parenthesis to the one that closes it."""
    start, depth = at, 0
    while at < len(code):
        letter = code[at]
        if letter == '"':
            found = _LITERAL.match(code, at)
            at = found.end() if found else len(code)
            continue
        if letter in _OPENS:
            depth += 1
        elif letter in _CLOSES:
            if not depth:
                if code[start:at].strip():
                    yield code[start:at].strip()
                return
            depth -= 1
        elif letter == "," and not depth:
            yield code[start:at].strip()
            start = at + 1
        at += 1
